"""Rotation by several coordinates."""

import copy
import dataclasses
import functools
import math
import pickle

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

# Coordinates up to 2**20, relative to the largest entry: as for one axis.
FAR = {"float64": 1e-12, "float32": 5e-7, "bfloat16": 2.0**-8}

MIXED = draw(280, 2, 3, 2) / 8  # frequencies of 2 axes, 3 heads, 2 pairs
GRID = np.array([[0, 0], [0, 1], [3, 2], [5, 5]])

# shape of x, coordinates, frequencies, layout
CASES = {
    "axial": ((4, 8), GRID, REFERENCE.axial_frequencies(8), "interleaved"),
    "axial, half": ((2, 4, 8), GRID, REFERENCE.axial_frequencies(8), "half"),
    "mrope": (
        (4, 8), np.array([[0, 0, 0], [1, 1, 1], [2, 2, 3], [2, 3, 2]]),
        REFERENCE.mrope_frequencies(8, (1, 1, 2)), "half",
    ),
    "one axis": ((4, 8), GRID[:, 1:], REFERENCE.frequencies(8)[None], "interleaved"),
    "a set per head": ((3, 4, 4), GRID, MIXED, "half"),
    "per example": ((2, 3, 2, 4), np.stack([GRID[2:], GRID[2:] + 7])[:, None], MIXED, "interleaved"),
    "shared by all": ((2, 3, 4, 5), GRID[None] / 2 - 1, MIXED, "interleaved"),
    "partial": ((4, 9), GRID, np.array([[0.5], [0.25]]), "half"),
    "no tokens": ((2, 0, 8), GRID[:0], REFERENCE.axial_frequencies(8), "half"),
}  # fmt: skip
every_case = pytest.mark.parametrize(
    ("shape", "coordinates", "frequencies", "layout"), CASES.values(), ids=CASES
)


def precise(column, frequencies):
    """Frequencies as each column makes them: in float64."""
    return torch.tensor(frequencies) if column.name == "torch" else np.asarray(frequencies)


def rotate(column, x, coordinates, frequencies, **options):
    return column.rotate_axes(
        x, column.positions(coordinates), precise(column, frequencies), **options
    )


def naive(x, coordinates, frequencies, layout="interleaved"):
    """Every pair by itself."""
    where = np.broadcast_to(coordinates, (*x.shape[:-1], coordinates.shape[-1]))
    out, m = x.copy(), frequencies.shape[-1]
    for token in np.ndindex(x.shape[:-1]):
        omega = frequencies[:, token[-2]] if frequencies.ndim == 3 else frequencies
        for j in range(m):
            a, b = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + m)
            angle = sum(p * w for p, w in zip(where[token], omega[:, j], strict=True))
            pair = complex(x[(*token, a)], x[(*token, b)]) * complex(
                math.cos(angle), math.sin(angle)
            )
            out[(*token, a)], out[(*token, b)] = pair.real, pair.imag
    return out


@every_case
def test_angles_are_linear_in_the_coordinates(
    column, shape, coordinates, frequencies, layout
):
    x = draw(281, *shape)
    got = rotate(column, column.array(x), coordinates, frequencies, layout=layout)
    assert_close(column, got, naive(x, coordinates, frequencies, layout))


@every_case
def test_rotations_and_their_gradients_agree_with_the_reference(
    twin, shape, coordinates, frequencies, layout
):
    def run(column, x):
        return rotate(column, x, coordinates, frequencies, layout=layout)

    assert_twin_agrees(twin, run, draw(281, *shape))


def test_frequencies_learn(precise_twin):
    def run(column, x, frequencies):
        return column.rotate_axes(x, column.positions(GRID), frequencies)

    assert_twin_agrees(precise_twin, run, draw(282, 3, 4, 4), MIXED)


def test_one_axis_is_the_plain_rotation(column):
    x, positions = draw(283, 4, 6), np.array([0, 3, -7, 100])
    got = rotate(
        column, column.array(x), positions[:, None], REFERENCE.frequencies(6)[None]
    )
    plain = column.rotate(column.array(x), column.positions(positions))
    assert np.array_equal(column.numpy(got), column.numpy(plain))


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


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_each_axis_gets_an_equal_share(column, num_axes):
    got = np.asarray(column.axial_frequencies(12 * num_axes, num_axes, base=50.0))
    want = np.zeros((num_axes, 6 * num_axes))
    for k in range(num_axes):
        want[k, 6 * k : 6 * k + 6] = REFERENCE.frequencies(12, base=50.0)
    assert got.dtype == np.float64
    assert np.array_equal(got, want)


