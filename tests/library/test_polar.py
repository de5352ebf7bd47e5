"""PoPE."""

import math

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, WIDTH, TURN = 2, 3, 2 * math.pi
PHASE = -np.abs(draw(270, HEADS, WIDTH)) / 4
FAR = {"float64": 1e-12, "float32": 2e-6, "bfloat16": 2.0**-7}  # of each arrow's length

# shape of x, positions, options
CASES = {
    "by default": ((HEADS, 5, WIDTH), None, {}),
    "another base": ((2, HEADS, 5, WIDTH), None, {"base": 100.0}),
    "no tokens": ((2, HEADS, 0, WIDTH), None, {}),
    "no examples": ((0, HEADS, 2, WIDTH), None, {}),
    "offset": ((2, HEADS, 3, WIDTH), np.array([700, 801, 900]), {}),
    "negative and fractional": ((HEADS, 3, WIDTH), np.array([-2.5, 0.25, 1000.75]), {}),
    "positions per example": (
        (2, HEADS, 2, WIDTH), np.array([[[0, 1]], [[500, 900]]]), {"base": 50.0}
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize(
    ("shape", "positions", "options"), CASES.values(), ids=CASES
)


def made(column, phase, **options):
    return column.with_parameters("PolarKey", {"phase": phase}, *phase.shape, **options)


def both(column, query, key, phase, positions=None, **options):
    where = None if positions is None else column.positions(positions)
    turn_key = made(column, phase, **options)
    return column.polar_query(query, where, **options), turn_key(key, where)


def naive(x, phase, positions=None, base=10000.0):
    """Every entry by itself, as a complex number."""
    n, d = x.shape[-2:]
    where = np.broadcast_to(np.arange(n) if positions is None else positions, x.shape[:-1])
    out = np.zeros((*x.shape[:-1], 2 * d))
    for token in np.ndindex(x.shape[:-1]):
        for c in range(d):
            angle = where[token] * base ** (-c / d) + phase[token[-2], c]
            arrow = math.log1p(math.exp(x[(*token, c)])) * np.exp(1j * angle)
            out[(*token, c)], out[(*token, d + c)] = arrow.real, arrow.imag
    return out


@every_case
def test_each_entry_becomes_an_arrow(column, shape, positions, options):
    query, key = draw(271, *shape), draw(272, *shape)
    got = both(column, *map(column.array, (query, key, PHASE)), positions, **options)
    for rotated, x, phase in zip(got, (query, key), (0 * PHASE, PHASE), strict=True):
        assert_close(column, rotated, naive(x, phase, positions, **options))


@every_case
def test_values_and_gradients_agree_with_the_reference(twin, shape, positions, options):
    def product(column, *inputs):
        query, key = both(column, *inputs, positions, **options)
        return query * key

    assert_twin_agrees(twin, product, draw(273, *shape) / 4, draw(274, *shape) / 4, PHASE)


def scores(column, query, key, phase, i, j, **options):
    q = column.polar_query(query, column.positions(i), **options)
    k = made(column, phase, **options)(key, column.positions(j))
    return column.numpy(q) @ np.swapaxes(column.numpy(k), -1, -2)


def test_a_score_is_a_sum_of_lengths_times_cosines(column):
    query, key, (i, j) = draw(275, HEADS, 1, WIDTH), draw(276, HEADS, 1, WIDTH), (7, 3)
    arrays = map(column.array, (query, key, PHASE))
    got = scores(column, *arrays, np.array([i]), np.array([j]), base=30.0)
    for h in range(HEADS):
        want = 0.0
        for c in range(WIDTH):
            lengths = [math.log(1 + math.exp(x[h, 0, c])) for x in (query, key)]
            want += math.prod(lengths) * math.cos(
                (j - i) * 30 ** (-c / WIDTH) + PHASE[h, c]
            )
        assert got[h, 0, 0] == pytest.approx(want, abs=1e-12)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_scores_depend_on_the_offset_alone(column, shift, i):
    arrays = [column.array(draw(277 + k, HEADS, 3, WIDTH)) for k in range(2)]
    where = i + np.arange(3), np.arange(3)
    phase = column.array(PHASE)
    before = scores(column, *arrays, phase, *where)
    moved = scores(column, *arrays, phase, *(p + shift for p in where))
    assert error(moved, before) <= 1e-11


@pytest.mark.slow
def test_content_does_not_move_the_best_offset(column):
    """The offset that one entry likes best is that of its phase, whatever the entries are."""
    phase = column.array(np.full((1, 1), -1.5))
    for value in (-3.0, 0.5, 6.0):
        x = column.array(np.full((1, 1, 1), value))
        keys = column.array(np.full((1, 7, 1), 0.25))
        got = scores(column, x, keys, phase, np.array([0.0]), np.arange(7) / 2, base=1.0)
        assert got.argmax() == 3  # 1.5 / 0.5


def test_with_phases_of_zero_past_and_future_are_alike(column):
    x = column.array(np.broadcast_to(draw(279, HEADS, 1, WIDTH), (HEADS, 2, WIDTH)))
    zero = column.array(np.zeros((HEADS, WIDTH)))
    got = scores(column, x, x, zero, np.array([5, 5]), np.array([2, 8]))
    assert error(got[..., 0], got[..., 1]) <= BOUND["float64"]
    other = scores(column, x, x, column.array(PHASE), np.array([5, 5]), np.array([2, 8]))
    assert np.abs(other[..., 0] - other[..., 1]).max() > 1e-2


@pytest.mark.parametrize(
    ("phase", "nearest"), [(0.5, 0), (20, 0), (-TURN - 0.5, -TURN), (-20, -TURN)]
)
def test_a_phase_counts_as_the_nearest_in_a_whole_turn(column, phase, nearest):
    x = column.array(draw(280, HEADS, 4, WIDTH))
    got, want = (
        column.numpy(made(column, column.array(np.full((HEADS, WIDTH), float(angle))))(x))
        for angle in (phase, nearest)
    )
    assert error(got, want) <= BOUND["float64"]


@pytest.mark.parametrize(
    ("phase", "learns"), [(0, True), (-6.28125, True), (0.5, False), (-7, False)]
)
def test_a_phase_learns_up_to_its_bounds(precise_twin, phase, learns):
    """At zero, where all of them start, the slope is whole, and not half of it."""
    x = draw(281, HEADS, 2, WIDTH)

    def slopes(angle):
        return precise_twin.value_and_gradients(
            lambda angles: made(precise_twin, angles)(precise_twin.array(x)),
            [np.full((HEADS, WIDTH), float(angle))],
        )[1][0]

    assert (slopes(phase) != 0).all() == learns
    if phase == 0:
        assert np.allclose(slopes(0), slopes(-1e-6), rtol=1e-4, atol=1e-4)
    if not learns:
        assert not slopes(phase).any()


def test_bounds_hold_far_away(twin):
    x, far = draw(282, HEADS, 4, WIDTH) / 4, 2**20
    positions = np.array([far, far - 1, -far, 12345])
    size = np.tile(np.log1p(np.exp(x)), 2)
    want = REFERENCE.polar_query(x, positions), made(REFERENCE, PHASE)(x, positions)

    def run(x, phase, positions):
        return twin.polar_query(x, positions), made(twin, phase)(x, positions)

    runs = [run, jax.jit(run)] if twin.name == "jax" else [run]
    for function in runs:
        got = function(twin.array(x), twin.array(PHASE), twin.positions(positions))
        for ours, true in zip(map(twin.numpy, got), want, strict=True):
            assert np.max(np.abs(ours - true) / size) <= FAR[twin.dtype]


def test_large_entries_keep_their_length(precise_twin):
    x = np.array([[[-80.0, -30.0, 30.0], [80.0, 25.0, 0.0]]])
    got = precise_twin.numpy(precise_twin.polar_query(precise_twin.array(x), None))
    want = REFERENCE.polar_query(x)
    assert want[0, 0, 2] == pytest.approx(30 + math.exp(-30), rel=1e-15)
    assert np.allclose(got, want, rtol=FAR[precise_twin.dtype], atol=0)


WEIGHTS = [draw(283 + i, HEADS * WIDTH, HEADS * WIDTH) / 4 for i in range(4)]


def attend(column, weights, phase, x, **options):
    rotate = (column.polar_query, made(column, phase))
    layer = column.multi_head(weights, HEADS, rotate=rotate, scale=WIDTH**-0.5)
    return layer(*x, causal=True, **options)


def test_layers_agree_with_the_reference(twin):
    def run(column, x, phase, *weights):
        positions = column.positions(np.array([0, 40, 80, 900]))
        return attend(column, weights, phase, (x, x, x), key_positions=positions)

    assert_twin_agrees(twin, run, draw(287, 2, 4, HEADS * WIDTH), PHASE, *WEIGHTS)


@pytest.mark.slow
def test_decoding_with_cached_keys_equals_prefill(column):
    weights, phase = [column.array(w) for w in WEIGHTS], column.array(PHASE)
    x = column.array(draw(288, 2, 3, HEADS * WIDTH))
    whole = column.numpy(attend(column, weights, phase, (x, x, x)))
    for i in range(3):
        past = x[:, : i + 1]
        one = attend(column, weights, phase, (x[:, i : i + 1], past, past))
        assert error(column.numpy(one)[:, 0], whole[:, i]) <= BOUND["float64"]


@pytest.mark.slow
def test_steps_with_a_cache_of_unturned_keys_equal_prefill(column):
    """Turned keys would be twice as wide as the values."""
    rotate = (column.polar_query, made(column, column.array(PHASE)))
    weights = [column.array(w) for w in WEIGHTS]
    layer = column.multi_head(weights, HEADS, rotate=rotate, scale=WIDTH**-0.5)
    x = column.array(draw(290, 2, 4, HEADS * WIDTH))
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    cache = column.KVCache.init((2,), HEADS, 6, WIDTH, rotated=False, **dtype)
    whole = column.numpy(layer(x, causal=True))
    for part in (slice(0, 2), slice(2, 3), slice(3, 4)):
        out, cache = layer(x[:, part], cache=cache)
        assert error(column.numpy(out), whole[:, part]) <= BOUND["float64"]


def test_fresh_phases_are_zero(column):
    layer = (
        column.PolarKey(HEADS, WIDTH)
        if column.name == "torch"
        else column.PolarKey.init(HEADS, WIDTH)
    )
    assert tuple(layer.phase.shape) == (HEADS, WIDTH)
    assert not layer.phase.any()
    assert layer.base == 10000


@pytest.mark.slow
def test_jax_keys_are_pytrees(jax_single):
    layer = jax_single.PolarKey.init(HEADS, WIDTH)
    x = jax_single.array(draw(289, 3, HEADS, 4, WIDTH))
    assert len(jax.tree.leaves(layer)) == 1

    def run(layer, x):
        return layer(x)

    want = np.asarray(layer(x))
    assert error(np.asarray(jax.jit(run)(layer, x)), want) <= 2e-6
    assert error(np.asarray(jax.vmap(run, (None, 0))(layer, x)), want) <= 2e-6
    assert (
        jax_single.PolarKey.init(HEADS, WIDTH, dtype="bfloat16").phase.dtype == "bfloat16"
    )


def test_torch_resets_and_shows_a_module(torch_column):
    layer = torch_column.PolarKey(HEADS, WIDTH, base=500.0, device="meta")
    assert layer(torch.ones(HEADS, 4, WIDTH, device="meta")).shape == (HEADS, 4, 2 * WIDTH)
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert torch.equal(layer.phase, torch.zeros(HEADS, WIDTH))
    assert repr(layer) == "PolarKey(2, 3, base=500.0)"
    assert list(layer.state_dict()) == ["phase"]


@pytest.mark.slow
def test_torch_compiles_both_for_every_length(torch_column, unchecked):
    torch.compiler.reset()
    query, key = torch_column.polar_query, torch_column.PolarKey(HEADS, WIDTH)
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    def run(x, positions):
        return query(x, positions), key(x, positions)

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=count)
    for n in (5, 7, 4):
        x, positions = torch.randn(HEADS, n, WIDTH), torch.arange(n)
        for got, want in zip(compiled(x, positions), run(x, positions), strict=True):
            assert torch.allclose(got, want, atol=1e-6)
    assert len(graphs) == 1
