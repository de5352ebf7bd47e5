"""xPos."""

import jax
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn import torch as torch_column
from tests.conftest import (
    REFERENCE,
    assert_close,
    assert_twin_agrees,
    draw,
)

# Powers up to these positions leave room for the entries: a seventh of what each dtype spans remains.
REACH = {"float64": 250_000, "float32": 30_000, "bfloat16": 30_000}
# of each entry, relative to its pair's length: float64 powers of 1e300 carry 700 roundings
FAR = {"float64": 1e-12, "float32": 1e-6, "bfloat16": 2.0**-8}

PLACES = np.array([[[0, 1.5]], [[-500, 900]]])
OPTIONS = {"gamma": 1.5, "scale_base": 100.0, "base": 50.0}
on_both = pytest.mark.parametrize(("name", "sign"), [("xpos_query", 1), ("xpos_key", -1)])


def naive(x, sign, where, *, base=10000.0, gamma=0.4, scale_base=512.0,
          layout="interleaved"):  # fmt: skip
    """Pairs as complex numbers."""
    d = x.shape[-1]
    j = np.arange(d // 2)
    a = 2 * j if layout == "interleaved" else j
    b = a + 1 if layout == "interleaved" else a + d // 2
    angles = where[..., None] * base ** (-2 * j / d)
    zeta = (2 * j / d + gamma) / (1 + gamma)
    faded = zeta ** (sign * where[..., None] / scale_base)
    pairs = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles) * faded
    out = np.zeros_like(x)
    out[..., a], out[..., b] = pairs.real, pairs.imag
    return out


@on_both
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_each_pair_rotates_and_fades(name, sign, layout):
    x = draw(250, 2, 3, 2, 6)
    for options in ({}, OPTIONS):
        got = getattr(REFERENCE, name)(x, PLACES, layout=layout, **options)
        assert_close(REFERENCE, got, naive(x, sign, PLACES, layout=layout, **options))


def test_values_and_gradients_agree_with_the_reference(twin):
    def product(column, query, key):
        where = column.positions(PLACES)
        q = column.xpos_query(query, where, **OPTIONS)
        return q * column.xpos_key(key, where, **OPTIONS)

    assert_twin_agrees(twin, product, *(draw(i, 2, 3, 2, 6) / 4 for i in (251, 252)))


@on_both
def test_bounds_hold_within_reach(twin, name, sign):
    x, far = draw(259, 7, 32) / 4 + 2, REACH[twin.dtype]
    positions = np.array([far, -far, far - 1, 12345, 3, 0, 77])
    want = getattr(REFERENCE, name)(x, positions)
    pairs = np.hypot(want[:, ::2], want[:, 1::2]).repeat(2, axis=-1)
    run = getattr(twin, name)
    run = jax.jit(run) if twin.name == "jax" else run
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
    x = np.ones((2, 2), dtype)
    positions = np.array([reach, beyond])
    key = torch_column.xpos_key(torch.tensor(x), torch.tensor(positions))
    assert torch.isfinite(key).all(-1).tolist() == [True, False]
    key = jax.jit(jax_column.xpos_key)(jax.numpy.array(x), positions)
    assert np.isfinite(np.asarray(key, np.float64)).all(-1).tolist() == [True, False]
    query = torch_column.xpos_query(torch.tensor(x), torch.tensor(-positions))
    assert torch.isfinite(query).all(-1).tolist() == [True, False]


def test_a_layer_rotates_queries_and_keys_differently(precise_twin):
    def run(column, x, *weights):
        rotate = column.xpos_query, column.xpos_key
        positions = column.positions(np.array([0, 40, 80, 900]))
        layer = column.multi_head(weights, 2, rotate=rotate)
        return layer(x, x, x, causal=True, key_positions=positions)

    weights = [draw(261 + i, 8, 8) / 4 for i in range(4)]
    assert_twin_agrees(precise_twin, run, draw(265, 2, 4, 8), *weights)
