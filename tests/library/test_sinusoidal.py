"""Sinusoidal positional encoding."""

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import BOUND, COTANGENT, REFERENCE, TWINS, assert_close, draw, error

# of numbers up to 1
ROUNDING = {"float64": 1e-12, "float32": 2.0**-24, "bfloat16": 2.0**-8}
TRACED = 3e-7  # what float32 sines of JAX's positions may be off in its 32-bit mode


def rounding(twin):
    return TRACED if str(twin) == "jax-float32" else ROUNDING[twin.dtype]


# dim, position, columns, the numbers there: computed independently and published
KNOWN = [
    (4, 1, slice(0, 4), [0.84147098, 0.54030231, 0.00999983, 0.99995000]),
    (4, 3, slice(0, 4), [0.14112001, -0.98999250, 0.02999550, 0.99955003]),
    (32, 1, slice(6, 10), [0.17689219, 0.98423023, 0.09983342, 0.99500417]),
]
# of p_0 and p_0...5, d = 32
INNER_PRODUCTS = [16, 15.3136, 13.7301, 12.2724, 11.6615, 11.7774]
# distinct positions of 0..4095, first collision
HALF = [("bfloat16", 769, 257), ("float16", 3073, 2049)]
KNOWN_FREQUENCIES = [(32, 3, 0.17782794), (32, 4, 0.1), (4, 0, 1.0), (4, 1, 0.01)]

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


def dtype_of(column):
    """How a column is asked for its dtype."""
    dtypes = {"torch": getattr(torch, column.dtype), "jax": column.dtype}
    return {"dtype": dtypes[column.name]} if column.name in dtypes else {}


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
    assert np.allclose(
        encode(column, 5, dim)[position, columns], numbers, rtol=0, atol=6e-9
    )


@pytest.mark.parametrize(("dim", "j", "number"), KNOWN_FREQUENCIES)
def test_frequencies_are_the_published_ones(column, dim, j, number):
    assert np.isclose(np.asarray(column.frequencies(dim))[j], number, rtol=0, atol=6e-9)


def test_the_longest_wavelength_is_not_that_of_the_base(column):
    assert np.isclose(
        2 * np.pi / np.asarray(column.frequencies(512))[-1], 60611.5, rtol=0, atol=0.05
    )


def test_inner_products_do_not_fall_steadily(column):
    rows = encode(column, 6, 32)
    assert np.allclose(rows @ rows[0], INNER_PRODUCTS, rtol=0, atol=6e-5)


@pytest.mark.parametrize(("dtype", "distinct", "collision"), HALF)
def test_half_precision_cannot_count(dtype, distinct, collision):
    held = torch.arange(4096).to(getattr(torch, dtype)).double()
    assert len(held.unique()) == distinct
    assert (held != torch.arange(4096)).nonzero()[0].item() == collision


def test_bfloat16_frequencies_are_off_by_radians():
    exact = torch.tensor(REFERENCE.frequencies(128))
    assert round((4095 * (exact.bfloat16().double() - exact)).abs().max().item(), 1) == 5.0


@pytest.mark.parametrize("dim", [1, 2, 5, 8, 20])
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
def test_encodings_are_sines_and_cosines(column, positions, dim):
    got = encode(column, positions, dim)
    assert got.shape == (*positions.shape, dim)
    # powers differ in their last digit from processor to processor, and a position multiplies that
    bound = BOUND["float64"] + np.abs(positions).max(initial=0) * 2.0**-53
    for j in range(dim):
        angles = positions * 10000.0 ** (-(j - j % 2) / dim)
        assert error(got[..., j], np.cos(angles) if j % 2 else np.sin(angles)) <= bound


@pytest.mark.parametrize("where", [0, 1, 4, 100, *POSITIONS.values()])
def test_encodings_are_the_rounded_reference(twin, where):
    want = REFERENCE.sinusoidal_encoding(where, 7, base=100.0)
    assert error(encode(twin, where, 7, base=100.0), want) <= rounding(twin)


def test_float32_rows_hold_up_to_a_million_positions(precise_twin):
    positions = np.random.default_rng(0).integers(-(2**20), 2**20, 2000, endpoint=True)
    want = REFERENCE.sinusoidal_encoding(positions, 64)
    assert error(encode(precise_twin, positions, 64), want) <= rounding(precise_twin)