def test_cells_are_counted_row_by_row(column):
    got = np.asarray(column.grid_coordinates(3, 4))
    assert got.tolist() == [[row, col] for row in range(3) for col in range(4)]
    assert got.dtype.kind == "i"


@given(
    st.integers(-500, 500), st.integers(-500, 500), st.sampled_from(["interleaved", "half"])
)
def test_scores_depend_on_differences_alone(column, down, right, layout):
    query, key = draw(287, 3, 4, 4), draw(288, 3, 4, 4)

    def scores(shift):
        q, k = (
            column.numpy(
                rotate(column, column.array(x), GRID + shift, MIXED, layout=layout)
            )
            for x in (query, key)
        )
        return q @ np.swapaxes(k, -1, -2)

    assert error(scores(np.array([down, right])), scores(0)) <= BOUND["float64"]


def test_bounds_hold_for_coordinates_up_to_a_million(twin):
    x, frequencies = draw(289, 4, 24), REFERENCE.axial_frequencies(24, 3)
    coordinates = np.random.default_rng(1).integers(-(2**20), 2**20, (4, 3))
    want = REFERENCE.rotate_axes(x, coordinates, frequencies)
    run = functools.partial(twin.rotate_axes, frequencies=precise(twin, frequencies))
    for function in [run, jax.jit(run)] if twin.name == "jax" else [run]:
        got = twin.numpy(function(twin.array(x), twin.positions(coordinates)))
        assert np.abs(got - want).max() <= FAR[twin.dtype] * np.abs(x).max()


def test_float32_keeps_mixed_axes_within_an_image(precise_twin):
    x, coordinates = (
        draw(290, 3, 4, 4),
        np.array([[0, 1023], [1023, 0], [511, 777], [64, 3]]),
    )
    want = REFERENCE.rotate_axes(x, coordinates, MIXED)
    run = functools.partial(
        precise_twin.rotate_axes, frequencies=precise(precise_twin, MIXED)
    )
    for function in [run, jax.jit(run)] if precise_twin.name == "jax" else [run]:
        got = precise_twin.numpy(
            function(precise_twin.array(x), precise_twin.positions(coordinates))
        )
        assert np.abs(got - want).max() <= FAR[precise_twin.dtype] * np.abs(x).max()


def test_each_parameter_changes_the_output(column):
    x = column.array(draw(291, 4, 8))
    plain = column.numpy(rotate(column, x, GRID, REFERENCE.axial_frequencies(8)))
    for coordinates, options, layout in (
        (GRID + np.array([0, 1]), {}, "interleaved"),
        (GRID + np.array([1, 0]), {}, "interleaved"),
        (GRID, {}, "half"),
        (GRID, {"base": 99.0}, "interleaved"),
        (GRID[:, :1], {"num_axes": 1}, "interleaved"),
    ):
        frequencies = np.asarray(column.axial_frequencies(8, **options))
        changed = column.numpy(rotate(column, x, coordinates, frequencies, layout=layout))
        assert np.abs(changed - plain).max() > 1e-7
    assert column.grid_coordinates(2, 3).shape == (6, 2)
    assert np.asarray(column.grid_coordinates(3, 2)).max(axis=0).tolist() == [2, 1]


# RotaryAxes: a value


def axes(column, frequencies=None, **options):
    rows = REFERENCE.axial_frequencies(8) if frequencies is None else frequencies
    return column.RotaryAxes(rows.tolist(), **options)


VALUES = {
    "default": {},
    "half": {"layout": "half"},
    "attention factor": {"attention_factor": 1.25},
    "partial": {"frequencies": np.array([[0.5, 1.0], [0.25, 0.0]])},
}


@pytest.mark.parametrize("options", VALUES.values(), ids=VALUES)
def test_a_value_turns_as_the_function(twin, options):
    def run(column, x):
        return axes(column, **options)(x, column.positions(GRID))

    x, given = draw(303, 2, 3, 4, 8), dict(options)
    assert_twin_agrees(twin, run, x)
    rows = given.pop("frequencies", REFERENCE.axial_frequencies(8))
    want = REFERENCE.rotate_axes(x, GRID, rows, **given)
    assert_close(twin, run(twin, twin.array(x)), want)


