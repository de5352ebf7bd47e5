"""Sinusoidal positional encoding."""

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

ULP = 2.0**-24  # half the distance of float32 numbers just below 1: what rounding may cost
TRACED = 3e-7  # what float32 sines of traced positions may be off in JAX's 32-bit mode

# dim, position, columns, the numbers there: computed independently and published
KNOWN = [
    (4, 1, slice(0, 4), [0.84147098, 0.54030231, 0.00999983, 0.99995000]),
    (4, 3, slice(0, 4), [0.14112001, -0.98999250, 0.02999550, 0.99955003]),
    (32, 1, slice(6, 10), [0.17689219, 0.98423023, 0.09983342, 0.99500417]),
]
INNER_PRODUCTS = [16, 15.3136, 13.7301, 12.2724, 11.6615, 11.7774]  # of p_0 and p_0...5, d = 32
KNOWN_FREQUENCIES = [(32, 3, 0.17782794), (32, 4, 0.1), (4, 0, 1.0), (4, 1, 0.01)]
FLOAT32_POSITIONS = 2**20

POSITIONS = {
    "integers": np.array([0, 3, 7]),
    "one": np.array([5]),
    "one per example": np.array([[5], [9]]),
    "none": np.zeros(0, int),
    "negative": np.array([-7, -1, 4]),
    "fractional": np.array([-0.5, 0.25, 2.75]),
    "batched": np.array([[0, 1, 2], [5, 6, 7]]),
    "huge": np.array([2**20, -(2**20), 2**31 - 1]),
}
dims = st.integers(1, 12)
even_dims = st.integers(1, 8).map(lambda half: 2 * half)
bases = st.floats(0.5, 1e6)
offsets = st.floats(-1000, 1000)


def table(column, where, dim, base=10000.0):
    """The encoding in the column's dtype."""
    where = where if isinstance(where, int) else column.array(where)
    dtype = {"reference": {}, "torch": {"dtype": getattr(torch, column.dtype)}, "jax": {"dtype": column.dtype}}
    return column.sinusoidal_encoding(where, dim, base=base, **dtype[column.name])


def shift(column, offset, dim, base=10000.0):
    dtype = {"dtype": torch.float64} if column.name == "torch" else {}
    return column.numpy(column.shift_matrix(offset, dim, base=base, **dtype))


@pytest.mark.parametrize(("dim", "position", "columns", "numbers"), KNOWN)
def test_rows_are_the_published_ones(column, dim, position, columns, numbers):
    assert np.allclose(column.numpy(table(column, 5, dim))[position, columns], numbers, rtol=0, atol=6e-9)


@pytest.mark.parametrize(("dim", "j", "number"), KNOWN_FREQUENCIES)
def test_frequencies_are_the_published_ones(column, dim, j, number):
    assert np.isclose(np.asarray(column.frequencies(dim))[j], number, rtol=0, atol=6e-9)


def test_the_longest_wavelength_is_not_that_of_the_base(column):
    assert np.isclose(2 * np.pi / np.asarray(column.frequencies(512))[-1], 60611.5, rtol=0, atol=0.05)


def test_inner_products_do_not_fall_steadily(column):
    rows = column.numpy(table(column, 6, 32))
    assert np.allclose(rows @ rows[0], INNER_PRODUCTS, rtol=0, atol=6e-5)


@pytest.mark.parametrize(("dtype", "distinct", "collision"), [("bfloat16", 769, 257), ("float16", 3073, 2049)])
def test_half_precision_cannot_count(dtype, distinct, collision):
    held = torch.arange(4096).to(getattr(torch, dtype)).double()
    assert len(held.unique()) == distinct
    assert (held != torch.arange(4096)).nonzero()[0].item() == collision


def test_bfloat16_frequencies_are_off_by_radians():
    exact = torch.tensor(REFERENCE.frequencies(128))
    assert round((4095 * (exact.bfloat16().double() - exact)).abs().max().item(), 1) == 5.0


@pytest.mark.parametrize("dim", [1, 2, 5, 8])
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
def test_encodings_are_sines_and_cosines(column, positions, dim):
    got = column.numpy(table(column, positions, dim))
    assert got.shape == (*positions.shape, dim)
    for j in range(0, dim, 2):
        angles = positions * 10000.0 ** (-j / dim)
        assert error(got[..., j], np.sin(angles)) <= BOUND["float64"]
        if j + 1 < dim:
            assert error(got[..., j + 1], np.cos(angles)) <= BOUND["float64"]


@pytest.mark.parametrize("positions", [4, *POSITIONS.values()], ids=["length", *POSITIONS])
def test_encodings_agree_with_the_reference_to_the_last_rounding(twin, positions):
    if twin.dtype != "float64" and not isinstance(positions, int):
        positions = positions.astype(np.int32 if positions.dtype.kind == "i" else np.float64)
    held = positions if isinstance(positions, int) else positions.astype(np.float64)
    want = REFERENCE.sinusoidal_encoding(held if not isinstance(held, int) else held, 7, base=100.0)
    rounding = {"float64": BOUND["float64"], "float32": ULP, "bfloat16": 2.0**-9}[twin.dtype]
    with_float64 = positions if isinstance(positions, int) else np.array(positions)
    got = table(twin, with_float64, 7, base=100.0)
    assert error(twin.numpy(got), want) <= rounding


def test_float32_tables_are_the_rounded_float64_ones_up_to_a_million(precise_twin):
    positions = np.random.default_rng(0).integers(-FLOAT32_POSITIONS, FLOAT32_POSITIONS + 1, 2000)
    want = REFERENCE.sinusoidal_encoding(positions, 64)
    got = precise_twin.numpy(table(precise_twin, positions, 64))
    assert error(got, want.astype(precise_twin.dtype)) <= {"float64": BOUND["float64"], "float32": 2 * ULP}[
        precise_twin.dtype
    ]


@pytest.mark.parametrize("top", [10, 2**12, 2**20, 2**24, 2**31 - 1])
@pytest.mark.parametrize("kind", ["int32", "float32"])
@pytest.mark.parametrize("base", [10000.0, 2.0, 1.0, 0.5, 500000.0])
def test_jax_reduces_traced_positions_exactly(jax_single, unchecked, top, kind, base):
    rng = np.random.default_rng(0)
    ends = np.array([0, 1, -1, top, -top])
    drawn = rng.integers(-top, top, 4000) if kind == "int32" else rng.uniform(-top / 2, top / 2, 4000)
    positions = np.concatenate([ends if kind == "int32" else ends / 2, drawn]).astype(kind)
    frequencies = REFERENCE.frequencies(33, base=base)
    angles = positions.astype(np.longdouble)[:, None] * frequencies.astype(np.longdouble)
    truth = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), -1)[:, :33]
    encode = jax.jit(lambda positions: jax_single.sinusoidal_encoding(positions, 33, base=base))
    assert np.abs(np.asarray(encode(positions)) - truth).max() <= TRACED


def test_jax_traces_batches_and_differentiates_positions(column):
    if column.name != "jax":
        return
