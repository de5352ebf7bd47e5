"""Sinusoidal positional encoding."""

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import (
    BOUND,
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)
from tests.library.test_biases import dtype_of

# of numbers up to 1
ROUNDING = {"float64": 1e-12, "float32": 2.0**-24, "bfloat16": 2.0**-8}
TRACED = 3e-7  # what float32 sines of JAX's positions may be off in its 32-bit mode
# dim, position, columns, the numbers there: computed independently and published
KNOWN = [
    (4, 1, slice(0, 4), [0.84147098, 0.54030231, 0.00999983, 0.99995000]),
    (4, 3, slice(0, 4), [0.14112001, -0.98999250, 0.02999550, 0.99955003]),
    (32, 1, slice(6, 10), [0.17689219, 0.98423023, 0.09983342, 0.99500417]),
]
KNOWN_FREQUENCIES = [(32, 3, 0.17782794), (32, 4, 0.1), (4, 0, 1.0), (4, 1, 0.01)]

POSITIONS = np.array([[0, -1, 0.25], [2**20, -(2**20), 2**31 - 1]])
even_dims = st.integers(1, 8).map(lambda half: 2 * half)
bases = st.floats(0.5, 1e6)
offsets = st.floats(-1000, 1000)


def encode(column, where, dim, base=10000.0):
    """The encoding of a length or of positions, as a NumPy array."""
    where = where if isinstance(where, int) else column.positions(where)
    return column.numpy(
        column.sinusoidal_encoding(where, dim, base=base, **dtype_of(column))
    )


def shift(column, offset, dim, base=10000.0):
    return column.numpy(column.shift_matrix(offset, dim, base=base, **dtype_of(column)))


@pytest.mark.parametrize(("dim", "position", "columns", "numbers"), KNOWN)
def test_rows_are_the_published_ones(column, dim, position, columns, numbers):
    got = encode(column, 5, dim)[position, columns]
    assert np.allclose(got, numbers, rtol=0, atol=6e-9)


@pytest.mark.parametrize(("dim", "j", "number"), KNOWN_FREQUENCIES)
def test_frequencies_are_the_published_ones(column, dim, j, number):
    assert np.isclose(np.asarray(column.frequencies(dim))[j], number, rtol=0, atol=6e-9)


@pytest.mark.parametrize("dim", [1, 5, 8])
def test_encodings_are_sines_and_cosines(dim):
    got = REFERENCE.sinusoidal_encoding(POSITIONS, dim)
    # powers differ in their last digit from processor to processor, and a position multiplies that
    bound = BOUND["float64"] + 2.0**31 * 2.0**-53
    for j in range(dim):
        angles = POSITIONS * 10000.0 ** (-(j - j % 2) / dim)
        assert error(got[..., j], np.cos(angles) if j % 2 else np.sin(angles)) <= bound


def test_encodings_are_the_rounded_reference(twin):
    positions = np.random.default_rng(0).integers(-(2**20), 2**20, 500, endpoint=True)
    bound = TRACED if str(twin) == "jax-float32" else ROUNDING[twin.dtype]
    for where in (100, positions):
        want = REFERENCE.sinusoidal_encoding(where, 7, base=100.0)
        assert error(encode(twin, where, 7, base=100.0), want) <= bound


@pytest.mark.parametrize("kind", ["int32", "float32"])
@pytest.mark.parametrize(("top", "base"), [(2**20, 10000.0), (2**31 - 1, 0.5)])
def test_jax_reduces_traced_positions_exactly(jax_single, top, kind, base):
    rng = np.random.default_rng(0)
    whole = np.concatenate([[0, 1, -1, top, -top], rng.integers(-top, top, 200)])
    positions = (whole if kind == "int32" else whole / 2 + rng.random(205)).astype(kind)
    angles = np.multiply.outer(
        positions.astype(np.longdouble), REFERENCE.frequencies(8, base=base)
    )
    truth = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(-1, 8)
    got = jax.jit(lambda p: jax_single.sinusoidal_encoding(p, 8, base=base))(positions)
    assert np.abs(np.asarray(got) - truth).max() <= TRACED