def test_the_attention_factor_is_on_the_entries_that_turn(column):
    x, rows = draw(304, 4, 8), np.array([[0.5, 1.0], [0.25, 0.0]])
    plain = column.numpy(axes(column, rows)(column.array(x), column.positions(GRID)))
    turn = axes(column, rows, attention_factor=2.0)
    got = column.numpy(turn(column.array(x), column.positions(GRID)))
    assert np.array_equal(got[:, :4], 2 * plain[:, :4])
    assert np.array_equal(got[:, 4:], x[:, 4:])


def test_values_are_equal_if_made_equal_and_are_kept(column):
    turn = axes(column, layout="half")
    assert turn == column.RotaryAxes(column.axial_frequencies(8), layout="half")
    assert turn.frequencies == tuple(map(tuple, REFERENCE.axial_frequencies(8).tolist()))
    assert hash(turn) == hash(axes(column, layout="half"))
    others = [axes(column), axes(column, layout="half", attention_factor=2.0)]
    assert all(turn != other for other in others)
    assert turn != axes(column, REFERENCE.axial_frequencies(8)[::-1], layout="half")
    assert copy.deepcopy(turn) == pickle.loads(pickle.dumps(turn)) == turn
    assert repr(axes(column, np.array([[1.0], [0.5]]))) == (
        "RotaryAxes(frequencies=((1.0,), (0.5,)), layout='interleaved', attention_factor=1.0)"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        turn.layout = "interleaved"


def test_jax_values_are_trees_without_leaves(jax_single):
    turn = axes(jax_single)
    assert jax.tree.leaves(turn) == []
    x, where = jax_single.array(draw(305, 4, 8)), jax_single.positions(GRID)
    got = jax.jit(lambda turn, x: turn(x, where))(turn, x)
    assert np.abs(got - turn(x, where)).max() <= 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_values_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    turn, x = axes(torch_column), torch.randn(2, 3, 4, 8)
    where = torch.tensor(GRID)
    compiled = torch.compile(turn.__call__, fullgraph=True, backend=backend)
    assert torch.allclose(compiled(x, where), turn(x, where), atol=1e-6)


# MixedRotary: 3 heads of width 4 in a grid of 3 columns


def mixed(column, frequencies, **options):
    parameters = {"frequencies": frequencies}
    return column.with_parameters("MixedRotary", parameters, 4, 3, **{"width": 3} | options)


LAYER_CASES = {
    "whole grid": ((2, 3, 6, 4), None, {}),
    "half": ((3, 6, 4), None, {"layout": "half"}),
    "some cells": ((2, 3, 2, 4), np.array([4, 2]), {}),
    "per example": ((2, 3, 2, 4), np.array([[[4, 2]], [[0, 11]]]), {"width": 5}),
    "no cells": ((3, 0, 4), None, {}),
}


@pytest.mark.parametrize(
    ("shape", "positions", "options"), LAYER_CASES.values(), ids=LAYER_CASES
)
def test_learned_layers_agree_with_the_reference(twin, shape, positions, options):
    def run(column, x, frequencies):
        where = None if positions is None else column.positions(positions)
        return mixed(column, frequencies, **options)(x, where)

    assert_twin_agrees(twin, run, draw(292, *shape), MIXED)


def test_learned_layers_turn_by_row_and_column(column):
    x = draw(293, 3, 6, 4)
    got = mixed(column, column.array(MIXED))(column.array(x))
    assert_close(column, got, naive(x, REFERENCE.grid_coordinates(2, 3), MIXED))


def test_every_parameter_and_option_of_a_layer_matters(column):
    x = column.array(draw(294, 3, 6, 4))
    plain = column.numpy(mixed(column, column.array(MIXED))(x))
    for i in np.ndindex(MIXED.shape):
        moved = MIXED.copy()
        moved[i] += 0.125
        assert not np.array_equal(
            column.numpy(mixed(column, column.array(moved))(x)), plain
        )
    for options in ({"width": 2}, {"layout": "half"}):
        other = mixed(column, column.array(MIXED), **options)
        assert not np.array_equal(column.numpy(other(x)), plain)


def fresh(column, *sizes, **options):
    if column.name == "torch":
        return column.MixedRotary(*sizes, **options, dtype=torch.float64, rng=column.rng())
    return column.MixedRotary.init(column.rng(), *sizes, **options)


def test_fresh_frequencies_have_a_direction_per_head(column):
    layer = fresh(column, 16, 200, 14, base=50.0, layout="half")
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
    assert np.array_equal(
        column.numpy(fresh(column, 16, 200, 14, base=50.0).frequencies), omega
    )
    assert (layer.width, layer.layout) == (14, "half")
    default = column.numpy(fresh(column, 16, 200, 14).frequencies)
    assert np.allclose(np.linalg.norm(default, axis=0)[:, 3], 10**-0.75, rtol=1e-6)


def test_fresh_torch_layers_have_the_default_dtype():
    layer = TWINS[2].MixedRotary(8, 2, 14)
    assert layer.frequencies.dtype == torch.float32
    assert list(layer.state_dict()) == ["frequencies"]
    assert layer.bfloat16()(torch.ones(2, 3, 8)).dtype == torch.float32


WEIGHTS = [draw(295 + i, 12, 12) / 4 for i in range(4)]


def test_attention_takes_a_learned_layer(twin):
    def run(column, x, frequencies):
        layer = column.multi_head(
            [column.array(w) for w in WEIGHTS], 3, rotate=mixed(column, frequencies)
        )
        return layer(x, x, x)

    assert_twin_agrees(twin, run, draw(299, 3, 12), MIXED)


@pytest.mark.slow
def test_attention_looks_coordinates_up(column):
    x = column.array(draw(300, 2, 6, 12))
    weights = [column.array(w) for w in WEIGHTS]
    table, omega = column.grid_coordinates(2, 3), precise(column, MIXED)
    looked_up = column.multi_head(
        weights, 3, rotate=lambda x, p: column.rotate_axes(x, table[p], omega)
    )
    learned = column.multi_head(weights, 3, rotate=mixed(column, column.array(MIXED)))
    want = column.numpy(learned(x, x, x))
    assert error(column.numpy(looked_up(x, x, x)), want) <= BOUND["float64"]
    cells = column.positions(np.array([[5, 3, 1, 0, 2, 4], [0, 1, 2, 3, 4, 5]]))
    want = column.numpy(learned(x, x, x, key_positions=cells))
    got = column.numpy(looked_up(x, x, x, key_positions=cells))
    assert error(got, want) <= BOUND["float64"]


@pytest.mark.slow
def test_decoding_with_cached_keys_equals_prefill(column):
    x, weights = column.array(draw(301, 2, 4, 12)), [column.array(w) for w in WEIGHTS]
    layer = column.multi_head(weights, 3, rotate=mixed(column, column.array(MIXED)))
    whole = column.numpy(layer(x, x, x, causal=True))
    one = layer(x[:, 3:], x, x, causal=True)
    assert error(column.numpy(one)[:, 0], whole[:, 3]) <= BOUND["float64"]


@pytest.mark.slow
def test_jax_layers_are_trees_of_their_frequencies(jax_single):
    layer = jax_single.MixedRotary.init(jax.random.key(0), 8, 2, 2, dtype="bfloat16")
    assert [leaf.dtype for leaf in jax.tree.leaves(layer)] == ["bfloat16"]
    x = jax_single.array(draw(302, 3, 2, 4, 8))
    want = jax.jit(layer)(x)
    assert np.abs(jax.vmap(layer)(x) - want).max() <= 2e-6
    wide = dataclasses.replace(layer, width=3)
    assert not np.array_equal(wide(x), layer(x))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    layer = torch_column.MixedRotary(4, 3, 3, rng=torch_column.rng())
    x, positions = torch.randn(2, 3, 6, 4), torch.arange(6)[None]
    table, omega = torch_column.grid_coordinates(2, 3), torch.tensor(MIXED)
    rotate_axes = torch_column.rotate_axes
    for run in (layer, lambda x, p: rotate_axes(x, table[p], omega)):
        compiled = torch.compile(run, fullgraph=True, backend=backend)
        assert torch.allclose(compiled(x, positions), run(x, positions), atol=1e-6)


def test_torch_makes_everything_where_it_is_asked(torch_column):
    made = [
        torch_column.axial_frequencies(8, device="meta"),
        torch_column.grid_coordinates(2, 2, device="meta"),
    ]
    assert {x.device.type for x in made} == {"meta"}
    x = torch.ones(2, 4, 8, device="meta")
    layer = torch_column.MixedRotary(8, 2, 2, device="meta")
    assert layer(x).device.type == "meta"
