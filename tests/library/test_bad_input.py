"""Bad input: what each check of `posattn.contract` says, and that every public name asks them."""

import dataclasses
import inspect
import re
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import posattn.jax
import posattn.reference
from posattn import contract
from tests.conftest import COLUMNS, draw

pytestmark = pytest.mark.usefixtures("unchecked")

KIND, RANGE = TypeError, ValueError  # of a wrong kind, of the right kind with a wrong value
NAN, INF = float("nan"), float("inf")


def floats(*shape):
    return draw(100, *shape)


def ints(*shape):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def bools(*shape):
    return np.ones(shape, bool)


def half(*shape):
    return np.ones(shape, np.float16)


def kv_cache(**changed):
    arrays = {
        "key": floats(2, 3, 5, 4),
        "value": floats(2, 3, 5, 4),
        "positions": ints(2, 5),
    }
    return SimpleNamespace(**{**arrays, **changed})


def latent_cache(**changed):
    arrays = {"latent": floats(2, 5, 4), "positions": ints(2, 5)}
    return SimpleNamespace(**{**arrays, **changed})


def layer_weights(**changed):
    """The weights of a layer of width 4 with 2 heads of queries and 1 of keys, all of width 3."""
    roles = "query", "key", "value", "output", "gate"
    shapes = (4, 6), (4, 3), (4, 3), (6, 4), (4, 6)
    weights = {
        f"{role}_weight": floats(*shape) for role, shape in zip(roles, shapes, strict=True)
    }
    biases = {f"{role}_bias": None for role in roles}
    return contract.layer_weights(SimpleNamespace(**{**weights, **biases, **changed}))


def latent_weights(**changed):
    """Weights of latent attention: width 8, rank 3, 2 heads of contents 2, rotations 2, values 5."""
    weights = {
        "query_down_weight": floats(8, 7),
        "query_norm_weight": floats(7),
        "query_weight": floats(7, 8),
        "kv_down_weight": floats(8, 5),
        "kv_norm_weight": floats(3),
        "key_weight": floats(3, 4),
        "value_weight": floats(3, 10),
        "output_weight": floats(10, 8),
        "num_heads": 2,
        "raw": False,
        "gate_weight": None,
        "temperature": None,
    }
    return contract.latent_weights(SimpleNamespace(**{**weights, **changed}), floats(1, 8))


def rotary(**changed):
    options = {"rotary_dim": 4, "base": 100, "layout": "half"}
    options |= {"frequencies": None, "attention_factor": 1}
    return contract.rotary(**{**options, **changed})


def rotary_axes(frequencies):
    return contract.rotary_axes(
        frequencies=frequencies, layout="half", attention_factor=1.0
    )


def waves(x_shape=(2, 3, 4), frequencies=None, cos_weight=None, sin_weight=None):
    """One wave for each of two heads of width 4."""
    weight = floats(2, 1, 1)
    return contract.waves(
        floats(1) if frequencies is None else frequencies,
        weight if cos_weight is None else cos_weight,
        weight if sin_weight is None else sin_weight,
        x_shape,
    )


class NeedsAllKeys:
    """A bias like StickBreaking."""

    needs_all_keys = True

    def scores(self):
        """What a content bias has."""


class ChangesValues:
    """A bias like ShawRelative."""

    needs_all_keys = False

    def scores(self):
        """What a content bias has."""

    def values(self):
        """What changes the output."""


