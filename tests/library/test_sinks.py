"""Sinks and the soft cap: by hand, and on every path."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

import posattn.torch as ours
from posattn.jax.attention import tiled as jax_tiled
from posattn.torch.attention import query_tiles, tiled
from tests.conftest import REFERENCE, TWINS, assert_close, assert_twin_agrees, draw, error

HEADS, KV_HEADS, WIDTH = 4, 2, 4
SINKS = np.array([-1.5, 0.25, 3.0, -np.inf])  # one for each head of queries


@pytest.fixture
def small(monkeypatch):
    """Tiles so small that short sequences have several."""
    for module, name, size in [
        (tiled, "SMALL", 0),
        (query_tiles, "ROWS", 3),
        (jax_tiled, "SMALL", 0),
        (jax_tiled, "SIDE", 16),
        (jax_tiled, "TILE", 2**9),
    ]:
        monkeypatch.setattr(module, name, size)


def inputs(n_q, n_k, batch=(2,)):
    return (
        draw(1, *batch, HEADS, n_q, WIDTH),
        draw(2, *batch, KV_HEADS, n_k, WIDTH),
        draw(3, *batch, KV_HEADS, n_k, WIDTH),
    )


def mask_of(n_q, n_k):
    """Different in each head; the first query sees nothing, and nobody the last key but one."""
    mask = np.random.default_rng(4).random((2, HEADS, n_q, n_k)) < 0.7
    mask[..., 0, :] = False
    mask[..., n_k - 2] = False
    return mask


# sizes and options; sinks unless they are None
CASES = {
    "causal": ((5, 5), {"causal": True}),
    "decoding": ((1, 6), {"causal": True, "soft_cap": 1.5}),
    "no sinks": ((6, 4), {"causal": True, "soft_cap": 1.5, "sinks": None}),
    "no keys": ((3, 0), {}),
    "a mask": ((5, 5), {"mask": mask_of(5, 5), "soft_cap": 1.5}),
    "no scale": ((5, 5), {"scale": 0.0, "causal": True}),
    "a scale below zero": ((5, 5), {"scale": -0.3, "causal": True}),
    "a large scale": ((5, 5), {"scale": 1.75}),
    "Shaw": ((5, 5), {"bias": "Shaw"}),
}
LONG = {  # of more tiles than one
    "causal": ((20, 20), {"causal": True, "bias": "ALiBi"}),
    "a mask": ((18, 20), {"mask": mask_of(18, 20), "causal": True, "soft_cap": 1.5}),
    "a window": ((20, 20), {"window": 3, "causal": True}),
    "Shaw": ((20, 20), {"bias": "Shaw"}),
}


def attention_of(case, name="scaled_dot_product_attention"):
    """Attention as a function of a column and arrays, the last of them sinks."""
    sizes, options = case

    def attention(column, query, key, value, key_table, value_table, sinks):
        given = {"sinks": sinks} | options
        if "mask" in given:
            given["mask"] = column.array(given["mask"])
        if "window" in given:
            given["mask"] = column.Window(given.pop("window"))
        tables = {"key_table": key_table, "value_table": value_table}
        given["bias"] = {
            None: lambda: None,
            "ALiBi": lambda: column.ALiBi(HEADS),
            "Shaw": lambda: column.with_parameters("ShawRelative", tables, 2, WIDTH),
        }[given.get("bias")]()
        heads = (query, key, value)[: 3 if name.startswith("scaled") else 2]
        return getattr(column, name)(*heads, **given)

    return attention, (*inputs(*sizes), draw(5, 5, WIDTH), draw(6, 5, WIDTH), SINKS)


@pytest.fixture(params=TWINS[:2], ids=lambda column: column.name)
def exact(request):
    """PyTorch and JAX in float64, whose gradients can be told from wrong ones."""
    with request.param.mode():
        yield request.param


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_all_at_once_agrees_with_the_reference(exact, case):
    attention, arrays = attention_of(case)
    assert_twin_agrees(exact, attention, *arrays)


@pytest.mark.parametrize("case", LONG.values(), ids=LONG)
def test_tiles_agree_with_the_reference(exact, small, case):
    attention, arrays = attention_of(case)
    assert_twin_agrees(exact, attention, *arrays)


def test_weights_agree_with_the_reference(exact):
    attention, arrays = attention_of(CASES["a mask"], "attention_weights")
    assert_twin_agrees(exact, attention, *arrays)


@pytest.mark.parametrize("case", ["causal", "a mask"])
def test_every_dtype_agrees_with_the_reference(twin, case):
    attention, arrays = attention_of(CASES[case])
    got = attention(twin, *map(twin.array, arrays))
    assert_close(twin, got, attention(REFERENCE, *arrays))


def test_a_small_case_by_hand(column):
    """Scores 0 and 4 with a cap of 2, and a sink of 1 in one head and none in the other."""
    query, key = column.array([[[2.0]], [[2.0]]]), column.array([[[0.0], [2.0]]] * 2)
    sinks = column.array(np.array([1.0, -np.inf]))
    got = column.attention_weights(query, key, scale=1.0, sinks=sinks, soft_cap=2.0)
    capped = 2 * math.tanh(4 / 2)
    with_sink, without = (
        [e / total for e in (1, math.exp(capped))]
        for total in (1 + math.exp(capped) + math.e, 1 + math.exp(capped))
    )
    assert_close(column, got, np.array([[with_sink], [without]]))


def test_a_sink_is_one_more_key_without_a_value(column):
    """Of queries without an axis of heads the sinks are one number."""
    query, key, value = (draw(seed, n, WIDTH) for seed, n in ((1, 3), (2, 5), (3, 5)))
    out = column.scaled_dot_product_attention(
        *map(column.array, (query, key, value)), sinks=column.array(np.array(0.75))
    )
    scores = np.concatenate([query @ key.T / 2, np.full((3, 1), 0.75)], axis=1)
    exp = np.exp(scores)
    want = exp[:, :-1] @ value / exp.sum(axis=1, keepdims=True)
    assert_close(column, out, want)


def test_a_sink_holds_more_digits_than_half_precision(unchecked):
    """Of a sink of one head in float32, queries in bfloat16 lose nothing."""
    query, key = torch.zeros(2, 1, 1, 128).bfloat16(), torch.zeros(2, 1, 1, 128).bfloat16()
    sinks = torch.tensor([5.03])
    out = ours.scaled_dot_product_attention(query, key, torch.ones_like(key), sinks=sinks)
    assert (out.float() * (1 + math.exp(5.03)) - 1).abs().max() < 2**-8


@pytest.mark.parametrize("tiles", [False, True])
def test_nothing_comes_of_what_is_hidden(exact, request, tiles):
    """A query that may attend to nothing gives 0, and NaN in padding reaches nothing."""
    if tiles:
        request.getfixturevalue("small")
    query, key, value = inputs(18, 18)
    key[..., 16, :] = value[..., 16, :] = np.nan

    def attention(query, key, value, sinks):
        options = {"mask": exact.array(mask_of(18, 18)), "sinks": sinks}
        return exact.scaled_dot_product_attention(query, key, value, **options)

    out, slopes = exact.value_and_gradients(attention, (query, key, value, SINKS))
    assert not out[..., 0, :].any()
    assert not slopes[0][..., 0, :].any()
    assert all(np.isfinite(x).all() for x in (out, *slopes))
    assert slopes[3][:3].all()


def test_dropout_thins_what_the_sink_leaves(column):
    query, key = map(column.array, inputs(4, 5)[:2])
    sinks = column.array(SINKS)
    eye = column.array(np.broadcast_to(np.eye(5), (2, KV_HEADS, 5, 5)))
    out = column.scaled_dot_product_attention(
        query, key, eye, sinks=sinks, dropout_rate=0.5, rng=column.rng()
    )
    out = column.numpy(out)
    weights = column.numpy(column.attention_weights(query, key, sinks=sinks))
    assert 0 < (out == 0).sum() < out.size
    assert error(out, np.where(out == 0, 0, weights * 2)) <= 1e-12


class _Shapes(torch.overrides.TorchFunctionMode):
    """The largest array that any function makes, and how often the fused kernel ran."""

    largest, fused = 0, 0

    def __torch_function__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        if isinstance(made, torch.Tensor):
            self.largest = max(self.largest, made.numel())
        self.fused += function is functional.scaled_dot_product_attention
        return made


@pytest.mark.parametrize("soft_cap", [None, 1.5])
def test_long_sequences_hold_no_array_of_pairs(monkeypatch, unchecked, soft_cap):
    monkeypatch.setattr(query_tiles, "FEW", 2**14)
    monkeypatch.setattr(tiled, "SMALL", 0)
    arrays = [torch.tensor(x).float().requires_grad_() for x in inputs(400, 400, (1,))]
    options = {"causal": True, "soft_cap": soft_cap, "sinks": torch.tensor(SINKS).float()}
    with _Shapes() as shapes:
        ours.scaled_dot_product_attention(*arrays, **options)
    assert shapes.largest < HEADS * 400**2 / 16
    assert (shapes.fused > 0) == (soft_cap is None)


def test_a_huge_score_is_capped_and_a_huge_sink_takes_all(column):
    query = column.array(np.full((1, 1, 1), 1e30))
    one = column.array(np.ones((1, 1, 1)))
    capped = column.attention_weights(
        query, one, soft_cap=2.0, sinks=column.array(np.array([0.0]))
    )
    assert_close(column, capped, np.full((1, 1, 1), 1 / (1 + math.exp(-2))))
    gone = column.attention_weights(one, one, sinks=column.array(np.array([1e30])))
    assert_close(column, gone, np.zeros((1, 1, 1)))
