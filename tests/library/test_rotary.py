"""Rotary position embedding."""

import functools
import weakref

import jax
import numpy as np
import pytest
import torch

from tests.conftest import (
    BOUND,
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
    error,
)

# Up to 2**20 positions, relative to the largest entry: float64 angles carry 2**-53 of themselves, which
# all columns share; half precision is rounded once.
FAR = {"float64": 1e-12, "float32": 5e-7, "bfloat16": 2.0**-8}
FAR_POSITIONS = np.array([2**20, -(2**20), 2**20 - 1, 77777, 3])

layouts = pytest.mark.parametrize("layout", ["interleaved", "half"])


def rotate(column, x, positions=None, **options):
    """Rotate an array of the column by NumPy positions and frequencies."""
    if "frequencies" in options:
        options |= {"frequencies": precise(column, options["frequencies"])}
    where = None if positions is None else column.positions(positions)
    return column.rotate(x, where, **options)


def precise(column, frequencies):
    """Frequencies as each column makes them: in float64."""
    return torch.tensor(frequencies) if column.name == "torch" else np.asarray(frequencies)


def naive(x, where, *, frequencies=None, base=10000.0, layout="interleaved",
          attention_factor=1.0):  # fmt: skip
    """Pairs as complex numbers."""
    d = x.shape[-1]
    if frequencies is None:
        frequencies = base ** (-2 * np.arange(d // 2) / d)
    m = len(frequencies)
    a = 2 * np.arange(m) if layout == "interleaved" else np.arange(m)
    b = a + 1 if layout == "interleaved" else a + m
    angles = where[..., None] * frequencies
    pairs = attention_factor * (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles)
    out = x.copy()
    out[..., a], out[..., b] = pairs.real, pairs.imag
    return out


@layouts
def test_each_pair_rotates_by_its_own_angle(layout):
    x, positions = draw(200, 2, 3, 2, 7), np.array([[[0, 1.5]], [[-5, 900]]])
    options = {"layout": layout, "attention_factor": 1.5}
    part = options | {"frequencies": np.array([1.0, 0.25])}
    assert_close(
        REFERENCE, REFERENCE.rotate(x, positions, **part), naive(x, positions, **part)
    )
    x, whole = x[..., :6], options | {"base": 100.0}
    got = REFERENCE.rotate(x, positions, **whole)
    assert_close(REFERENCE, got, naive(x, positions, **whole))


@layouts
def test_values_and_gradients_agree_with_the_reference(twin, layout):
    options = {"frequencies": np.array([1.0, 0.25]), "attention_factor": 1.5}
    positions = np.array([[0, 1, 2], [0, 0, -5]])

    def rotated(column, x):
        return rotate(column, x, positions, layout=layout, **options)

    assert_twin_agrees(twin, rotated, draw(200, 2, 3, 7))


def test_rows_are_the_published_ones(column):
    x = column.array(np.array([[1.0, 0.0, 1.0, 0.0]] * 4))
    want = [-0.98999250, 0.14112001, 0.99955003, 0.02999550]
    assert np.allclose(column.numpy(column.rotate(x))[3], want, rtol=0, atol=6e-9)


def test_frequencies_learn(precise_twin):
    def rotated(column, x, frequencies):
        where = column.positions(np.array([0, 3, -1]))
        return column.rotate(x, where, frequencies=frequencies, layout="half")

    assert_twin_agrees(precise_twin, rotated, draw(202, 2, 3, 5), draw(203, 2) / 4)


def test_positions_have_the_slope_of_a_quarter_rotation(precise_twin):
    x, positions = draw(204, 3, 4), np.array([0.5, -2.0, 7.25])
    _, (slope,) = precise_twin.value_and_gradients(
        lambda p: precise_twin.rotate(precise_twin.array(x), p), [positions]
    )
    omega = np.repeat(REFERENCE.frequencies(4), 2)
    quarter = np.stack([-x[:, 1::2], x[:, ::2]], axis=-1).reshape(3, 4)
    moved = REFERENCE.rotate(quarter, positions) * omega
    assert error(slope, np.sum(draw(1, 3, 4) * moved, axis=-1)) <= BOUND[precise_twin.dtype]


@layouts
def test_bounds_hold_up_to_a_million_positions(twin, layout):
    x = draw(205, 5, 64)
    want = REFERENCE.rotate(x, FAR_POSITIONS, layout=layout)
    run = functools.partial(twin.rotate, layout=layout)
    run = jax.jit(run) if twin.name == "jax" else run
    got = run(twin.array(x), twin.positions(FAR_POSITIONS))
    assert np.max(np.abs(twin.numpy(got) - want)) <= FAR[twin.dtype] * np.max(np.abs(x))


def test_tokens_in_a_row_are_rotated_as_exactly(twin):
    x = draw(205, 2**18 + 3, 4)
    off = np.abs(twin.numpy(twin.rotate(twin.array(x))) - REFERENCE.rotate(x))
    assert off.max() <= FAR[twin.dtype] * np.abs(x).max()


@pytest.mark.parametrize("twin", TWINS[4:], ids=str, indirect=True)
def test_half_precision_is_rounded_once(twin):
    x = draw(206, 300, 8)
    want = torch.tensor(REFERENCE.rotate(x)).bfloat16().double().numpy()
    off = np.abs(twin.numpy(twin.rotate(twin.array(x))) - want)
    # float32 products may fall on the other side of a tie
    assert np.mean(off / np.maximum(np.abs(want), 1e-2) > 1e-4) < 1e-3


DIM, HEADS, HEAD_DIM = 12, 2, 6
WEIGHTS = [draw(220 + i, DIM, DIM) / 4 for i in range(4)]
OFFSETS = [draw(230 + i, DIM) for i in range(4)]


@pytest.mark.parametrize("rotary_dim", [None, 4])
@pytest.mark.parametrize("target", ["half", "interleaved"])
def test_converted_weights_give_the_same_layer(column, rotary_dim, target):
    source = {"half": "interleaved", "interleaved": "half"}[target]
    convert = getattr(column, f"weight_to_{target}")
    transpose = np.transpose if column.name == "torch" else np.asarray

    def converted(x):
        ours = column.array(np.ascontiguousarray(transpose(x)))
        return transpose(column.numpy(convert(ours, HEADS, rotary_dim)))

    omega = precise(column, [1.0, 0.1] if rotary_dim else [1.0, 0.1, 0.01])
    plain = WEIGHTS + OFFSETS
    moved = [converted(x) if i % 4 < 2 else x for i, x in enumerate(plain)]
    assert not np.array_equal(moved[0], plain[0])
    x, outputs = column.array(draw(212, 2, 5, DIM)), []
    for layout, weights in ((source, plain), (target, moved)):
        layer = column.multi_head(
            [column.array(w) for w in weights],
            HEADS,
            rotate=functools.partial(column.rotate, frequencies=omega, layout=layout),
        )
        outputs.append(column.numpy(layer(x, x, x, causal=True)))
    assert error(*outputs) <= BOUND["float64"]


def test_weights_convert_as_hugging_face_converts_llama(column):
    weight = draw(213, DIM, 5)  # as torch keeps it
    llama = weight.reshape(HEADS, HEAD_DIM // 2, 2, 5).swapaxes(1, 2).reshape(DIM, 5)
    ours, want = (weight, llama) if column.name == "torch" else (weight.T, llama.T)
    half = column.weight_to_half(column.array(np.ascontiguousarray(ours)), HEADS)
    assert np.array_equal(column.numpy(half), want)


def test_frequencies_of_a_partial_stay_exact_under_jit(jax_single):
    slowed, x = REFERENCE.frequencies(64) / 3, jax_single.array(draw(218, 5, 64))
    layer = jax_single.MultiHeadAttention.init(
        jax.random.key(0), 64, 1, rotate=functools.partial(jax_single.rotate, frequencies=slowed)
    )  # fmt: skip
    got = jax.jit(lambda layer, x, where: layer.rotate(x, where))(layer, x, FAR_POSITIONS)
    want = REFERENCE.rotate(np.asarray(x, np.float64), FAR_POSITIONS, frequencies=slowed)
    assert np.abs(got - want).max() <= FAR["float32"] * np.abs(want).max()


@layouts
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func itself
def test_torch_maps_over_examples(torch_column, layout):
    x, where = torch.randn(3, 4, 6, dtype=torch.double), torch.arange(12).reshape(3, 4)
    run = functools.partial(torch_column.rotate, layout=layout)
    assert torch.allclose(torch.func.vmap(run)(x, where), run(x, where), atol=1e-14)


@layouts
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func itself
def test_torch_differentiates_in_every_way(torch_column, layout):
    def rotated(x, positions, frequencies):
        return torch_column.rotate(x, positions, frequencies=frequencies, layout=layout)

    shapes = (2, 3, 5), (3,), (2,)
    inputs = [torch.rand(s, dtype=torch.double, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(
        rotated, inputs, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(rotated, inputs, check_batched_grad=True)


@layouts
def test_torch_keeps_no_tokens_for_the_backward_pass(torch_column, layout):
    x = torch.ones(3, 4, requires_grad=True) * 2
    kept = weakref.ref(x)
    rotated = torch_column.rotate(x, layout=layout)
    assert rotated.requires_grad
    del x
    assert kept() is None


def test_torch_rotates_where_the_tokens_are(torch_column):
    x = torch.ones(2, 4, device="meta")
    assert torch_column.rotate(x, layout="half").device.type == "meta"
    assert torch_column.to_interleaved(x).device.type == "meta"