def test_jax_reduces_the_most_negative_position(jax_single):
    lowest = np.array([-(2**31)], np.int32)
    got = jax.jit(lambda positions: jax_single.sinusoidal_encoding(positions, 8))(lowest)
    assert error(np.asarray(got), REFERENCE.sinusoidal_encoding(lowest, 8)) <= TRACED


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_jax_differentiates_positions(dtype):
    twin = next(twin for twin in TWINS if str(twin) == f"jax-{dtype}")
    positions = np.array([[0.5, -3.25, 1000.75], [7, 8, 9]])
    with twin.mode():
        _, slope = jax.jvp(
            jax.jit(lambda p: twin.sinusoidal_encoding(p, 4, dtype=dtype)),
            [twin.array(positions)],
            [twin.array(np.ones((2, 3)))],
        )
        rows, omega = REFERENCE.sinusoidal_encoding(positions, 4), REFERENCE.frequencies(4)
        want = np.stack([omega * rows[..., 1::2], -omega * rows[..., 0::2]], axis=-1)
        bound = {"float64": BOUND["float64"], "float32": TRACED}[dtype]
        assert error(twin.numpy(slope), want.reshape(2, 3, 4)) <= bound


@given(offsets, offsets, even_dims, bases)
def test_one_matrix_shifts_every_position(offset, position, dim, base):
    positions = np.array([0.0, position, 3.0])
    shifted = (
        encode(REFERENCE, positions, dim, base) @ shift(REFERENCE, offset, dim, base).T
    )
    want = encode(REFERENCE, positions + offset, dim, base)
    assert error(shifted, want) <= BOUND["float64"]


@given(offsets, even_dims, bases)
def test_shifts_are_rotations(offset, dim, base):
    matrix = shift(REFERENCE, offset, dim, base)
    assert error(matrix @ matrix.T, np.eye(dim)) <= BOUND["float64"]
    assert abs(np.linalg.det(matrix) - 1) <= BOUND["float64"]


@pytest.mark.parametrize("offset", [-2.5, 1e6])
def test_shifts_agree_with_the_reference(twin, offset):
    want = REFERENCE.shift_matrix(offset, 6, base=50.0)
    assert error(shift(twin, offset, 6, 50.0), want) <= ROUNDING[twin.dtype]


def test_values_and_gradients_agree_with_the_reference(twin):
    positions = np.array([[0, 0, 1], [4, 5, 600]])

    def layer(column, x):
        encoding = column.PositionalEncoding(7, base=100.0)
        return encoding(x, positions=column.positions(positions))

    assert_twin_agrees(twin, layer, draw(80, 2, 3, 7))


@pytest.mark.parametrize("twin", TWINS[4:], ids=str, indirect=True)
def test_bfloat16_layers_add_the_rounded_rows(twin):
    rows = torch.tensor(REFERENCE.sinusoidal_encoding(300, 8)).bfloat16()
    got = twin.numpy(twin.PositionalEncoding(8)(twin.array(np.zeros((300, 8)))))
    assert np.array_equal(got, rows.double().numpy())


def test_sequences_may_be_longer_than_any_seen(column):
    layer = column.PositionalEncoding(6)
    for n in (3, 50, 4, 5000):
        out = layer(column.array(np.zeros((1, n, 6))))
        assert_close(column, out[0], REFERENCE.sinusoidal_encoding(n, 6))


def test_dropout_of_the_sum_follows_rng(column):
    layer, x = column.PositionalEncoding(6, dropout_rate=0.5), column.array(draw(81, 4, 6))
    if column.name == "torch":
        layer.eval()
    kept, first, again = (
        column.numpy(layer(x, rng=rng)) for rng in (None, column.rng(), column.rng())
    )
    assert_close(column, column.PositionalEncoding(6)(x), kept)
    assert np.array_equal(first, again)
    assert 0 < (first == 0).sum() < 24
    assert np.allclose(first[first != 0], 2 * kept[first != 0])


def test_what_the_torch_layer_keeps_is_no_state():
    """So a cast loses no digits, and other lengths and dtypes are as exact."""
    layer = TWINS[2].PositionalEncoding(6).to(torch.bfloat16)
    assert list(layer.buffers()) == list(layer.parameters()) == []
    for n, dtype in ((10, torch.bfloat16), (300, torch.bfloat16), (300, torch.float64)):
        want = torch.tensor(REFERENCE.sinusoidal_encoding(n, 6)).to(dtype)
        out = layer(torch.zeros(n, 6, dtype=dtype))
        assert out.dtype == dtype
        assert (out - want).abs().max() <= BOUND["float64"]


def test_jax_layers_are_pytrees_without_leaves(jax_single):
    layer = jax_single.PositionalEncoding(6, base=100.0)
    assert jax.tree.leaves(layer) == []
    x = jax_single.array(np.zeros((2, 3, 6)))
    want = np.asarray(layer(x))
    assert_close(jax_single, jax.jit(lambda layer, x: layer(x))(layer, x), want)
    assert_close(jax_single, jax.vmap(layer)(x), want)
