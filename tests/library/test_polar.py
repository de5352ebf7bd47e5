"""PoPE."""

import math

import jax
import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, WIDTH, CYCLE = 2, 3, 2 * math.pi
PHASE = -np.abs(draw(270, HEADS, WIDTH)) / 4
FAR = {"float64": 1e-12, "float32": 2e-6, "bfloat16": 2.0**-7}  # of each arrow's length

PLACES = np.array([[[0, 1.25]], [[-500, 900]]])


def made(column, phase, **options):
    return column.with_parameters("PolarKey", {"phase": phase}, *phase.shape, **options)


def naive(x, phase, where, base):
    """Arrows as complex numbers."""
    speeds = base ** (-np.arange(WIDTH) / WIDTH)
    angles = where[..., None] * speeds + phase[:, None]
    arrows = np.log1p(np.exp(x)) * np.exp(1j * angles)
    return np.concatenate([arrows.real, arrows.imag], axis=-1)


def test_each_entry_becomes_an_arrow():
    x = draw(271, 2, HEADS, 2, WIDTH)
    query = REFERENCE.polar_query(x, PLACES, base=50.0)
    assert_close(REFERENCE, query, naive(x, 0 * PHASE, PLACES, base=50.0))
    key = made(REFERENCE, PHASE, base=50.0)(x, PLACES)
    assert_close(REFERENCE, key, naive(x, PHASE, PLACES, base=50.0))


def test_values_and_gradients_agree_with_the_reference(twin):
    def product(column, query, key, phase):
        where = column.positions(PLACES)
        query = column.polar_query(query, where, base=50.0)
        return query * made(column, phase, base=50.0)(key, where)

    arrays = (draw(i, 2, HEADS, 2, WIDTH) / 4 for i in (273, 274))
    assert_twin_agrees(twin, product, *arrays, PHASE)


@pytest.mark.parametrize(
    ("phase", "nearest"), [(0.5, 0), (20, 0), (-CYCLE - 0.5, -CYCLE), (-20, -CYCLE)]
)
def test_a_phase_counts_within_one_cycle(column, phase, nearest):
    x = column.array(draw(280, HEADS, 4, WIDTH))
    got, want = (
        column.numpy(made(column, column.array(np.full((HEADS, WIDTH), float(angle))))(x))
        for angle in (phase, nearest)
    )
    assert error(got, want) <= BOUND["float64"]


def test_a_phase_learns_up_to_its_bounds(precise_twin):
    """At zero, where all of them start, the slope is whole, and not half of it."""
    x = draw(281, HEADS, 2, WIDTH)

    def slopes(angle):
        return precise_twin.value_and_gradients(
            lambda angles: made(precise_twin, angles)(precise_twin.array(x)),
            [np.full((HEADS, WIDTH), float(angle))],
        )[1][0]

    assert slopes(-6.28125).all()
    assert np.allclose(slopes(0), slopes(-1e-6), rtol=1e-4, atol=1e-4)
    assert not slopes(0.5).any()
    assert not slopes(-7).any()


def test_bounds_hold_far_away(twin):
    x, far = draw(282, HEADS, 4, WIDTH) / 4, 2**20
    positions = np.array([far, far - 1, -far, 12345])
    size = np.tile(np.log1p(np.exp(x)), 2)

    def run(x, phase, positions):
        return twin.polar_query(x, positions), made(twin, phase)(x, positions)

    function = jax.jit(run) if twin.name == "jax" else run
    got = function(twin.array(x), twin.array(PHASE), twin.positions(positions))
    want = REFERENCE.polar_query(x, positions), made(REFERENCE, PHASE)(x, positions)
    for ours, true in zip(map(twin.numpy, got), want, strict=True):
        assert np.max(np.abs(ours - true) / size) <= FAR[twin.dtype]


def test_large_entries_keep_their_length(precise_twin):
    x = np.array([[[-80.0, -30.0, 30.0], [80.0, 25.0, 0.0]]])
    got = precise_twin.numpy(precise_twin.polar_query(precise_twin.array(x), None))
    want = REFERENCE.polar_query(x)
    assert want[0, 0, 2] == pytest.approx(30 + math.exp(-30), rel=1e-15)
    assert np.allclose(got, want, rtol=FAR[precise_twin.dtype], atol=0)


def test_steps_with_a_cache_of_unrotated_keys_equal_prefill():
    """Rotated keys would be twice as wide as the values."""
    rotate = (REFERENCE.polar_query, made(REFERENCE, PHASE))
    weights, x = [draw(283 + i, 6, 6) / 4 for i in range(4)], draw(290, 2, 3, 6)
    layer = REFERENCE.multi_head(weights, HEADS, rotate=rotate, scale=WIDTH**-0.5)
    cache = REFERENCE.KVCache.init((2,), HEADS, 6, WIDTH, rotated=False)
    whole = layer(x, causal=True)
    for part in (slice(0, 2), slice(2, 3)):
        out, cache = layer(x[:, part], cache=cache)
        assert error(out, whole[:, part]) <= BOUND["float64"]


def test_fresh_phases_are_zero(column):
    sizes = HEADS, WIDTH
    fresh = column.PolarKey if column.name == "torch" else column.PolarKey.init
    layer = fresh(*sizes)
    assert tuple(layer.phase.shape) == sizes
    assert not layer.phase.any()
    assert layer.base == 10000


def test_torch_resets_and_shows_a_module(torch_column):
    layer = torch_column.PolarKey(HEADS, WIDTH, base=500.0, device="meta")
    assert layer(torch.ones(HEADS, 4, WIDTH, device="meta")).shape == (HEADS, 4, 2 * WIDTH)
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert torch.equal(layer.phase, torch.zeros(HEADS, WIDTH))
    assert repr(layer) == "PolarKey(2, 3, base=500.0)"
    assert list(layer.state_dict()) == ["phase"]