@pytest.mark.parametrize("base", [10000.0, 2.0, 1.0, 0.5, 500000.0])
@pytest.mark.parametrize("kind", ["int32", "float32"])
@pytest.mark.parametrize("top", [10, 2**12, 2**20, 2**24, 2**31 - 1])
def test_jax_reduces_traced_positions_exactly(jax_single, top, kind, base):
    rng = np.random.default_rng(0)
    whole = np.concatenate([[0, 1, -1, top, -top], rng.integers(-top, top, 2000)])
    positions = (whole if kind == "int32" else whole / 2 + rng.random(2005)).astype(kind)
    angles = np.multiply.outer(
        positions.astype(np.longdouble), REFERENCE.frequencies(33, base=base)
    )
    truth = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), -1)[
        :, :33
    ]
    got = jax.jit(
        lambda positions: jax_single.sinusoidal_encoding(positions, 33, base=base)
    )(positions)
    assert np.abs(np.asarray(got) - truth).max() <= TRACED


def test_jax_reduces_the_most_negative_position(jax_single):
    lowest = np.array([-(2**31)], np.int32)
    got = jax.jit(lambda positions: jax_single.sinusoidal_encoding(positions, 8))(lowest)
    assert error(np.asarray(got), REFERENCE.sinusoidal_encoding(lowest, 8)) <= TRACED


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_jax_traces_batches_and_differentiates_positions(dtype):
    twin = next(twin for twin in TWINS if str(twin) == f"jax-{dtype}")
    bound = {"float64": BOUND["float64"], "float32": TRACED}[dtype]
    positions = np.array([[0.5, -3.25, 1000.75], [7, 8, 9]])
    with twin.mode():
        rows = jax.vmap(lambda p: twin.sinusoidal_encoding(p, 5, dtype=dtype))(
            twin.array(positions)
        )
        assert error(twin.numpy(rows), REFERENCE.sinusoidal_encoding(positions, 5)) <= bound
        _, slope = jax.jvp(
            jax.jit(lambda p: twin.sinusoidal_encoding(p, 4, dtype=dtype)),
            [twin.array(positions)],
            [twin.array(np.ones((2, 3)))],
        )
        rows, omega = REFERENCE.sinusoidal_encoding(positions, 4), REFERENCE.frequencies(4)
        want = np.stack(
            [omega * rows[..., 1::2], -omega * rows[..., 0::2]], axis=-1
        ).reshape(2, 3, 4)
        assert error(twin.numpy(slope), want) <= bound


@pytest.mark.slow
@given(offsets, dims, bases)
def test_rows_have_squared_norm_of_half_the_width(column, position, dim, base):
    (row,) = encode(column, np.array([position]), 2 * dim, base)
    assert abs(row @ row - dim) <= BOUND["float64"] * dim


@pytest.mark.slow
@given(dims, bases)
def test_the_gram_matrix_is_toeplitz(column, dim, base):
    rows = encode(column, 6, 2 * dim, base)
    gram = rows @ rows.T
    assert error(gram[1:, 1:], gram[:-1, :-1]) <= BOUND["float64"]


@given(offsets, offsets, even_dims, bases)
def test_one_matrix_shifts_every_position(column, offset, position, dim, base):
    positions = np.array([0.0, position, 3.0])
    shifted = encode(column, positions, dim, base) @ shift(column, offset, dim, base).T
    assert error(shifted, encode(column, positions + offset, dim, base)) <= BOUND["float64"]


@given(offsets, even_dims, bases)
def test_shifts_are_rotations(column, offset, dim, base):
    matrix = shift(column, offset, dim, base)
    assert error(matrix @ matrix.T, np.eye(dim)) <= BOUND["float64"]
    assert abs(np.linalg.det(matrix) - 1) <= BOUND["float64"]


@given(offsets, offsets, even_dims, bases)
def test_shifts_add_up(column, first, second, dim, base):
    both = shift(column, first, dim, base) @ shift(column, second, dim, base)
    assert error(both, shift(column, first + second, dim, base)) <= BOUND["float64"]


@pytest.mark.parametrize("offset", [0.0, 1.0, -2.5, 1e6])
def test_shifts_agree_with_the_reference(twin, offset):
    want = REFERENCE.shift_matrix(offset, 6, base=50.0)
    assert error(shift(twin, offset, 6, 50.0), want) <= ROUNDING[twin.dtype]


@pytest.mark.slow
@given(st.integers(4, 12), bases, st.floats(1.1, 10))
def test_the_base_matters(column, dim, base, factor):
    rows, others = encode(column, 4, dim, base), encode(column, 4, dim, base * factor)
    layers = (column.PositionalEncoding(dim, base=b) for b in (base, base * factor))
    added = [column.numpy(layer(column.array(np.zeros((4, dim))))) for layer in layers]
    assert np.abs(others - rows)[1, 2:4].max() > 1e-6
    assert np.array_equal(added[0], rows)
    assert np.array_equal(added[1], others)


