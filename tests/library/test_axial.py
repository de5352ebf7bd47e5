"""Rotation by several coordinates."""

import copy
import dataclasses
import functools
import pickle

import jax
import numpy as np
import pytest
import torch

from tests.conftest import (
    REFERENCE,
    TWINS,
    assert_close,
    assert_twin_agrees,
    draw,
)

# Coordinates up to 2**20, relative to the largest entry: as for one axis.
FAR = {"float64": 1e-12, "float32": 5e-7, "bfloat16": 2.0**-8}

MIXED = draw(280, 2, 3, 2) / 8  # frequencies of 2 axes, 3 heads, 2 pairs
GRID = np.array([[0, 0], [0, 1], [3, 2], [5, 5]])


def precise(column, frequencies):
    """Frequencies as each column makes them: in float64."""
    return torch.tensor(frequencies) if column.name == "torch" else np.asarray(frequencies)


def rotate(column, x, coordinates, frequencies, **options):
    return column.rotate_axes(
        x, column.positions(coordinates), precise(column, frequencies), **options
    )


def naive(x, coordinates, frequencies, layout="interleaved"):
    """Pairs as complex numbers."""
    m = frequencies.shape[-1]
    a = 2 * np.arange(m) if layout == "interleaved" else np.arange(m)
    b = a + 1 if layout == "interleaved" else a + m
    per_head = frequencies[:, :, None] if frequencies.ndim == 3 else frequencies
    angles = sum(coordinates[..., [i]] * omega for i, omega in enumerate(per_head))
    pairs, out = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles), x.copy()
    out[..., a], out[..., b] = pairs.real, pairs.imag
    return out


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_angles_are_linear_in_the_coordinates(layout):
    """With frequencies for each head, of which the last entry passes through."""
    x, coordinates = draw(281, 2, 3, 4, 5), np.stack([GRID / 2 - 1, GRID + 7])[:, None]
    got = REFERENCE.rotate_axes(x, coordinates, MIXED, layout=layout)
    assert_close(REFERENCE, got, naive(x, coordinates, MIXED, layout))


def test_values_and_gradients_agree_with_the_reference(twin):
    def run(column, x):
        return rotate(column, x, GRID, MIXED, layout="half", attention_factor=1.5)

    assert_twin_agrees(twin, run, draw(281, 2, 3, 4, 5))


def test_frequencies_learn(precise_twin):
    def run(column, x, frequencies):
        return column.rotate_axes(x, column.positions(GRID), frequencies)

    assert_twin_agrees(precise_twin, run, draw(282, 3, 4, 4), MIXED)


