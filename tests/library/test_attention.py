"""Scaled dot-product attention."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from posattn.torch.attention.random import _GAMMA, _mix, uniform
from tests.conftest import (
    BOUND,
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

WIDTH, VALUE_WIDTH = 4, 3


def mask(seed, *shape):
    """A drawn mask in which the first row may attend to nothing."""
    drawn = np.random.default_rng(seed).random(shape) < 0.6
    drawn[..., 0, :] = False
    return drawn


def nearness(query_positions, key_positions):
    """A bias that is a function of positions, and not symmetric, in any column."""
    offsets = key_positions - query_positions[:, None]
    return -0.25 * abs(offsets) + 0.125 * offsets


# batch axes (of keys, if other than those of queries), n_q, n_k, options
CASES = {
    "no batch axis": ((), 4, 5, {}),
    "causal": ((2,), 4, 4, {"causal": True}),
    "causal, scale below zero": ((2,), 4, 4, {"causal": True, "scale": -0.75}),
    "causal, fewer queries": ((2,), 3, 5, {"causal": True}),
    "causal, more queries": ((2,), 5, 3, {"causal": True}),
    "no keys": ((2,), 4, 0, {"causal": True}),
    "a mask with an empty row": ((2, 3), 4, 5, {"mask": mask(5, 2, 1, 4, 5)}),
    "a bias for all queries": ((2,), 4, 5, {"bias": draw(8, 2, 1, 5)}),
    "a bias that hides": ((2,), 4, 5, {"bias": np.where(mask(9, 4, 5), 0.5, -np.inf)}),
    "a bias of positions": ((2,), 3, 5, {"bias": nearness, "causal": True}),
    "grouped heads": (((2, 4), (2, 2)), 4, 5, {}),
    "soft cap": ((2,), 4, 5, {"soft_cap": 0.5}),
    "all": (
        ((2, 4), (2, 2)), 4, 5,
        {"mask": mask(10, 4, 4, 5), "causal": True, "bias": draw(11, 2, 1, 4, 5), "scale": 0.3}
        | {"soft_cap": 0.7},
    ),
}  # fmt: skip


def inputs(batch, n_q, n_k):
    grouped = len(batch) > 0 and isinstance(batch[0], tuple)
    of_query, of_key = batch if grouped else (batch, batch)
    return (
        draw(20, *of_query, n_q, WIDTH),
        draw(21, *of_key, n_k, WIDTH),
        draw(22, *of_key, n_k, VALUE_WIDTH),
    )


def given_to(column, options):
    return {
        name: column.array(x) if isinstance(x, np.ndarray) else x
        for name, x in options.items()
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_is_its_formula(case):
    batch, n_q, n_k, options = case
    query, key, value = inputs(batch, n_q, n_k)
    weights = REFERENCE.attention_weights(query, key, **options)
    out = REFERENCE.scaled_dot_product_attention(query, key, value, **options)
    if query.shape[:-2] != key.shape[:-2]:
        key, value = (np.repeat(x, 2, axis=-3) for x in (key, value))
    scores = np.einsum("...id,...jd->...ij", query, key)
    scores = scores * options.get("scale", WIDTH**-0.5)
    if cap := options.get("soft_cap"):
        scores = cap * np.tanh(scores / cap)
    bias = options.get("bias", 0.0)
    scores += (
        nearness(np.arange(n_k - n_q, n_k), np.arange(n_k)) if callable(bias) else bias
    )
    seen = np.broadcast_to(options.get("mask", True), scores.shape)
    if options.get("causal"):
        seen = seen & np.tri(n_q, n_k, n_k - n_q, dtype=bool)
    exp = np.where(seen, np.exp(scores), 0)
    total = exp.sum(-1, keepdims=True)
    want = np.divide(exp, total, out=np.zeros_like(exp), where=total > 0)
    assert error(weights, want) <= BOUND["float64"]
    want = np.einsum("...ij,...jd->...id", want, value)
    assert error(out, want) <= BOUND["float64"]


ALL = [(twin, name) for name in CASES for twin in TWINS[:2]]
ALL += [(twin, "all") for twin in TWINS[2:]]


@pytest.mark.parametrize(("twin", "name"), ALL, ids=str)
def test_attention_and_its_gradients_agree(twin, name):
    *sizes, options = CASES[name]
    learned = [options["bias"]] if isinstance(options.get("bias"), np.ndarray) else []

    def attention(column, query, key, value, *bias):
        given = given_to(column, options)
        given |= {"bias": bias[0]} if bias else {}
        return column.scaled_dot_product_attention(query, key, value, **given)

    with twin.mode():
        assert_twin_agrees(twin, attention, *inputs(*sizes), *learned)


@pytest.mark.parametrize("twin", TWINS[:2], ids=str)
def test_weights_and_their_gradients_agree(twin):
    *sizes, options = CASES["all"]

    def weights(column, query, key):
        return column.attention_weights(query, key, **given_to(column, options))

    with twin.mode():
        assert_twin_agrees(twin, weights, *inputs(*sizes)[:2])


@pytest.mark.parametrize("twin", TWINS[:2], ids=str)
def test_gradients_go_through_what_dropout_keeps(twin):
    query, key, value = inputs((2,), 4, 5)
    options = {"causal": True, "dropout_rate": 0.25}

    def thinned(query, key, value):
        return twin.scaled_dot_product_attention(
            query, key, value, rng=twin.rng(), **options
        )

    with twin.mode():
        eye = np.stack([np.eye(5)] * 2)
        kept = twin.numpy(thinned(*map(twin.array, (query, key, eye)))) != 0
        assert (kept[0] != kept[1]).any()  # examples drop weights of their own
        assert 0 < (np.tri(4, 5, 1) - kept).sum() < 16

        def attention(column, query, key, value):
            if column is twin:
                return thinned(query, key, value)
            weights = REFERENCE.attention_weights(query, key, causal=True)
            return weights * kept / 0.75 @ value

        assert_twin_agrees(twin, attention, query, key, value)


@pytest.mark.parametrize("twin", TWINS[:2], ids=lambda twin: twin.name)
def test_softmax_of_a_long_row_in_float16_is_rounded_once(twin):
    twin = replace(twin, dtype="float16")
    scores = np.zeros((1, 2**17))  # the sum of their exponentials is beyond float16
    scores[0, 0] = 11
    weights = twin.numpy(twin.masked_softmax(twin.array(scores)))
    want = np.exp(scores) / np.exp(scores).sum()
    unit = 2.0**-12  # of numbers from 1/4 to 1/2
    assert np.abs(weights - want).max() < 0.51 * unit


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_hidden_keys_may_as_well_be_absent(column, poison):
    query, key, value = inputs((2,), 4, 5)
    hidden = np.array([False, True, False, False, True])
    seen = column.array(np.broadcast_to(~hidden, (4, 5)))

    def attention(query, key, value, **options):
        return column.scaled_dot_product_attention(query, key, value, mask=seen, **options)

    want = REFERENCE.scaled_dot_product_attention(query, key[:, ~hidden], value[:, ~hidden])
    key[:, hidden], value[:, hidden] = poison, -poison
    arrays = [column.array(x) for x in (query, key, value)]
    assert_close(column, attention(*arrays), want)
    dropped = attention(*arrays, dropout_rate=0.5, rng=column.rng())
    assert np.isfinite(column.numpy(dropped)).all()
    if column is not REFERENCE:
        _, gradients = column.value_and_gradients(attention, (query, key, value))
        assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_without_rng_nothing_is_dropped(column):
    arrays = [column.array(x) for x in inputs((2,), 4, 5)]
    want = column.numpy(column.scaled_dot_product_attention(*arrays))
    for options in ({"dropout_rate": 0.5}, {"dropout_rate": 0.0, "rng": column.rng()}):
        kept = column.scaled_dot_product_attention(*arrays, **options)
        assert_close(column, kept, want)


def test_dropout_repeats_with_its_rng(column):
    arrays = [column.array(x) for x in inputs((2,), 4, 5)]
    options = {"causal": True, "dropout_rate": 0.5}
    first, second, other = (
        column.numpy(
            column.scaled_dot_product_attention(*arrays, rng=column.rng(seed), **options)
        )
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_dropout_keeps_the_mean(column):
    ones = column.array(np.ones(40_000))
    dropped = column.numpy(column.dropout(ones, 0.2, column.rng()))
    assert error(np.unique(dropped), np.array([0, 1.25])) <= BOUND["float64"]
    assert abs((dropped > 0).mean() - 0.8) < 5 * (0.2 * 0.8 / 40_000) ** 0.5


def test_neighboring_seeds_draw_nothing_alike(column):
    """Nor does one draw what the other draws a few places further on."""
    ones, rate = column.array(np.ones(512)), 0.5
    seeds = (7, 8) if column.name == "torch" else map(column.rng, (7, 8))
    one, other = (
        np.sign(column.numpy(column.dropout(ones, rate, seed)) - 0.5) for seed in seeds
    )
    assert abs(np.correlate(one, other, "full")).max() < 512 / 4


def test_each_layer_and_call_drops_weights_of_its_own(column):
    drawn = []

    def spy(query, key, value, *, rng, **options):
        ones = column.array(np.ones(64))
        drawn.append(tuple(column.numpy(column.dropout(ones, 0.5, rng))))
        return column.scaled_dot_product_attention(query, key, value, **options)

    layer = {"layer_options": {"dropout_rate": 0.5, "attention": spy}}
    rngs = [column.rng(seed) for seed in range(3)]
    if column.name == "torch":
        decoder = column.Decoder(9, 4, 3, 2, **layer).eval()
        rngs = [0, 1, 2, *[column.rng()] * 2]  # a generator goes on from call to call
    else:
        decoder = column.Decoder.init(column.rng(), 9, 4, 3, 2, **layer)
    tokens = {"torch": torch.tensor}.get(column.name, column.array)(np.arange(5))
    for rng in rngs:
        decoder(tokens, rng=rng)
    assert len(set(drawn)) == len(drawn) == 3 * len(rngs)


def test_torch_draws_what_splitmix64_draws():
    """The first five numbers from the seed 1234567, as its test vectors publish them."""
    drawn = _mix(1234567 + torch.arange(1, 6) * _GAMMA)
    assert [number % 2**64 for number in drawn.tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    whole = uniform(7, (2, 3, 4), None)
    assert torch.equal(uniform(7, (2, 2, 2), None, (1, 2, 3, 4)), whole[:, 1:, 2:])


def test_torch_leaves_the_global_generator_alone(torch_column):
    before = torch.get_rng_state()
    x = torch_column.array(draw(1, 2, 4, 4))
    layer = torch_column.MultiHeadAttention(
        4, 2, dropout_rate=0.5, dtype=torch.float64, rng=torch_column.rng()
    )
    layer(x, rng=torch_column.rng())
    torch_column.LearnedPositionalEncoding(4, 4, rng=torch_column.rng())
    assert torch.equal(torch.get_rng_state(), before)