@given(dims, bases)
def test_frequencies_fall_geometrically_from_one(column, dim, base):
    omega = np.asarray(column.frequencies(dim, base=base))
    assert omega.dtype == np.float64
    assert np.allclose(omega, base ** (-np.arange(0, dim, 2) / dim), rtol=1e-14)


LAYER_CASES = {
    "by default": ((2, 5, 6), None),
    "odd width": ((5, 7), None),
    "three batch axes": ((2, 1, 2, 3, 6), None),
    "no tokens": ((2, 0, 6), None),
    "shared positions": ((2, 3, 6), np.array([-1, 0, 100])),
    "one token, decoding": ((2, 1, 6), np.array([41])),
    "positions per example": ((2, 3, 6), np.array([[0, 0, 1], [4, 5, 6]])),
    "fractional positions": ((2, 2, 6), np.array([0.5, -2.25])),
}


@pytest.mark.parametrize(("shape", "positions"), LAYER_CASES.values(), ids=LAYER_CASES)
def test_the_layer_adds_the_rows(twin, shape, positions):
    x = draw(80, *shape)

    def layer(column, x):
        where = None if positions is None else column.positions(positions)
        return column.PositionalEncoding(shape[-1], base=100.0)(x, positions=where)

    value, (slope,) = twin.value_and_gradients(lambda x: layer(twin, x), [x])
    rows = REFERENCE.sinusoidal_encoding(
        shape[-2] if positions is None else positions, shape[-1], base=100.0
    )
    assert np.array_equal(layer(REFERENCE, x), x + rows)
    held = encode(twin, shape[-2] if positions is None else positions, shape[-1], 100.0)
    bound = {**BOUND, "bfloat16": 2.0**-8}[twin.dtype]  # one rounding
    assert error(value, x + held) <= bound
    assert error(slope, draw(COTANGENT, *shape)) == 0


def test_bfloat16_layers_add_the_rounded_rows(twin):
    x = twin.array(np.zeros((300, 8)))
    want = (
        torch.tensor(REFERENCE.sinusoidal_encoding(300, 8))
        .to(getattr(torch, twin.dtype))
        .double()
        .numpy()
    )
    bound = {**ROUNDING, "bfloat16": 0}[twin.dtype]
    if (twin.name, twin.dtype) == ("jax", "float32"):
        bound = 3e-7  # sines of angles that were reduced in 32 bits
    assert error(twin.numpy(twin.PositionalEncoding(8)(x)), want) <= bound


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
    layer = TWINS[2].PositionalEncoding(6)
    first = layer(torch.zeros(4, 6))
    assert list(layer.buffers()) == list(layer.parameters()) == []
    assert torch.equal(layer(torch.zeros(2, 6)), first[:2])
    assert torch.equal(layer(torch.zeros(9, 6))[:4], first)


@pytest.mark.parametrize("cast", [torch.nn.Module.half, torch.nn.Module.bfloat16])
def test_casting_the_torch_layer_back_and_forth_loses_no_digits(cast):
    layer = TWINS[2].PositionalEncoding(6)
    x = torch.zeros(100, 6)
    want = layer(x)
    assert torch.equal(cast(layer).float()(x), want)


def test_a_bfloat16_torch_layer_takes_longer_sequences_and_other_dtypes():
    layer = TWINS[2].PositionalEncoding(6).to(torch.bfloat16)
    for n, dtype in ((10, torch.bfloat16), (300, torch.bfloat16), (300, torch.float64)):
        want = torch.tensor(REFERENCE.sinusoidal_encoding(n, 6)).to(dtype).double()
        out = layer(torch.zeros(n, 6, dtype=dtype))
        assert out.dtype == dtype
        assert (out - want).abs().max() <= BOUND["float64"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_the_layer_in_one_graph(unchecked, backend):
    torch.compiler.reset()
    layer = TWINS[2].PositionalEncoding(6)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for n in (4, 7, 2):
        assert torch.equal(compiled(torch.zeros(2, n, 6)), layer(torch.zeros(2, n, 6)))
    x, positions = torch.zeros(2, 3, 6), torch.tensor([5, 6, 7])
    assert torch.equal(compiled(x, positions=positions), layer(x, positions=positions))


@pytest.mark.slow
def test_jax_layers_are_pytrees_without_leaves(jax_single):
    layer = jax_single.PositionalEncoding(6, base=100.0)
    assert jax.tree.leaves(layer) == []
    x = jax_single.array(np.zeros((2, 3, 6)))
    assert_close(
        jax_single, jax.jit(lambda layer, x: layer(x))(layer, x), np.asarray(layer(x))
    )
    assert_close(jax_single, jax.vmap(layer)(x), np.asarray(layer(x)))