def test_axes_are_those_of_rope_vit(column):
    x, height, width, dim = draw(286, 6, 8), 2, 3, 8
    omega = 100.0 ** -(np.arange(0, dim, 4) / dim)
    t = np.arange(height * width)
    angles = np.concatenate(
        [np.outer(t % width, omega), np.outer(t // width, omega)], axis=-1
    )
    rotated = (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    theirs = np.stack([rotated.real, rotated.imag], axis=-1).reshape(x.shape)
    by_column = np.asarray(column.grid_coordinates(height, width))[:, ::-1].copy()
    got = rotate(
        column, column.array(x), by_column, np.asarray(column.axial_frequencies(8))
    )
    assert_close(column, got, theirs)


def test_each_axis_gets_an_equal_share(column):
    got = np.asarray(column.axial_frequencies(36, 3, base=50.0))
    want = np.kron(np.eye(3), REFERENCE.frequencies(12, base=50.0))
    assert got.dtype == np.float64
    assert np.array_equal(got, want)


def test_cells_are_counted_row_by_row(column):
    got = np.asarray(column.grid_coordinates(3, 4))
    assert got.tolist() == [[row, col] for row in range(3) for col in range(4)]
    assert got.dtype.kind == "i"


def test_bounds_hold_for_coordinates_up_to_a_million(twin):
    x, frequencies = draw(289, 4, 24), REFERENCE.axial_frequencies(24, 3)
    coordinates = np.random.default_rng(1).integers(-(2**20), 2**20, (4, 3))
    run = functools.partial(twin.rotate_axes, frequencies=precise(twin, frequencies))
    run = jax.jit(run) if twin.name == "jax" else run
    got = twin.numpy(run(twin.array(x), twin.positions(coordinates)))
    want = REFERENCE.rotate_axes(x, coordinates, frequencies)
    assert np.abs(got - want).max() <= FAR[twin.dtype] * np.abs(x).max()


# RotaryAxes: a value


def test_values_are_equal_if_made_equal(column):
    rows = REFERENCE.axial_frequencies(8)
    value = column.RotaryAxes(rows.tolist(), layout="half")
    same = column.RotaryAxes(column.axial_frequencies(8), layout="half")
    assert value == same == copy.deepcopy(value) == pickle.loads(pickle.dumps(value))
    assert hash(value) == hash(same)
    assert value != column.RotaryAxes(rows.tolist())
    assert value != column.RotaryAxes(rows[::-1].tolist(), layout="half")
    assert value != column.RotaryAxes(rows.tolist(), layout="half", attention_factor=2.0)
    assert repr(column.RotaryAxes([[1.0], [0.5]])) == (
        "RotaryAxes(frequencies=((1.0,), (0.5,)), layout='interleaved', attention_factor=1.0)"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.layout = "interleaved"
    if column.name == "jax":
        assert jax.tree.leaves(value) == []
    x, where = column.array(draw(303, 4, 8)), column.positions(GRID)
    want = REFERENCE.rotate_axes(draw(303, 4, 8), GRID, rows, layout="half")
    assert_close(column, value(x, where), want)


# MixedRotary: 3 heads of width 4 in a grid of 3 columns


def mixed(column, frequencies, **options):
    parameters = {"frequencies": frequencies}
    return column.with_parameters("MixedRotary", parameters, 4, 3, **{"width": 3} | options)


def test_learned_layers_agree_with_the_reference(twin):
    def run(column, x, frequencies):
        where = column.positions(np.array([[[4, 2]], [[0, 11]]]))
        return mixed(column, frequencies, width=5, layout="half")(x, where)

    assert_twin_agrees(twin, run, draw(292, 2, 3, 2, 4), MIXED)


def test_learned_layers_rotate_by_row_and_column(column):
    x = draw(293, 3, 6, 4)
    got = mixed(column, column.array(MIXED))(column.array(x))
    assert_close(column, got, naive(x, REFERENCE.grid_coordinates(2, 3), MIXED))


def test_fresh_frequencies_have_a_direction_per_head(column):
    if column.name == "torch":
        options = {"dtype": torch.float64, "rng": column.rng()}
        layer = column.MixedRotary(16, 200, 14, base=50.0, **options)
    else:
        layer = column.MixedRotary.init(column.rng(), 16, 200, 14, base=50.0)
    omega = column.numpy(layer.frequencies)
    assert omega.shape == (2, 200, 8)
    speed = np.linalg.norm(omega, axis=0)
    assert np.allclose(speed, np.tile(50.0 ** -(np.arange(0, 16, 4) / 16), 2), rtol=1e-6)
    along, across = omega[..., :4] / speed[:, :4], omega[..., 4:] / speed[:, 4:]
    assert np.allclose(across, np.stack([-along[1], along[0]]), atol=1e-6)
    assert np.allclose(along, along[..., :1], atol=1e-6)
    angles = np.sort(np.arctan2(along[1, :, 0], along[0, :, 0]))
    assert np.diff(angles).max() < 0.3
    assert np.ptp(angles) > 6


def test_torch_makes_everything_where_it_is_asked(torch_column):
    made = [
        torch_column.axial_frequencies(8, device="meta"),
        torch_column.grid_coordinates(2, 2, device="meta"),
    ]
    assert {x.device.type for x in made} == {"meta"}
    x = torch.ones(2, 4, 8, device="meta")
    assert torch_column.MixedRotary(8, 2, 2, device="meta")(x).device.type == "meta"
    layer = TWINS[2].MixedRotary(8, 2, 14)
    assert list(layer.state_dict()) == ["frequencies"]
    assert layer.frequencies.dtype == torch.float32
    assert layer.bfloat16()(torch.ones(2, 3, 8)).dtype == torch.float32
