"""xPos."""

import functools
import math

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import (
    BOUND,
    REFERENCE,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

# Powers up to these positions leave room for the entries: a seventh of what each dtype spans remains.
REACH = {"float64": 250_000, "float32": 30_000, "bfloat16": 30_000}
# of each entry, relative to its pair's length: float64 powers of 1e300 carry 700 roundings
FAR = {"float64": 1e-12, "float32": 1e-6, "bfloat16": 2.0**-8}

# shape of x, positions, options
CASES = {
    "by default": ((5, 6), None, {}),
    "half": ((5, 6), None, {"layout": "half"}),
    "another base": ((2, 5, 4), None, {"base": 100.0}),
    "all options": ((2, 3, 4, 6), None, {"gamma": 1.5, "scale_base": 7.0, "base": 50.0}),
    "no tokens": ((2, 0, 6), None, {}),
    "offset": ((2, 3, 6), np.array([700, 801, 900]), {}),
    "negative and fractional": ((3, 6), np.array([-2.5, 0.25, 1000.75]), {"layout": "half"}),
    "positions per example": (
        (2, 3, 2, 6), np.array([[[0, 1]], [[500, 900]]]), {"scale_base": 100.0}
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize(
    ("shape", "positions", "options"), CASES.values(), ids=CASES
)
on_both = pytest.mark.parametrize(("name", "sign"), [("xpos_query", 1), ("xpos_key", -1)])


def call(column, name, x, positions=None, **options):
    where = None if positions is None else column.positions(positions)
    return getattr(column, name)(x, where, **options)


def naive(x, sign, positions=None, *, base=10000.0, gamma=0.4, scale_base=512.0,
          layout="interleaved"):  # fmt: skip
    """Every pair by itself."""
    n, d = x.shape[-2:]
    where = np.broadcast_to(np.arange(n) if positions is None else positions, x.shape[:-1])
    out, m = x.copy(), d // 2
    for token in np.ndindex(x.shape[:-1]):
        for j in range(m):
            a, b = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + m)
            angle = where[token] * base ** (-2 * j / d)
            zeta = (j / (d / 2) + gamma) / (1 + gamma)
            pair = complex(x[(*token, a)], x[(*token, b)]) * complex(
                math.cos(angle), math.sin(angle)
            )
            pair *= zeta ** (sign * where[token] / scale_base)
            out[(*token, a)], out[(*token, b)] = pair.real, pair.imag
    return out


@on_both
@every_case
def test_each_pair_turns_and_fades(column, name, sign, shape, positions, options):
    x = draw(250, *shape)
    got = call(column, name, column.array(x), positions, **options)
    assert_close(column, got, naive(x, sign, positions, **options))


@every_case
def test_values_and_gradients_agree_with_the_reference(twin, shape, positions, options):
    def product(column, query, key):
        q = call(column, "xpos_query", query, positions, **options)
        return q * call(column, "xpos_key", key, positions, **options)

    assert_twin_agrees(twin, product, draw(251, *shape) / 4, draw(252, *shape) / 4)


def torchscale(x, downscale, offset=0):
    """What XPOS of microsoft/torchscale computes: its powers count from the middle of the text."""
    length, d = x.shape
    base = (np.arange(0, d, 2) + 0.4 * d) / (1.4 * d)
    low = -(length + offset) // 2
    scale = base ** (np.arange(low, length + offset + low) / 512)[:, None]
    angles = np.outer(
        np.arange(length + offset), 10000.0 ** -(np.arange(d // 2) / (d // 2))
    )
    scale, angles = scale[-length:], angles[-length:]
    if downscale:
        scale = 1 / scale
    pairs = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles) * scale
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


@pytest.mark.parametrize("offset", [0, 9])
def test_scores_are_those_of_torchscale(column, offset):
    query, key = draw(253, 12, 8), draw(254, 12, 8)
    theirs = torchscale(query, False, offset) @ torchscale(key, True, offset).T
    q, k = (
        column.numpy(call(column, name, column.array(x), np.arange(offset, 12 + offset)))
        for name, x in (("xpos_query", query), ("xpos_key", key))
    )
    assert error(q @ k.T, theirs) <= BOUND["float64"]


@given(
    st.integers(-1000, 1000),
    st.integers(-1000, 1000),
    st.floats(0.1, 4),
    st.floats(100, 1000),
)
def test_scores_depend_on_the_offset_alone(column, offset, position, gamma, scale_base):
    query, key = draw(255, 1, 8), draw(256, 3, 8)
    options = {"gamma": gamma, "scale_base": scale_base}

    def scores(shift):
        q, k = (
            column.numpy(call(column, name, column.array(x), where + shift, **options))
            for name, x, where in (
                ("xpos_query", query, np.array([position])),
                ("xpos_key", key, np.arange(3)),
            )
        )
        return q @ k.T

    assert error(scores(offset), scores(0)) <= 1e-10  # powers up to 1e10 cancel


@given(st.integers(0, 4000), st.floats(0.1, 4), st.floats(100, 1000))
def test_each_pair_falls_with_the_distance(column, distance, gamma, scale_base):
    options = {"gamma": gamma, "scale_base": scale_base}
    x, where = np.ones((1, 6)), (np.array([distance]), np.array([0]))
    q, k = (
        column.numpy(call(column, name, column.array(x), p, **options)).reshape(3, 2)
        for name, p in zip(("xpos_query", "xpos_key"), where, strict=True)
    )
    lengths = np.linalg.norm(q, axis=-1) * np.linalg.norm(k, axis=-1)
    zeta = (np.array([0, 1, 2]) / 3 + gamma) / (1 + gamma)
    assert np.allclose(
        lengths, 2 * zeta ** (distance / scale_base), rtol=1e-12, atol=1e-300
    )
    assert distance == 0 or (np.diff(lengths) > 0).all()


@on_both
@pytest.mark.parametrize("options", [
    {"base": 10001.0}, {"layout": "half"}, {"gamma": 0.41}, {"scale_base": 513.0},
    {"positions": np.array([0, 2])},
], ids=str)  # fmt: skip
def test_each_parameter_changes_the_output(column, name, sign, options):
    x = column.array(draw(257, 2, 4))
    changed = column.numpy(call(column, name, x, **options))
    assert np.abs(changed - column.numpy(call(column, name, x))).max() > 1e-7


def test_query_and_key_differ(column):
    x = column.array(draw(258, 3, 4))
    q, k = (column.numpy(call(column, name, x)) for name in ("xpos_query", "xpos_key"))
    rotated = column.numpy(column.rotate(x))
    assert error(q * k, rotated**2) <= BOUND["float64"]
    assert np.abs(q - k).max() > 1e-3


@on_both
def test_bounds_hold_within_reach(twin, name, sign):
    x, far = draw(259, 7, 32) / 4 + 2, REACH[twin.dtype]
    positions = np.array([far, -far, far - 1, 12345, 3, 0, 77])
    want = (
        REFERENCE.xpos_query(x, positions)
        if sign == 1
        else REFERENCE.xpos_key(x, positions)
    )
    pairs = np.hypot(want[:, ::2], want[:, 1::2]).repeat(2, axis=-1)
    function = getattr(twin, name)
    runs = [function, jax.jit(function)] if twin.name == "jax" else [function]
    for run in runs:
        got = twin.numpy(run(twin.array(x), twin.positions(positions)))
        assert np.max(np.abs(got - want) / pairs) <= FAR[twin.dtype]


def test_fractions_hold_too_under_jit(jax_single):
    x, positions = draw(260, 4, 8) + 8, np.array([20000.25, -0.5, 3.125, 8191.5], "float32")
    want = REFERENCE.xpos_key(x, positions)
    got = np.asarray(jax.jit(jax_single.xpos_key)(jax_single.array(x), positions))
    pairs = np.hypot(want[:, ::2], want[:, 1::2]).repeat(2, axis=-1)
    assert np.max(np.abs(got - want) / pairs) <= FAR["float32"]


@pytest.mark.parametrize(
    ("dtype", "reach", "beyond"), [("float16", 3900, 4600), ("float32", 35_600, 36_400)]
)
def test_beyond_its_reach_a_key_is_infinite(dtype, reach, beyond):
    from posattn import jax as jax_column
    from posattn import torch as torch_column

    x = np.ones((2, 2), dtype)
    positions = np.array([reach, beyond])
    key = torch_column.xpos_key(torch.tensor(x), torch.tensor(positions))
    assert torch.isfinite(key).all(-1).tolist() == [True, False]
    key = jax.jit(jax_column.xpos_key)(jax.numpy.array(x), positions)
    assert np.isfinite(np.asarray(key, np.float64)).all(-1).tolist() == [True, False]
    query = torch_column.xpos_query(torch.tensor(x), torch.tensor(-positions))
    assert torch.isfinite(query).all(-1).tolist() == [True, False]


DIM, HEADS = 8, 2
WEIGHTS = [draw(261 + i, DIM, DIM) / 4 for i in range(4)]


def attend(column, weights, x, **options):
    layer = column.multi_head(weights, HEADS, rotate=(column.xpos_query, column.xpos_key))
    return layer(*x, causal=True, **options)


def test_layers_agree_with_the_reference(twin):
    def run(column, x, *weights):
        positions = column.positions(np.array([0, 40, 80, 900]))
        return attend(column, weights, (x, x, x), key_positions=positions)

    assert_twin_agrees(twin, run, draw(265, 2, 4, DIM), *WEIGHTS)


@pytest.mark.slow
def test_decoding_with_cached_keys_equals_prefill(column):
    weights = [column.array(w) for w in WEIGHTS]
    x = column.array(draw(266, 2, 3, DIM))
    whole = column.numpy(attend(column, weights, (x, x, x)))
    for i in range(3):
        past = x[:, : i + 1]
        one = attend(column, weights, (x[:, i : i + 1], past, past))
        assert error(column.numpy(one)[:, 0], whole[:, i]) <= BOUND["float64"]


@pytest.mark.slow
@on_both
def test_jax_maps_over_examples(jax_single, name, sign):
    x, positions = jax_single.array(draw(267, 3, 4, 6)), np.arange(12).reshape(3, 4)
    function = getattr(jax_single, name)
    assert np.abs(jax.vmap(function)(x, positions) - function(x, positions)).max() <= 2e-6


def test_positions_have_a_slope_under_jit(jax_single):
    x = jax_single.array(draw(268, 3, 4))
    positions = np.array([5.0, -3.25, 900.5], "float32")

    def total(p):
        return jax_single.xpos_query(x, p, scale_base=100.0).sum(-1)

    _, slope = jax.jvp(jax.jit(total), [positions], [np.ones(3, "float32")])
    ahead, behind = (
        REFERENCE.xpos_query(
            np.asarray(x, float), h + positions.astype(float), scale_base=100.0
        ).sum(-1)
        for h in (1e-4, -1e-4)
    )
    assert error(slope, (ahead - behind) / 2e-4) <= 1e-5  # of a central difference


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_both_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    x, positions = torch.randn(2, 3, 4, 6), torch.tensor([[3, 4, 5, 6]])
    for function in (torch_column.xpos_query, torch_column.xpos_key):
        run = functools.partial(function, layout="half")
        compiled = torch.compile(run, fullgraph=True, backend=backend)
        assert torch.allclose(compiled(x, positions), run(x, positions), atol=1e-6)
