"""Sinks and the soft cap: by hand, on every path, and in what compilers and transformations make of them."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional

import posattn.jax as theirs
import posattn.torch as ours
from posattn.jax.attention import tiled as jax_tiled
from posattn.torch.attention import tiled
from tests.conftest import (
    BOUND,
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

HEADS, KV_HEADS, WIDTH = 4, 2, 4
SINKS = np.array([-1.5, 0.25, 3.0, 0.0])  # one for each head of queries


@pytest.fixture
def small(monkeypatch):
    """Tiles so small that short sequences have several."""
    for module, name, size in [
        (tiled, "SMALL", 0),
        (blocks, "ROWS", 3),
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
    mask[..., max(n_k - 2, 0) : n_k - 1] = False
    return mask


def by_distance(column, *_):
    return column.ALiBi(HEADS)


def of_content(column, key_table, value_table):
    named = {"key_table": key_table, "value_table": value_table}
    return column.with_parameters("ShawRelative", named, 2, WIDTH)


# sizes, a bias and its parameters, options; arrays among them are handed over as arrays of the column
CASES = {
    "plain": ((5, 5), None, (), {}),
    "causal": ((5, 5), None, (), {"causal": True}),
    "decoding": ((1, 6), None, (), {"causal": True}),
    "more queries": ((6, 4), None, (), {"causal": True}),
    "no keys": ((3, 0), None, (), {}),
    "a mask": ((5, 5), None, (), {"mask": mask_of(5, 5)}),
    "a mask, causal": ((4, 7), None, (), {"mask": mask_of(4, 7), "causal": True}),
    "a window": ((7, 7), None, (), {"window": 3, "causal": True}),
    "no scale": ((5, 5), None, (), {"scale": 0.0}),
    "no scale, causal": ((5, 5), None, (), {"scale": 0.0, "causal": True}),
    "a large scale": ((5, 5), None, (), {"scale": 1.75}),
    "another scale": ((5, 5), None, (), {"scale": -0.3, "causal": True}),
    "ALiBi": ((7, 7), by_distance, (), {"causal": True}),
    "Shaw": ((5, 5), of_content, (draw(5, 5, WIDTH), draw(6, 5, WIDTH)), {}),
    "a learned array": ((5, 6), lambda column, b: b, (draw(7, HEADS, 5, 6),), {}),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_cap = pytest.mark.parametrize("soft_cap", [None, 1.5], ids=["no cap", "cap"])
every_sink = pytest.mark.parametrize("with_sinks", [True, False], ids=["sinks", "no sinks"])


def attention_of(case, soft_cap, with_sinks, name="scaled_dot_product_attention"):
    """Attention as a function of a column and arrays, the last of them sinks."""
    sizes, build, parameters, options = case

    def attention(column, *arrays):
        *arrays, sinks = arrays
        heads = 3 if name.startswith("scaled") else 2
        given = {
            option: column.array(x) if isinstance(x, np.ndarray) else x
            for option, x in options.items()
        }
        if "window" in given:
            given["mask"] = column.Window(given.pop("window"))
        given["bias"] = build and build(column, *arrays[3:])
        given |= {"sinks": sinks} if with_sinks else {}
        return getattr(column, name)(*arrays[:heads], soft_cap=soft_cap, **given)

    return attention, (*inputs(*sizes), *parameters, SINKS)


@pytest.fixture(params=TWINS[:2], ids=lambda column: column.name)
def exact(request):
    """PyTorch and JAX in float64, whose gradients can be told from wrong ones."""
    with request.param.mode():
        yield request.param


@every_case
@every_cap
@every_sink
def test_all_at_once_agrees_with_the_reference(exact, case, soft_cap, with_sinks):
    attention, arrays = attention_of(case, soft_cap, with_sinks)
    assert_twin_agrees(exact, attention, *arrays)


@every_case
@every_cap
@every_sink
def test_tiles_agree_with_the_reference(exact, small, case, soft_cap, with_sinks):
    attention, arrays = attention_of(case, soft_cap, with_sinks)
    assert_twin_agrees(exact, attention, *arrays)


@pytest.mark.parametrize("case", ["causal", "a mask", "Shaw"])
@every_cap
def test_weights_agree_with_the_reference(exact, case, soft_cap):
    attention, arrays = attention_of(CASES[case], soft_cap, True, "attention_weights")
    assert_twin_agrees(exact, attention, *arrays)


@every_case
@every_cap
def test_every_dtype_agrees_with_the_reference(twin, case, soft_cap):
    attention, arrays = attention_of(case, soft_cap, True)
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


def test_a_sink_of_minus_infinity_is_no_sink(twin, small):
    arrays = inputs(5, 5)
    nothing = np.full(HEADS, -np.inf)

    def attention(query, key, value, sinks=None):
        return twin.scaled_dot_product_attention(
            query, key, value, causal=True, sinks=sinks
        )

    want, want_slopes = twin.value_and_gradients(attention, arrays)
    got, slopes = twin.value_and_gradients(attention, (*arrays, nothing))
    assert error(got, want) <= BOUND[twin.dtype]
    assert not slopes[3].any()
    for one, other in zip(slopes, want_slopes, strict=False):
        assert error(one, other) <= 2 * BOUND[twin.dtype]


def test_a_sink_holds_more_digits_than_half_precision(unchecked):
    """Of a sink of one head in float32, queries in bfloat16 lose nothing."""
    query, key = torch.zeros(2, 1, 1, 128).bfloat16(), torch.zeros(2, 1, 1, 128).bfloat16()
    sinks = torch.tensor([5.03])
    out = ours.scaled_dot_product_attention(query, key, torch.ones_like(key), sinks=sinks)
    assert (out.float() * (1 + math.exp(5.03)) - 1).abs().max() < 2**-8


@every_cap
def test_a_step_of_decoding_is_a_row_of_the_whole(column, soft_cap):
    query, key, value = map(column.array, inputs(6, 6))
    options = {"causal": True, "sinks": column.array(SINKS), "soft_cap": soft_cap}
    whole = column.scaled_dot_product_attention(query, key, value, **options)
    last = column.scaled_dot_product_attention(query[..., -1:, :], key, value, **options)
    assert_close(column, last, column.numpy(whole)[..., -1:, :])


@pytest.mark.parametrize("tiles", [False, True])
@every_cap
def test_nothing_comes_of_what_is_hidden(twin, request, tiles, soft_cap):
    """A query that may attend to nothing gives 0, and NaN in padding reaches nothing."""
    if tiles:
        request.getfixturevalue("small")
    query, key, value = inputs(6, 6)
    key[..., 4, :] = value[..., 4, :] = np.nan
    mask = mask_of(6, 6)

    def attention(query, key, value, sinks):
        options = {"mask": twin.array(mask), "sinks": sinks, "soft_cap": soft_cap}
        return twin.scaled_dot_product_attention(query, key, value, **options)

    out, slopes = twin.value_and_gradients(attention, (query, key, value, SINKS))
    assert np.isfinite(out).all()
    assert not out[..., 0, :].any()
    assert not slopes[0][..., 0, :].any()
    assert all(np.isfinite(x).all() for x in slopes)
    assert slopes[3].any()


def test_dropout_thins_what_the_sink_leaves(column):
    query, key = map(column.array, inputs(4, 5)[:2])
    sinks = column.array(SINKS)
    weights = column.attention_weights(query, key, sinks=sinks)
    ones = column.array(np.ones((2, KV_HEADS, 5, WIDTH)))
    out = column.scaled_dot_product_attention(
        query, key, ones, sinks=sinks, dropout_rate=0.5, rng=column.rng()
    )
    kept = column.numpy(out)[..., 0] / 2  # each kept weight is twice as large
    assert (kept <= column.numpy(weights).sum(-1) + 1e-12).all()
    assert not np.allclose(2 * kept, column.numpy(weights).sum(-1))


class _Shapes(torch.overrides.TorchFunctionMode):
    """The largest array that any function makes, and how often the fused kernel ran."""

    largest, fused = 0, 0

    def __torch_function__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        if isinstance(made, torch.Tensor):
            self.largest = max(self.largest, made.numel())
        self.fused += function is functional.scaled_dot_product_attention
        return made


@pytest.mark.parametrize("mask", [None, ours.Window(64)])
@every_cap
def test_long_sequences_agree_with_the_whole_and_hold_no_array_of_pairs(
    monkeypatch, unchecked, mask, soft_cap
):
    monkeypatch.setattr(blocks, "FEW", 2**16)
    n, found = 1100, []
    for size in (0, 2**30):
        monkeypatch.setattr(tiled, "SMALL", size)
        arrays = [torch.tensor(x).float().requires_grad_() for x in inputs(n, n, (1,))]
        sinks = torch.tensor(SINKS).float().requires_grad_()
        options = {"mask": mask, "causal": True, "soft_cap": soft_cap, "sinks": sinks}
        with _Shapes() as shapes:
            out = ours.scaled_dot_product_attention(*arrays, **options)
        if not size:
            assert shapes.largest < 2**18
            assert (shapes.fused > 0) == (soft_cap is None)
        slopes = torch.autograd.grad((out**2).sum(), [*arrays, sinks])
        found.append([out, *slopes])
    for got, want in zip(*found, strict=True):
        assert error(got.detach().numpy(), want.detach().numpy()) < 2e-5


@pytest.mark.slow
@every_cap
def test_torch_compiles_and_maps(unchecked, small, soft_cap):
    torch.compiler.reset()
    arrays = [torch.tensor(x).float() for x in (*inputs(7, 7), np.stack([SINKS, -SINKS]))]

    def attend(query, key, value, sinks):
        options = {"causal": True, "sinks": sinks, "soft_cap": soft_cap}
        return ours.scaled_dot_product_attention(query, key, value, **options)

    want = [attend(*(x[i] for x in arrays)) for i in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # PyTorch maps over its kernel one by one, and says so
        got = torch.func.vmap(attend)(*arrays)
    assert torch.allclose(got, torch.stack(want), atol=1e-5)
    leaves = [x[0].requires_grad_() for x in arrays]
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    slopes = [
        torch.autograd.grad(f(*leaves).square().sum(), leaves) for f in (attend, compiled)
    ]
    for one, other in zip(*slopes, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("tiles", [False, True])
@every_cap
def test_jax_compiles_maps_and_differentiates(request, unchecked, tiles, soft_cap):
    if tiles:
        request.getfixturevalue("small")
    arrays = [jnp.asarray(x, "float32") for x in (*inputs(20, 20), [SINKS, -SINKS])]

    def attend(query, key, value, sinks):
        options = {"causal": True, "sinks": sinks, "soft_cap": soft_cap}
        return theirs.scaled_dot_product_attention(query, key, value, **options)

    def loss(*arrays):
        return jnp.sum(attend(*arrays) ** 2)

    every = (0, 1, 2, 3)
    got = jax.jit(jax.vmap(jax.value_and_grad(loss, every)))(*arrays)
    for i in (0, 1):
        want = jax.value_and_grad(loss, every)(*(x[i] for x in arrays))
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert error(np.asarray(one[i]), np.asarray(other)) < 1e-5


def test_a_huge_score_is_capped_and_a_huge_sink_takes_all(column):
    query = column.array(np.full((1, 1, 1), 1e30))
    one = column.array(np.ones((1, 1, 1)))
    capped = column.attention_weights(
        query, one, soft_cap=2.0, sinks=column.array(np.array([0.0]))
    )
    assert_close(column, capped, np.full((1, 1, 1), 1 / (1 + math.exp(-2))))
    gone = column.attention_weights(one, one, sinks=column.array(np.array([1e30])))
    assert_close(column, gone, np.zeros((1, 1, 1)))


def test_the_derivative_of_a_sink_by_its_formula():
    """It is minus the weight of the sink times the output, as for a key whose value is zero."""
    attention, arrays = attention_of(CASES["causal"], None, True)
    out = attention(REFERENCE, *arrays)
    _, (*_, slope) = TWINS[0].value_and_gradients(
        lambda *xs: attention(TWINS[0], *xs), arrays
    )
    attention, _ = attention_of(CASES["causal"], None, True, "attention_weights")
    sunk = 1 - attention(REFERENCE, *arrays).sum(-1, keepdims=True)
    want = -(sunk * out * draw(1, *out.shape)).sum((0, 2, 3))
    assert error(slope, want) < 1e-12


@pytest.mark.parametrize("option", [{"sinks": None}, {"soft_cap": 2.0}])
def test_a_ring_refuses_what_it_does_not_compute(column, option):
    query, key, value = map(column.array, inputs(4, 4))
    (name,) = option
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        column.ring_attention(query, key, value, across=None, **option)