c = contract
count, size = partial(c.integer, "n"), partial(c.integer, "n", least=1)
pairs = partial(c.integer, "n", least=1, even=True)
rotated, unturned = SimpleNamespace(rotated=True), SimpleNamespace(rotated=False)
step = SimpleNamespace(next_positions=None, positions=ints(2, 5))
AXES = "frequencies must be a row of numbers for each axis, or a float32 or float64 array (c, m), got "
HEADS = (2, 3, 5, 4)  # (batch, h, n, d_h)
SELECTING = (2, 4, 3, 4)
# a check, arguments that pass, arguments that fail, the exception and its whole text
CHECKS = [
    # numbers
    (count, [0], [-1], RANGE, "n must be a non-negative integer, got -1"),
    (count, [np.uint8(3)], [2.0], KIND, "n must be a non-negative integer, got 2.0"),
    (count, [2**63 - 1], [2**63], RANGE, f"n must be a non-negative integer below 2**63, got {2**63}"),
    (count, [np.array(3)], [True], KIND, "n must be a non-negative integer, got True"),
    (size, [1], [0], RANGE, "n must be a positive integer, got 0"),
    (pairs, [2], [3], RANGE, "n must be a positive even integer, got 3"),
    (c.multiple, ["n", 8, 4], ["n", 6, 4], RANGE, "n must be a positive multiple of 4, got 6"),
    (c.base, [2], [0], RANGE, "base must be a positive finite number, got 0"),
    (c.base, [0.5], ["e"], KIND, "base must be a positive finite number, got 'e'"),
    (c.base, [np.float32(9)], [10**400], RANGE, f"base must be a positive finite number, got {10**400}"),
    (c.larger_base, [1e4, 2.0, 2, 2], [1e4, 1e200, 2, 9], RANGE, "factor must leave the base finite, got 9"),
    (c.soft_cap, [None], [0.0], RANGE, "soft_cap must be a positive finite number, got 0.0"),
    (c.dropout_rate, [0], [1.0], RANGE, "dropout_rate must be a number in [0, 1), got 1.0"),
    (c.rng, [3, True, ""], [3, False, "key"], KIND, "rng must be a key, got int"),
    (c.rng, [2**63 - 1, True, ""], [2**63, True, ""], RANGE, f"rng must be a seed of 64 bits, got {2**63}"),
    (c.finite, ["y", 0], ["y", NAN], RANGE, "y must be a finite number, got nan"),
    (c.positive, ["y", 1], ["y", 0], RANGE, "y must be a positive finite number, got 0"),
    (c.above, ["y", 2, 1, "x = "], ["y", 1, 1, "x = "], RANGE,
     "y must be a finite number above x = 1, got 1"),
    (c.at_least, ["y", 1, 1], ["y", 0.9, 1], RANGE, "y must be a finite number of at least 1, got 0.9"),
    (c.factor, [1], [0.5], RANGE, "factor must be a finite number of at least 1, got 0.5"),
    (c.factors, ["y", [1, 2], 2], ["y", [1], 2], RANGE, "y must hold 2 positive finite numbers, got 1"),
    (c.factors, ["y", [], 0], ["y", 3, 1], KIND, "y must hold 1 positive finite numbers, got 3"),
    (c.layout, ["half"], ["neox"], RANGE, "layout must be 'interleaved' or 'half', got 'neox'"),
    (c.layout, ["interleaved"], [None], KIND, "layout must be 'interleaved' or 'half', got None"),
    (lambda f: rotary(frequencies=f), [[1.0, 0]], [[1.0]], RANGE,
     "frequencies must hold 2 numbers, half of rotary_dim, got 1"),
    (lambda f: rotary(frequencies=f), [floats(2)], [half(2)], KIND,
     "frequencies must be numbers, or a float32 or float64 array (m), got array([1., 1.], dtype=float16)"),
    (lambda f: rotary(frequencies=f), [None], [[1, NAN]], RANGE, "frequencies must be finite, got nan"),
    (rotary_axes, [[[1.0], [2]]], [[[1], [1, 2]]], RANGE, AXES + "rows of [1, 2] numbers"),
    (rotary_axes, [floats(2, 3)], [[1.0]], KIND, AXES + "[1.0]"),
    # sequences, heads, masks and biases
    (c.array, ["x", floats(1)], ["x", [1.0]], KIND, "x must be an array, got list"),
    (c.floating, ["x", half(1)], ["x", ints(1)], KIND, "x must have a floating dtype, got int64"),
    (lambda x: c.floating("x", x, like=floats(1)), [floats(2)], [half(1)], KIND,
     "x must have the dtype of query, float64, got float16"),
    (c.sequence, ["x", floats(3, 4), 4], ["x", floats(4), 4], RANGE,
     "x must have shape (*batch, n, 4), got (4,)"),
    (c.scores, [floats(1, 2)], [floats(2)], RANGE, "scores must have shape (*batch, n_q, n_k), got (2,)"),
    (c.heads, [2, 4], [3, 4], RANGE, "num_heads must divide dim = 4, got 3"),
    (c.kv_heads, [None, 4], [3, 4], RANGE, "num_kv_heads must divide num_heads = 4, got 3"),
    (c.head_sequence, ["x", floats(2, 3, 4)], ["x", floats(3, 4)], RANGE,
     "x must have shape (*batch, h, n, d_h), got (3, 4)"),
    (c.attention, [floats(2, 3, 4), floats(2, 5, 4)], [floats(2, 3, 4), floats(1, 5, 4)], RANGE,
     "key must have shape (2, n_k, 4), got (1, 5, 4)"),
    (c.attention, [floats(3, 4), floats(5, 4), floats(5, 6)], [floats(3, 4), floats(5, 4), floats(4, 6)],
     RANGE, "value must have shape (5, d_v), got (4, 6)"),
    (c.attention, [floats(0, 1), floats(0, 1)], [floats(3, 0), floats(5, 0)], RANGE,
     "query must have a width of at least 1, got shape (3, 0)"),
    (partial(c.attention, grouped=True), [floats(4, 3, 2), floats(2, 5, 2)],
     [floats(4, 3, 2), floats(3, 5, 2)], RANGE, "key must have shape (4, n_k, 2), got (3, 5, 2)"),
    (c.layer_inputs, [floats(3, 4), floats(5, 6), floats(5, 6), 4, 6],
     [floats(3, 4), floats(5, 4), floats(5, 6), 4, 6], RANGE, "key must have shape (n_k, 6), got (5, 4)"),
    (c.layer_inputs, [floats(3, 4), floats(5, 4), floats(5, 4), 4],
     [floats(3, 4), floats(5, 4), floats(3, 4), 4], RANGE, "value must have shape (5, 4), got (3, 4)"),
    (c.layer_sizes, [4, 3, None, 5, None], [4, 3, None, None, None], RANGE,
     "num_heads must divide dim = 4, got 3"),
    (c.mask, [None, (3, 5)], [bools(3, 1), (3, 5)], RANGE,
     "mask must have a shape that broadcasts to (3, 5), got (3, 1)"),
    (c.mask, [bools(3, 5), (3, 5)], [ints(3, 5), (3, 5)], KIND,
     "mask must be bool (True means may attend), got int64"),
    (c.layer_mask, [bools(2, 3, 5), (2, 4, 3, 5)], [bools(4, 3, 5), (2, 4, 3, 5)], RANGE,
     "mask must have a shape that broadcasts to (2, 3, 5), got (4, 3, 5)"),
    (c.layer_mask, [max, ()], [bools(2, 3, 3, 5), (2, 4, 3, 5)], RANGE,
     "mask must have a shape that broadcasts to (2, 4, 3, 5), got (2, 3, 3, 5)"),
    (c.position_mask, [max], [bools(3, 3)], KIND,
     "mask of a layer must be a function (query_positions, key_positions) such as Window, got ndarray"),
    (c.bias, [floats(3, 5), (2, 3, 5)], [floats(2, 2, 3, 5), (2, 3, 5)], RANGE,
     "bias must have a shape that broadcasts to (2, 3, 5), got (2, 2, 3, 5)"),
    (c.sinks, [floats(2), floats(2, 3, 4)], [floats(3), floats(2, 3, 4)], RANGE,
     "sinks must have shape (2), got (3,)"),
    (c.integer_array, ["x", ints(1)], ["x", bools(1)], KIND, "x must have an integer dtype, got bool"),
    (c.parameter, ["x", floats(2, 3), ("m", 3)], ["x", floats(2, 3), ("m", 2)], RANGE,
     "x must have shape (m, 2), got (2, 3)"),
    (c.square, ["x", floats(3, 3)], ["x", floats(3, 4)], RANGE,
     "x must have shape (*batch, n, n), got (3, 4)"),
    (c.pattern, [floats(1, 3, 3)], [floats(3, 3)], RANGE,
     "weights must have shape (*batch, h, n, n), got (3, 3)"),
    (partial(c.pattern, least=2), [floats(1, 2, 2)], [floats(1, 1, 1)], RANGE,
     "weights must be of at least 2 tokens, got 1"),
    (partial(c.pattern_distance, least=1), [floats(1, 3, 3), "p", 2], [floats(1, 3, 3), "p", 3], RANGE,
     "p must be less than the number of tokens, 3, got 3"),
    (c.reachable, [max, False], ["Bias", True], KIND, "str must be registered as a pytree, or be a method "
     "of one, because it holds arrays that would not be trained"),
    (layer_weights, {"key_bias": floats(3)}, {"output_weight": floats(4, 6)}, RANGE,
     "output_weight must have shape (6, 4), got (4, 6)"),
    (layer_weights, {"gate_weight": None}, {"gate_weight": floats(4, 4)}, RANGE,
     "gate_weight must have shape (4, 6), got (4, 4)"),
    (layer_weights, {"gate_bias": floats(6)}, {"gate_weight": None, "gate_bias": floats(6)}, RANGE,
     "gate_weight must be given where gate_bias is, got None"),
    # selections
    (c.indexer, [floats(2, 3, 4), floats(5, 4), floats(3, 2)], [floats(3, 4), floats(5, 4), None], RANGE,
     "query must have shape (*batch, h, n_q, d), got (3, 4)"),
    (c.indexer, [floats(2, 3, 4), floats(5, 4), None], [floats(2, 3, 4), floats(2, 5, 4), None], RANGE,
     "key must have shape (n_k, 4), got (2, 5, 4)"),
    (c.indexer, [floats(2, 3, 4), floats(5, 4), floats(3, 2)], [floats(2, 3, 4), floats(5, 4), floats(2, 3)],
     RANGE, "weights must have shape (3, 2), got (2, 3)"),
    (c.selected, [ints(1, 3, 2), floats(*SELECTING), floats(2, 2, 8, 4)],
     [ints(5, 3, 1), floats(*SELECTING), floats(2, 2, 8, 4)], RANGE,
     "select must have shape (2, 3, k) or, with an axis of heads, (2, 4, 3, k), got (5, 3, 1)"),
    (c.selected, [ints(2, 1, 3, 1), floats(*SELECTING), floats(2, 2, 8, 4)],
     [ints(2, 3, 3, 1), floats(*SELECTING), floats(2, 2, 8, 4)], RANGE,
     "select must have shape (2, 3, k) or, with an axis of heads, (2, 4, 3, k), got (2, 3, 3, 1)"),
    (c.selected, [np.array([[-1]]), floats(1, 4), floats(8, 4)],
     [np.array([[8]]), floats(1, 4), floats(8, 4)], RANGE,
     "select must lie between -1 (no key) and n_k - 1 = 7, got 8"),
    (c.selected, [None, 0, 0], [floats(1, 1), floats(1, 4), floats(8, 4)], KIND,
     "select must have an integer dtype, got float64"),
    (c.choice, [floats(3, 5), 0, None], [floats(3, 5), -1, None], RANGE,
     "count must be a non-negative integer, got -1"),
    (c.group_size, [2, 5, bools(2, 5)], [0, 5, None], RANGE, "size must be a positive integer, got 0"),
    (c.group_size, [2, 5, bools(5), (2,)], [2, 5, bools(3, 5), (2,)], RANGE,
     "mask must have shape (*batch, n) that broadcasts to (2, 5), got (3, 5)"),
    (c.group_size, [2, 5, None], [2, 5, ints(5)], KIND, "mask must be bool (True means a token), got int64"),
    (c.group_keys, [floats(5, 4), 2, floats(1, 4), None, True], [floats(5, 3), 2, None, None, True], RANGE,
     "key must have an even width where overlap is True, got 3"),
    (c.group_keys, [floats(5, 3), 2, None, None, False], [floats(5, 3), 2, floats(5, 1), None, False], RANGE,
     "gates must have a shape that broadcasts to (5, 3), got (5, 1)"),
    (c.group_scores, [floats(3, 2), 1, 2, 5, None], [floats(3, 3), 1, 2, 5, None], RANGE,
     "scores must have shape (*batch, n_q, n_k // size = 2), got (3, 3)"),
    # lengths, positions and coordinates
    (c.lengths, [ints(2), 3], [ints(2, 1, 1), 3], RANGE,
     "lengths must have shape (batch) or (batch, n_q), got (2, 1, 1)"),
    (c.lengths, [ints(1, 4), 3], [ints(5), 3], RANGE, "lengths must lie between 0 and n_k = 3, got 4"),
    (c.lengths, [np.uint64([3]), 3], [np.array([1, -1]), 3], RANGE,
     "lengths must lie between 0 and n_k = 3, got -1"),
    (c.length_or_positions, [0], [-1], RANGE,
     "length_or_positions must be a non-negative integer or an array of positions, got -1"),
    (c.length_or_positions, [floats(2)], [[0, 1]], KIND,
     "length_or_positions must be a non-negative integer or an array of positions, got [0, 1]"),
    (c.length_or_positions, [ints(2)], [2**63], RANGE, "length_or_positions must be a non-negative integer "
     f"or an array of positions below 2**63, got {2**63}"),
    (c.positions, ["p", ints(1)], ["p", half(1)], KIND,
     "p must hold integers, float32 or float64, got float16"),
    (c.positions, ["p", ints(2, 1)], ["p", ints()], RANGE, "p must have shape (*batch, n), got ()"),
    (c.positions_of, [(2, 3, 4), ints(2, 3)], [(2, 3, 4), ints(1, 3)], RANGE,
     "positions must have shape (3,) or (2, 3), got (1, 3)"),
    (c.attention_positions, [None, ints(5), (), 3, 5], [None, ints(2), (), 3, 2], RANGE,
     "key_positions must cover the 3 queries where query_positions are not given, got 2"),
    (c.token_positions, [ints(1, 3), (2, 3, 4)], [ints(2), (2, 3, 4)], RANGE,
     "positions must have shape (3,) or (2, 3), in which a batch axis may be 1, got (2,)"),
    (c.coordinates, [ints(2, 3, 2), (2, 3, 4), 2], [ints(3, 3), (2, 3, 4), 2], RANGE,
     "coordinates must have shape (3, 2) or (2, 3, 2), in which a batch axis may be 1, got (3, 3)"),
    (c.layer_coordinates, [ints(3, 2), (2, 3, 4), None, rotated], [ints(3, 2), (2, 3, 4), 1, None], RANGE,
     "coordinates must be None where key is given: they are those of query, got shape (3, 2)"),
    (c.layer_coordinates, [None, (2, 3, 4), None, unturned], [ints(3, 2), (2, 3, 4), None, unturned], RANGE,
     "coordinates must be None with a cache whose keys are not rotated (rotated=False): "
     "it would need those of all tokens at each step, got shape (3, 2)"),
    (c.position_pair, [ints(2, 3), ints(4)], [ints(2, 3), ints(3, 3)], RANGE,
     "key_positions must have shape (n_k) or (2, n_k), got (3, 3)"),
    (c.tile_positions, [ints(3), ints(2, 5), (2, 1, 3, 5)], [ints(4), ints(5), (2, 1, 3, 5)], RANGE,
     "query_positions must have shape (3,) or (2, 3), got (4,)"),
    (c.table_length, [5, 5], [6, 5], RANGE, "x must have at most max_len = 5 tokens, got 6"),
    (c.table_rows, [ints(5), 5], [ints(6), 5], RANGE,
     "positions must lie between 0 and max_len - 1 = 4, got 5"),
    (c.table_rows, [np.uint64([4]), 5], [np.array([-1]), 5], RANGE,
     "positions must lie between 0 and max_len - 1 = 4, got -1"),
    (c.sample, [4, 4], [5, 4], RANGE, "length must be at most max_len = 4, got 5"),
    (c.window_positions, ["p", ints(6), 2, 3], ["p", ints(7), 2, 3], RANGE,
     "p must lie between 0 and height * width - 1 = 5, got 6"),
    # caches
    (c.cache_shape, [2, 1, 4, 2, 3], [2.5, 1, 4, 2, 3], KIND,
     "batch_shape must be a non-negative integer, got 2.5"),
    (c.cache_shape, [(), 1, 4, 2, None], [(-1,), 1, 4, 2, None], RANGE,
     "batch_shape[0] must be a non-negative integer, got -1"),
    (c.cache_arrays, [kv_cache()], [kv_cache(value=floats(2, 3, 5, 1))], RANGE,
     "value must have shape (2, 3, 5, 4), got (2, 3, 5, 1)"),
    (c.cache_arrays, [kv_cache()], [kv_cache(positions=ints(5))], RANGE,
     "positions must have shape (2, 5), got (5,)"),
    (c.cache_entry, [floats(2, 3, 1, 4), floats(2, 3, 1, 4), ints(1), kv_cache()],
     [floats(2, 1, 1, 4), floats(2, 3, 1, 4), ints(1), kv_cache()], RANGE,
     "key must have shape (2, 3, n, 4), got (2, 1, 1, 4)"),
    (c.cache_entry, [floats(*HEADS), floats(*HEADS), ints(2, 5), kv_cache()],
     [floats(*HEADS), half(*HEADS), ints(2, 5), kv_cache()], KIND,
     "value must have the dtype of the cache, float64, got float16"),
    (c.cache_room, [3, 4], [4, 4], RANGE,
     "cache must have room for all tokens, max_len = 4, got 5 tokens"),
    (c.cache_rises, [False, 3], [True, 3], RANGE,
     "query_positions must rise from token to token in a cache with a window of 3, got one that does not: "
     "make one with KVCache.init(..., window=None)"),
    (c.cached, {"cache": kv_cache(), "query": floats(2, 5, 4), "value": None},
     {"cache": kv_cache(), "query": floats(2, 5, 4), "value": floats(2)}, RANGE,
     "value must be None where a cache is given, got shape (2,)"),
    (c.cache_batch, ["x", floats(2, 5, 4), 2, kv_cache()], ["x", floats(3, 5, 4), 2, kv_cache()], RANGE,
     "x must have the batch axes (2,) of the cache, got (3,); "
     "make a cache for it with init_cache((3,), max_len)"),
    (c.end_tokens, [[1, 4], 5], [[1, 5], 5], RANGE,
     "eos_token_id must lie between 0 and vocab_size - 1 = 4, got 5"),
    (c.placed, [None, max, None], [None, max, max], RANGE,
     "query_positions must be given where a layer has rotate and an attention of its own, "
     "which may see other tokens than those of the call, got None"),
    (c.latent_arrays, [latent_cache()], [latent_cache(positions=ints(2, 4))], RANGE,
     "positions must have shape (2, 5), got (2, 4)"),
    (c.latent_entry, [floats(2, 1, 4), ints(1), latent_cache()], [floats(2, 1, 5), ints(1), latent_cache()],
     RANGE, "latent must have shape (2, n, 4), got (2, 1, 5)"),
    (latent_weights, {}, {"kv_down_weight": floats(8, 2)}, RANGE, "kv_down_weight must have 3 "
     "columns or more, as many as key_weight has rows, got shape (8, 2)"),
    (latent_weights, {}, {"key_weight": floats(2, 4)}, RANGE,
     "value_weight must have shape (2, h * value_dim), got (3, 10)"),
    (latent_weights, {}, {"query_norm_weight": floats(2)}, RANGE,
     "query_norm_weight must have shape (7), got (2,)"),
    (latent_weights, {}, {"query_norm_weight": None}, KIND,
     "query_norm_weight must be an array, got NoneType"),
    (latent_weights, {"query_down_weight": None, "query_weight": floats(8, 8)}, {"num_heads": 4}, RANGE,
     "num_heads must divide the 10 columns of value_weight, got 4"),
    # schemes
    (c.buckets, [4, 3, True], [5, 9, True], RANGE,
     "num_buckets must be an even integer of at least 4, got 5"),
    (c.buckets, [2, 2, False], [1, 9, False], RANGE, "num_buckets must be an integer of at least 2, got 1"),
    (c.buckets, [32, 9, True], [32, 8, True], RANGE, "max_distance must be an integer greater than 8, got 8"),
    (c.log_buckets, [8, 6], [8, 5], RANGE, "max_distance must be an integer greater than 5, got 5"),
    (c.bucketed, [5, None], [5, 64], RANGE, "max_distance must be an even integer of at least 4, got 5"),
    (partial(c.offset_table, odd=True), ["t", floats(5, 4)], ["t", floats(6, 4)], RANGE,
     "t must have 2 * max_distance + 1 rows, got shape (6, 4)"),
    (c.log_gates, [floats(2, 5), 5], [floats(2, 5), 6], RANGE, "n_q must be at most n_k = 5, got 6"),
    (c.log_gates, [floats(2, 5), None], [floats(5), None], RANGE,
     "log_gates must have shape (*batch, h, n_k), got (5,)"),
    (c.gated_positions, [np.array([4]), ints(2), (1, 5)], [np.array([5]), ints(2), (1, 5)], RANGE,
     "query_positions must lie below the number of gates, 5, got 5"),
    (c.tile, [floats(*HEADS), floats(*HEADS), ints(5), ints(5), 4], [floats(5, 4), 0, 0, 0, 4], RANGE,
     "query must have shape (*batch, h, n_q, 4), got (5, 4)"),
    (partial(c.tile, num_heads=3), [floats(*HEADS), floats(*HEADS), ints(5), ints(5), 4],
     [floats(2, 2, 5, 4), 0, 0, 0, 4], RANGE, "query must have shape (*batch, 3, n_q, 4), got (2, 2, 5, 4)"),
    (c.pair_frequencies, [None, (3, 4)], [None, (3, 7)], RANGE,
     "x must have an even width where frequencies are not given, got 7"),
    (c.pair_frequencies, [floats(2), (3, 4)], [floats(3), (3, 4)], RANGE,
     "frequencies must have shape (m) with m <= 2, got (3,)"),
    (c.pair_frequencies, [np.float32([1]), (3, 4)], [ints(2), (3, 4)], KIND,
     "frequencies must hold float32 or float64, got int64"),
    (c.axis_frequencies, [floats(3, 2, 2), (2, 3, 4)], [floats(3, 1, 2), (2, 3, 4)], RANGE,
     "frequencies must have shape (c, m) or (c, 2, m) with m <= 2, got (3, 1, 2)"),
    (waves, {}, {"x_shape": (2, 3, 5)}, RANGE, "x must have an even width, got 5"),
    (waves, {}, {"frequencies": floats(1, 1)}, RANGE, "frequencies must have shape (K), got (1, 1)"),
    (waves, {"x_shape": (4, 3, 4)}, {"x_shape": (3, 3, 4)}, RANGE,
     "cos_weight must have shape (H, 1, m), where H divides 3 and m <= 2, got (2, 1, 1)"),
    (c.columns, [floats(2)], [floats()], RANGE, "x must have shape (*batch, d), got ()"),
    (c.projection, [floats(2)], [floats(2, 3, 4)], RANGE,
     "weight must have 1 or 2 axes, got shape (2, 3, 4)"),
    (c.rotary_dim, [None, 4], [6, 4], RANGE, "rotary_dim must be at most the width of a head, 4, got 6"),
    (c.sections, [(1, 3), 4], [(1, 2), 4], RANGE,
     "sections must be positive integers with sum 4, got (1, 2)"),
    (c.sections, [[4], 4], [(2.0, 2), 4], KIND,
     "sections must be positive integers with sum 4, got (2.0, 2)"),
    (c.sections, [(3, 3, 2), 8, True], [(4, 1, 3), 8, True], RANGE,
     "sections must give axis 2 at most 2 of 8 pairs where the axes take turns, got (4, 1, 3)"),
    (c.segments, [[3]], [5], KIND,
     "segments must be a list of numbers of words and of grids (t, h, w), got 5"),
    (c.segments, [(0,)], [["a"]], KIND, "segments must hold numbers of words and grids (t, h, w), got 'a'"),
    (c.segments, [[(1, 2, 3)]], [[(2, 3)]], RANGE,
     "a grid in segments must be (t, h, w) or (t, h, w, step), got (2, 3)"),
    (c.segments, [[(1, 2, 3, 0)]], [[(1, 2, 3, -1)]], RANGE,
     "step of a grid in segments must be a finite number of at least 0, got -1"),
    (c.segments, [[(1, 1, 1)]], [[(1, 0, 3)]], RANGE,
     "h of a grid in segments must be a positive integer, got 0"),
    (c.sinusoid_weight, [floats(4, 3), 3], [floats(5, 3), 3], RANGE,
     "the number of rows of weight must be a positive even integer, got 5"),
    (c.projected_table, [floats(8, 4), floats(4, 6), floats(4, 6), 3],
     [floats(8, 4), floats(4, 6), floats(4, 5), 3], RANGE, "key_weight must have shape (4, 6), got (4, 5)"),
    (c.projected_table, [floats(8, 4), floats(4, 6), floats(4, 6), 2],
     [floats(7, 4), floats(4, 6), floats(4, 6), 2], RANGE,
     "table must have 2 * max_distance rows, got shape (7, 4)"),
    (c.untied, [floats(8, 4), floats(4, 6), floats(4, 6), floats(2, 3), 3],
     [floats(8, 4), floats(4, 6), floats(4, 6), floats(3, 2), 3], RANGE,
     "cls_bias must have shape (2, 3), got (3, 2)"),
    (c.network, [floats(1), floats(1), floats(1, 2), floats(2)],
     [floats(3), floats(3), floats(2, 3), floats(2)], RANGE,
     "output_weight must have shape (3, 2), got (2, 3)"),
    (c.window_network, [floats(2, 3), floats(3), floats(3, 4)], [floats(3, 3), floats(3), floats(3, 4)],
     RANGE, "hidden_weight must have shape (2, 3), got (3, 3)"),
    (c.head_network, [floats(6, 4), floats(4), floats(4, 3), floats(3)],
     [floats(3, 4), floats(4), floats(4, 3), floats(3)], RANGE,
     "hidden_weight must have shape (6, 4), got (3, 4)"),
    (c.function_of_positions, ["bias", max], ["bias", 3], KIND,
     "bias must be a function (query_positions, key_positions), got int"),
    (c.base_bias, [floats(3, 4, 5), (2, 3, 4, 5)], [floats(1, 3, 4, 5), (2, 3, 4, 5)], RANGE,
     "what bias returns must have shape (3, 4, 5) or (2, 3, 4, 5), got (1, 3, 4, 5)"),
    # models
    (c.decoder_norm, ["layer", 0], ["batch", 0], RANGE, "norm must be 'rms' or 'layer', got 'batch'"),
    (c.decoder_norm, ["rms", 1e-6], ["rms", -1], RANGE, "eps must be a finite number of at least 0, got -1"),
    (c.layer_options, [lambda i: {"mask": i}, 1], [[1], 0], KIND,
     "layer_options must be a dictionary or a function of a layer's number that returns one, got [1]"),
    (c.tokens, [ints(5), 5], [ints(6), 5], RANGE, "tokens must lie between 0 and vocab_size - 1 = 4, got 5"),
    (c.tokens, [ints(0), 5], [ints(), 5], RANGE, "tokens must have shape (*batch, n), got ()"),
    (c.generation, [ints(1), 1, 0, None], [ints(1), 1, 2, None], RANGE,
     "rng must be given where temperature = 2.0 is above 0, got None"),
    (c.generation, [ints(1), 1, 1, 0], [ints(0), 1, 0, None], RANGE,
     "tokens must hold at least one to go on from, got shape (0,)"),
    (c.caches, [[step], [True], ints(2, 9)], [[step], [True] * 2, ints(2, 9)], RANGE,
     "cache must hold a cache for each of 2 layers, got 1"),
    (c.caches, [(), [], None], [step, [True], None], KIND,
     "cache must hold a cache for each of 1 layers, got SimpleNamespace"),
    (c.caches, [(step, None), [True, False], ints(2, 9)], [[3], [True], None], KIND,
     "cache must hold a cache for each of 1 layers, got int for one of them"),
    # workers
    (c.balanced, [16, 4], [10, 4], RANGE, "n must be a multiple of 2 * workers = 8, got 10"),
    (c.shards, [2, 4, 6], [2, 4, 5], RANGE, "across must divide n_q = 4 and n_k = 5, got 2"),
    (c.shard_positions, [None, ints(3), (), 3, 3], [None, ints(5), (), 3, 5], RANGE,
     "query_positions must be given where key_positions are, unless each query is a key, "
     "got 3 queries and 5 keys"),
    (c.shard_mask, [max, (2, 3, 4), 5], [[True], (2, 3, 4), 5], KIND,
     "mask must be a bool array of keys or a function (query_positions, key_positions), got list"),
    (c.shard_mask, [bools(2, 1, 5), (2, 3, 4), 5], [bools(2, 3, 5), (2, 3, 4), 5], RANGE,
     "mask must have a shape that broadcasts to (2, 1, 5), got (2, 3, 5)"),
    (c.shard_bias, [max], [floats(3, 5)], KIND, "bias must be a function of positions where keys are spread "
     "over workers, got an array of shape (3, 5)"),
    (c.shard_bias, [max], ["ALiBi"], KIND, "bias must be a function (query_positions, key_positions) or have "
     "a method scores, got str"),
    (c.shard_bias, [max], [NeedsAllKeys()], RANGE,
     "bias must score each query and key on their own, got NeedsAllKeys, which needs all keys"),
    (c.shard_bias, [max], [ChangesValues()], RANGE,
     "bias must change only the scores, got ChangesValues, which also changes the values"),
    (c.alike, [["a", "a"]], [["a", "b"]], RANGE,
     "all workers must make the same call to ring_attention, got (a) on worker 0 and (b) on worker 1"),
    (c.group, [None, True], [3, False], KIND,
     "across must be a process group of this process, a DeviceMesh of one axis, or None, got int"),
    (c.mesh_axis, ["i", ["i", "j"]], ["k", ["i", "j"]], RANGE,
     "across must name an axis of the mesh ('i', 'j'), got 'k'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "right", "wrong", "exception", "text"),
    CHECKS,
    ids=[row[-1] for row in CHECKS],
)
def test_check_names_what_is_wrong_and_passes_the_rest(
    check, right, wrong, exception, text
):
    def run(given):
        return check(**given) if isinstance(given, dict) else check(*given)

    run(right)
    with pytest.raises(exception) as caught:
        run(wrong)
    assert caught.type is exception
    assert str(caught.value) == text


X, Q, K, V = floats(2, 3, 4), floats(2, 3, 4), floats(2, 5, 4), floats(2, 5, 6)
WHERE = {"query_positions": ints(3), "key_positions": ints(5)}
TILE = {"query": floats(2, 3, 3, 4), "key": floats(2, 3, 5, 4), **WHERE}
PAIR = {"query": Q, "key": K}
LONGER = {"dim": 8, "factor": 2.0, "trained_length": 9}
TRIPLE = {name: floats(2, 2, 3, 4) for name in ("query", "key", "value")}
STATE = {"num_heads": 2, "key_dim": 4, "value_dim": 4, "past": 3, "width": 24}
LATENT = {"dim": 8, "num_heads": 2, "kv_rank": 3, "content_dim": 2, "rotary_dim": 2}
# what each public name needs, by parameter; the others have defaults
CALLS = {
    "ALiBi": {"num_heads": 3},
    "ALiBi.__call__": WHERE,
    "Chunk": {"size": 2},
    "CoPE": {"max_len": 5, "head_dim": 4},
    "CoPE.scores": TILE,
    "DAPE": {"num_heads": 3, "bias": lambda c: c.ALiBi(3)},
    "DAPE.scores": TILE,
    "Decoder": {"vocab_size": 5, "dim": 4, "num_layers": 1, "num_heads": 2},
    "Decoder.__call__": {"tokens": ints(1, 3)},
    "Decoder.attention_weights": {"tokens": ints(1, 3)},
    "Decoder.generate": {"tokens": ints(1, 3), "max_new_tokens": 1},
    "Decoder.init_cache": {"batch_shape": (1,), "max_len": 4},
    "DeltaAttention": {"dim": 8, "num_heads": 2, "key_dim": 4},
    "DeltaAttention.__call__": {"x": floats(2, 3, 8)},
    "DeltaAttention.init_cache": {"batch_shape": (2,)},
    "DisentangledBias": {"max_distance": 4, "dim": 12, "num_heads": 3},
    "DisentangledBias.scores": TILE,
    "FIRE": {"num_heads": 3},
    "FIRE.__call__": WHERE,
    "ForgettingGate": {"dim": 4, "num_heads": 2},
    "ForgettingGate.__call__": {"x": X},
    "KVCache": {"batch_shape": (2,), "num_kv_heads": 3, "max_len": 5, "head_dim": 4},
    "KVCache.append": {"key": TILE["query"], "value": TILE["query"], "positions": ints(3)},
    "KVCache.mask": {"query_positions": ints(3)},
    "KVCache.next_positions": {"n": 2},
    "KerpleLog": {"num_heads": 3},
    "KerpleLog.__call__": WHERE,
    "KerplePower": {"num_heads": 3},
    "KerplePower.__call__": WHERE,
    "LatentAttention": LATENT,
    "LatentAttention.__call__": {"x": floats(2, 3, 8)},
    "LatentAttention.attention_weights": {"x": floats(2, 3, 8)},
    "LatentAttention.init_cache": {"batch_shape": (2,), "max_len": 4},
    "LatentCache": {"batch_shape": (2,), "max_len": 5, "width": 4},
    "LatentCache.append": {"latent": X, "positions": ints(3)},
    "LatentCache.next_positions": {"n": 2},
    "LearnedPositionalEncoding": {"max_len": 5, "dim": 4},
    "LearnedPositionalEncoding.__call__": {"x": X},
    "LightningIndexer": {"dim": 8, "num_heads": 4, "head_dim": 6, "count": 2},
    "LightningIndexer.__call__": {"x": floats(2, 3, 8), "narrow": floats(2, 3, 8), "key": floats(2, 5, 6),
                                  "positions": ints(3)},
    "LightningIndexer.keys": {"x": floats(2, 3, 8), "positions": ints(3)},
    "MixedRotary": {"head_dim": 4, "num_heads": 3, "width": 2},
    "MixedRotary.__call__": {"x": TILE["query"]},
    "MultiHeadAttention": {"dim": 4, "num_heads": 2},
    "MultiHeadAttention.__call__": {"query": X},
    "MultiHeadAttention.attention_weights": {"query": X},
    "MultiHeadAttention.init_cache": {"batch_shape": (2,), "max_len": 4},
    "PolarKey": {"num_heads": 3, "head_dim": 4},
    "PolarKey.__call__": {"x": TILE["query"]},
    "PositionalEncoding": {"dim": 4},
    "PositionalEncoding.__call__": {"x": X},
    "RelativeGlobalAttention": {"max_len": 6, "num_heads": 3, "head_dim": 4},
    "RelativeGlobalAttention.scores": TILE,
    "Rotary": {},
    "Rotary.__call__": {"x": X},
    "RotaryAxes": {"frequencies": [[1.0, 0.5]]},
    "RotaryAxes.__call__": {"x": X, "coordinates": ints(3, 1)},
    "ShawRelative": {"max_distance": 2, "head_dim": 4},
    "ShawRelative.scores": TILE,
    "ShawRelative.values": {"weights": floats(2, 3, 3, 5), **WHERE},
    "StateCache": {"batch_shape": (2,), **STATE},
    "StateCache.trim": {"n": 0},
    "StickBreaking": {},
    "StickBreaking.scores": TILE,
    "SwinBias": {"num_heads": 3, "height": 2, "width": 3},
    "SwinBias.__call__": WHERE,
    "SwinV2Bias": {"num_heads": 3, "height": 2, "width": 3},
    "SwinV2Bias.__call__": WHERE,
    "T5Bias": {"num_heads": 3},
    "T5Bias.__call__": WHERE,
    "TUPEBias": {"max_len": 8, "dim": 12, "num_heads": 3},
    "TUPEBias.__call__": WHERE,
    "TransformerXLBias": {"dim": 12, "num_heads": 3},
    "TransformerXLBias.scores": TILE,
    "Window": {"window": 2},
    "alibi_slopes": {"num_heads": 3},
    "attention_weights": PAIR,
    "axial_frequencies": {"dim": 8},
    "balanced_order": {"n": 8, "workers": 2},
    "causal_mask": {"n_q": 2},
    "deberta_bucket": {"relative_position": ints(3)},
    "dropout": {"x": X, "dropout_rate": 0.5, "rng": lambda c: c.rng()},
    "dynamic_ntk": {**LONGER, "length": 10},
    "first_token_score": {"weights": floats(1, 3, 3)},
    "fope": {"x": X, "frequencies": floats(1), "cos_weight": floats(2, 1, 1),
             "sin_weight": floats(2, 1, 1)},
    "fope_frequencies": {"head_dim": 8, "trained_length": 64},
    "forgetting_bias": {"log_gates": floats(2, 5)},
    "frequencies": {"dim": 4},
    "group_keys": {"key": floats(2, 5, 4), "size": 2},
    "group_mask": {"n_q": 3, "n_k": 5, "size": 2},
    "group_tokens": {"n_k": 5, "size": 2},
    "gated_delta": {**TRIPLE, "log_gates": floats(2, 2, 3), "beta": floats(2, 2, 3)},
    "grid_coordinates": {"height": 2, "width": 3},
    "indexer_scores": {"query": TILE["query"], "key": floats(2, 5, 4)},
    "induction_score": {"weights": floats(1, 3, 3), "period": 1},
    "kimi_delta": {**TRIPLE, "log_gates": floats(2, 2, 3, 4), "beta": floats(2, 2, 3)},
    "length_mask": {"lengths": ints(2), "n_k": 3},
    "linear_attention": TRIPLE,
    "llama3": {"dim": 8},
    "log_temperature": {"positions": ints(3), "trained_length": 8.0},
    "longrope": {**LONGER, "dim": 2, "length": 10, "short_factors": [1.0], "long_factors": [2.0]},
    "masked_softmax": {"scores": Q},
    "merge_heads": {"x": TILE["query"]},
    "mrope_frequencies": {"dim": 8, "sections": (1, 3)},
    "mrope_positions": {"segments": [2, (1, 2, 2)]},
    "ntk_aware": {"dim": 8, "factor": 2.0},
    "polar_query": {"x": Q},
    "position_interpolation": {"dim": 8, "factor": 2.0},
    "previous_token_score": {"weights": floats(1, 3, 3)},
    "proportional_frequencies": {"head_dim": 8, "rotary_dim": 4},
    "randomized_positions": {"length": 2, "max_len": 4, "rng": lambda c: c.rng()},
    "ring_attention": {**PAIR, "value": V, "across": lambda c: ACROSS[c.name]},
    "rotate": {"x": X},
    "rotate_axes": {"x": X, "coordinates": ints(3, 2), "frequencies": floats(2, 2)},
    "sandwich_bias": {"num_heads": 3},
    "scaled_dot_product_attention": {**PAIR, "value": V},
    "select_blocks": {"scores": Q, "count": 1, "size": 2},
    "select_groups": {"scores": floats(2, 3, 2), "count": 1, "size": 2, "n_k": 5},
    "select_keys": {"scores": Q, "count": 1},
    "selective_rotation": {"x": TRIPLE["query"], "steps": floats(2, 2, 3, 2)},
    "shift_matrix": {"offset": 1, "dim": 4},
    "short_convolution": {"x": X, "weight": floats(4, 2)},
    "sinusoidal_encoding": {"length_or_positions": 3, "dim": 4},
    "skew": {"x": floats(2, 3, 3)},
    "split_heads": {"x": X, "num_heads": 2},
    "t5_bucket": {"relative_position": ints(3)},
    "tiled_forgetting_bias": {"log_gates": floats(2, 5)},
    "to_half": {"x": X},
    "to_interleaved": {"x": X},
    "weight_to_half": {"weight": floats(4, 4), "num_heads": 2},
    "weight_to_interleaved": {"weight": floats(4, 4), "num_heads": 2},
    "window_mask": {"n_q": 2, "n_k": 3, "window": 1},
    "xpos_key": {"x": X},
    "xpos_query": {"x": X},
    "yarn": LONGER,
}  # fmt: skip
ACROSS = {
    "reference": 1,
    "torch": None,
    "jax": "workers",
}  # whom nobody asks for bad arrays
# wrong values where a parameter has no default to derive them from, or 0 is allowed
OPTIONAL = {
    "mask": [np.array(True)],
    "gates": [np.array(0.5)],
    "select": [np.array([[9]])],
    "weights": [floats(1)],
    "bias": [np.array(0.5)],
    "positions": [ints()],
    "query_positions": [ints()],
    "key_positions": [ints()],
    "coordinates": [ints()],
    "scale": [NAN],
    "soft_cap": [0.0],
    "mscale": [-1.0],
    "mscale_all_dim": [-1.0],
    "window": [0],
    "num_kv_heads": [0],
    "head_dim": [0],
    "kv_dim": [0],
    "hidden_dim": [0],
    "query_rank": [0],
    "value_dim": [0],
    "trained_height": [0],
    "trained_width": [0],
    "rotary_dim": [3],
}
# wrong values of one name, besides those that follow from the good ones
WRONG = {
    "MultiHeadAttention": {"mask": []},
    "Decoder": {"mask": []},
    "ring_attention": {"bias": []},
    "dropout": {"x": []},
    "t5_bucket": {"relative_position": []},
    "deberta_bucket": {"relative_position": []},
    "causal_mask": {"n_q": [-1], "n_k": [-1]},
    "window_mask": {"n_q": [-1], "n_k": [-1], "window": [0]},
    "length_mask": {"n_k": [-1], "lengths": [np.array(1), lambda c: on_host(c, [4])]},
    "balanced_order": {"n": [-1, 6]},
    "group_mask": {"n_q": [-1], "n_k": [-1]},
    "group_tokens": {"n_k": [-1]},
    "log_temperature": {"first": [-1], "positions": [ints()]},
    "select_blocks": {"count": [-1]},
    "select_groups": {"count": [-1], "n_k": [-1]},
    "select_keys": {"count": [-1]},
    "randomized_positions": {"length": [-1, 5]},
    "dynamic_ntk": {"length": [-1], "dim": [7]},
    "longrope": {
        "length": [-1],
        "dim": [3],
        "short_factors": [[0.0]],
        "long_factors": [[1.0] * 2],
    },
    "sinusoidal_encoding": {"length_or_positions": [-1, np.array(2.5)]},
    "shift_matrix": {"offset": [INF], "dim": [5]},
    "ShawRelative": {"max_distance": [-1]},
    "previous_token_score": {"distance": [-1, 3]},
    "induction_score": {"period": [0, 3]},
    "forgetting_bias": {"n_q": [-1, 6]},
    "mrope_positions": {"start": [-1], "segments": [[(1, 0, 2)]]},
    "mrope_frequencies": {"sections": [(2, 3)], "dim": [7]},
    "RotaryAxes": {"frequencies": [[[1.0], [1.0, 2.0]]]},
    "Rotary": {"frequencies": [[NAN]]},
    "rotate": {"frequencies": [floats(3)]},
    "rotate_axes": {"frequencies": [floats(2, 3)]},
    "KVCache.next_positions": {"n": [-1]},
    "LatentCache.next_positions": {"n": [-1]},
    "axial_frequencies": {"dim": [6]},
    "MixedRotary": {"head_dim": [6]},
    "yarn": {"dim": [7], "base": [1.0]},
    "xpos_key": {"x": [floats(3, 5)]},
    "xpos_query": {"x": [floats(3, 5)]},
    "weight_to_half": {"rotary_dim": [3, 4]},
    "weight_to_interleaved": {"rotary_dim": [3, 4]},
    "LatentAttention": {"rotary_dim": [3]},
    "LatentCache": {"width": [-1]},
    "StateCache": {"past": [-1]},
    "StateCache.trim": {"n": [1]},
    "SwinBias.__call__": {
        "query_positions": [np.array([6])],
        "key_positions": [np.array([-1])],
    },
    "SwinV2Bias.__call__": {
        "query_positions": [np.array([6])],
        "key_positions": [np.array([-1])],
    },
    "TUPEBias.__call__": {
        "query_positions": [np.array([8])],
        "key_positions": [np.array([-1])],
    },
    "LearnedPositionalEncoding.__call__": {"positions": [np.array([0, 1, 5])]},
    "Decoder.__call__": {"tokens": [np.array([5])]},
}
# what depends on a machine or on other processes, or is asked for when the layer is called
UNCHECKED = {"device", "across", "MultiHeadAttention.bias", "Decoder.bias"}


def on_host(column, values):
    """An array whose values JAX can read without waiting for a device."""
    return torch.tensor(values) if column.name == "torch" else np.array(values)


def for_column(column, value):
    """An array of the column, what depends on the column, or the value itself."""
    if isinstance(value, np.ndarray):
        return column.array(value)
    return value(column) if callable(value) else value


def behind(column, name):
    """The function behind a public name, and good arguments for it."""
    kind, _, method = name.partition(".")
    if method:
        make, options = behind(column, kind)
        function = getattr(make(**options), method)
    else:
        thing = getattr(column, kind)
        function = getattr(thing, "init", thing) if inspect.isclass(thing) else thing
    good = {key: for_column(column, value) for key, value in CALLS[name].items()}
    rng = inspect.signature(function).parameters.get("rng")
    if rng is not None and rng.default is rng.empty:
        good["rng"] = column.rng()
    return function, good


def wrong_values(name, key, good):
    """Values of the right kind that a parameter must reject."""
    if key in WRONG.get(name, {}):
        return WRONG[name][key]
    if good is None:
        return OPTIONAL.get(key, [])
    if isinstance(good, np.ndarray):
        return [np.zeros((), good.dtype)]
    derived = {int: [0], float: [NAN], str: ["x"], tuple: [(-1,)]}
    return derived.get(type(good), [])


def fault(function, arguments, key, exception):
    """What is wrong with how a function rejects one of its arguments."""
    try:
        function(**arguments)
    except Exception as error:
        named = re.search(rf"(\b|_){key}\b", str(error))
        return None if isinstance(error, exception) and named else repr(error)
    return "accepted"


@pytest.fixture
def in_double():
    """PyTorch's layers have the dtype of the arrays."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize("name", CALLS)
def test_every_parameter_rejects_a_wrong_kind_and_value(column, name):
    function, good = behind(column, name)
    found = []
    for key, parameter in inspect.signature(function).parameters.items():
        if key in UNCHECKED or f"{name}.{key}" in UNCHECKED:
            continue
        plain = CALLS[name].get(key, parameter.default)
        wrong = [(object(), KIND)]
        if isinstance(plain, np.ndarray):
            wrong += [(None, KIND)]
        wrong += [(value, RANGE) for value in wrong_values(name, key, plain)]
        for value, exception in wrong:
            arguments = {**good, key: for_column(column, value)}
            found.append((key, value, fault(function, arguments, key, exception)))
    assert not [row for row in found if row[-1] is not None]


def test_every_public_function_and_layer_is_in_the_table():
    """The costs of layers are counted in the reference only, and a config has its own tests."""
    columns = set(posattn.reference.__all__) & set(posattn.jax.__all__)
    assert {name.partition(".")[0] for name in CALLS} == columns - {"rope_from_config"}


# what only the border of a column can know


def attend(column, *arrays, **options):
    return column.scaled_dot_product_attention(*arrays, **options)


def layer(column, **options):
    return column.multi_head([column.array(floats(4, 4))] * 4, 2, **options)


def test_rng_is_what_the_column_draws_from(column):
    kinds = {
        "reference": "numpy.random.Generator",
        "torch": "torch.Generator",
        "jax": "JAX key",
    }
    told = f"rng must be a {kinds[column.name]}"
    with pytest.raises(TypeError, match=rf"{re.escape(told)}.*, got float"):
        column.dropout(column.array(X), 0.5, 0.5)


def test_an_array_that_is_no_key_is_no_rng():
    with pytest.raises(TypeError, match="rng must be a JAX key, got ArrayImpl"):
        posattn.jax.dropout(jnp.ones(2), 0.5, jnp.zeros(2))
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        assert posattn.jax.dropout(jnp.ones(2), 0.5, key).shape == (2,)


def test_an_array_of_another_framework_is_named(column):
    expected = {"reference": "NumPy array", "torch": "torch.Tensor", "jax": "JAX array"}
    foreign = np.array(V) if column.name == "torch" else torch.tensor(V)
    got = {"torch": "numpy.ndarray"}.get(column.name, "torch.Tensor")
    told = f"must be a {expected[column.name]}, got {got}"
    arrays = [column.array(x) for x in (Q, K, V)]
    with pytest.raises(TypeError, match=f"value {told}"):
        attend(column, *arrays[:2], foreign)
    with pytest.raises(TypeError, match=f"bias {told}"):
        attend(column, *arrays, bias=[foreign])
    with pytest.raises(TypeError, match=f"query {told}"):
        layer(column)(foreign)


def test_numpy_arrays_are_welcome_in_jax():
    x = np.float32(floats(3, 4))
    assert np.allclose(posattn.jax.rotate(x), posattn.jax.rotate(jnp.asarray(x)))


def test_numpy_numbers_and_switches_are_welcome(column):
    assert column.numpy(column.causal_mask(np.int64(2), np.int32(3))).shape == (2, 3)
    assert column.sinusoidal_encoding(np.int8(2), 4, base=np.float32(100)).shape == (2, 4)
    arrays = [column.array(x) for x in (Q, K, V)]
    causal = [
        column.numpy(attend(column, *arrays, causal=on)) for on in (np.bool_(True), True)
    ]
    assert np.array_equal(*causal)


def test_a_length_is_pythons_own_integer_afterwards():
    assert type(contract.length_or_positions(np.uint8(3))) is int


@pytest.mark.parametrize("kind", ["KVCache", "RotaryAxes", "Window"])
def test_a_class_in_the_place_of_an_instance_is_named(column, kind):
    told = rf"mask must be an instance, made by {kind}\(...\), got the class itself"
    with pytest.raises(TypeError, match=told):
        attend(column, *[column.array(Q)] * 3, mask=getattr(column, kind))


def test_a_cache_is_a_cache_of_the_column(column):
    told = rf"cache must be a posattn\.{column.name}\.KVCache or None, got "
    with pytest.raises(TypeError, match=told + "4"):
        layer(column)(column.array(X), cache=4)
    other = column.LatentCache.init((2,), 4, 2)
    with pytest.raises(TypeError, match=told + rf"posattn\.{column.name}\.LatentCache$"):
        layer(column)(column.array(X), cache=other)


def unsigned(column, x):
    """An array of uint64, for which PyTorch lacks most operations."""
    make = {"reference": np.array, "torch": torch.tensor, "jax": jnp.array}[column.name]
    return make(x, dtype=torch.uint64 if column.name == "torch" else np.uint64)


def test_sizes_lengths_and_positions_may_be_unsigned(column):
    mask = column.causal_mask(unsigned(column, 2))
    assert column.numpy(mask).tolist() == [[True, False], [True, True]]
    mask = column.length_mask(unsigned(column, [1, 2]), 2)
    assert column.numpy(mask).tolist() == [[[True, False]], [[True, True]]]
    table = column.learned(column.array(floats(5, 4)))
    rows = table(column.array(floats(2, 4)), positions=unsigned(column, [4, 0]))
    assert rows.shape == (2, 4)


def test_complex_numbers_are_for_the_reference(column):
    make = {"reference": np.array, "torch": torch.tensor, "jax": jnp.array}[column.name]
    x = make(1j * floats(3, 4))
    if column.name == "reference":  # which differentiates by them
        assert column.rotate(x).dtype == complex
        return
    with pytest.raises(TypeError, match="x must hold real numbers, got complex128"):
        column.rotate(x)


@pytest.mark.parametrize("column", [COLUMNS[0], COLUMNS[2]], ids=str, indirect=True)
@pytest.mark.parametrize("value", [np.array("a"), np.array("2020-01-01", "M8[D]")], ids=str)
def test_texts_and_times_are_no_numbers(column, value):
    with pytest.raises(TypeError, match="x must hold numbers, got "):
        column.to_half(value[None])


@pytest.mark.parametrize(
    ("value", "exception", "text"),
    [
        (None, KIND, "offset must be an array, got NoneType"),
        (ints(2), KIND, "offset must have a floating dtype, got int64"),
        (floats(0), RANGE, "offset must not be empty, got shape (0,)"),
        (floats(2, 1), RANGE, "offset must have shape (num_heads), got (2, 1)"),
    ],
)
def test_what_replaces_a_parameter_is_named(column, value, exception, text):
    good = {"weight": column.array(floats(4, 2)), "offset": column.array(floats(2))}
    gate = column.with_parameters("ForgettingGate", good, 4, 2)
    value = for_column(column, value)
    if column.name == "torch":
        gate.offset = value
    else:
        gate = dataclasses.replace(gate, offset=value)
    with pytest.raises(exception, match=re.escape(text)):
        gate(column.array(X))


def test_arrays_of_a_cache_that_do_not_belong_together_are_named(column):
    kind = {"torch": {"dtype": torch.float64}, "jax": {"dtype": "float64"}}
    kept = column.KVCache.init((2,), 2, 4, 2, **kind.get(column.name, {}))
    wrong = dataclasses.replace(kept, value=kept.value[..., :1])
    tokens = column.array(floats(2, 2, 1, 2))
    for call in (
        lambda: wrong.next_positions(2),
        lambda: wrong.append(tokens, tokens, column.positions(np.arange(1))),
        lambda: wrong.mask(column.positions(np.arange(1))),
    ):
        with pytest.raises(ValueError, match="value must have shape"):
            call()


# what looks bad and is not: the call, the shape of its result
EMPTY = [
    (lambda c, a: c.window_mask(0, 3, 1), (0, 3)),
    (lambda c, a: c.masked_softmax(a(floats(2, 0))), (2, 0)),
    (lambda c, a: attend(c, a(Q[:, :0]), a(K), a(V)), (2, 0, 6)),
    (lambda c, a: attend(c, a(Q), a(K[:, :0]), a(V[:, :0])), (2, 3, 6)),
    (lambda c, a: attend(c, a(Q), a(K), a(V[..., :0])), (2, 3, 0)),
    (lambda c, a: layer(c)(a(X[:0])), (0, 3, 4)),
    (lambda c, a: layer(c)(a(X[:, :0]), causal=True), (2, 0, 4)),
    (lambda c, a: c.sinusoidal_encoding(0, 5), (0, 5)),
    (lambda c, a: c.randomized_positions(0, 4, rng=c.rng()), (0,)),
    (lambda c, a: c.forgetting_bias(a(floats(2, 0))), (2, 0, 0)),
    (lambda c, a: c.merge_heads(c.split_heads(a(X[:, :0]), 2)), (2, 0, 4)),
    (lambda c, a: c.weight_to_half(a(floats(0, 4).T if c.name == "torch" else floats(0, 4)), 2),
     None),
]  # fmt: skip


@pytest.mark.parametrize(("call", "shape"), EMPTY)
def test_empty_sequences_are_fine(column, call, shape):
    out = call(column, column.array)
    assert shape is None or tuple(out.shape) == shape
    assert not out.any()


def test_a_nan_spoils_only_what_may_read_it(column):
    x = floats(3, 4)
    x[1] = np.nan
    mask = column.array(np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], bool))
    out = attend(column, *[column.array(x[:, :2])] * 3, mask=mask[:1])
    assert np.array_equal(column.numpy(out)[[0, 2]], np.broadcast_to(x[0, :2], (2, 2)))


NAN_STAYS = {
    "KerpleLog": {"r1": np.ones(2), "r2": np.full(2, np.nan)},
    "KerplePower": {"r1": np.ones(2), "r2": np.full(2, np.nan)},
    "FIRE": {"c": np.array(0.1), "multiplier": np.array(np.nan), "hidden_weight": np.ones(3),
             "hidden_bias": np.ones(3), "output_weight": np.ones((3, 2)),
             "output_bias": np.ones(2)},
    "SwinV2Bias": {"hidden_weight": np.ones((2, 3)), "hidden_bias": np.full(3, np.nan),
                   "output_weight": np.ones((3, 2))},
}  # fmt: skip


@pytest.mark.parametrize("name", NAN_STAYS)
def test_a_nan_in_a_bounded_parameter_stays_one(column, name):
    options = {"height": 2, "width": 3} if name == "SwinV2Bias" else {}
    arrays = {key: column.array(value) for key, value in NAN_STAYS[name].items()}
    made = column.with_parameters(name, arrays, 2, **options)
    where = column.positions(np.array([1, 5]))
    assert np.isnan(column.numpy(made(where, where))[:, 0, 1]).all()


@pytest.mark.parametrize("beta", [5e-324, 1e308])
def test_yarn_takes_every_number_of_turns(column, beta):
    slow, fast = sorted((beta, 1.0))
    where, factor = column.yarn(
        8, factor=2.0, trained_length=6, beta_slow=slow, beta_fast=fast
    )
    assert np.isfinite(np.asarray(where)).all()
    assert np.isfinite(factor)
