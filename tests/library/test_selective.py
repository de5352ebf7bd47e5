"""Selective rotation."""

import math

import numpy as np
import pytest

from tests.conftest import assert_close, assert_twin_agrees, draw, error

N, HEADS, WIDTH = 6, 2, 4
X = draw(0, 2, HEADS, N, WIDTH)
STEPS = draw(1, 2, HEADS, N, WIDTH // 2)
STATE = draw(2, 2, HEADS, WIDTH // 2)


def rotated(column, x=X, steps=STEPS, **options):
    state = options.pop("state", None)
    options |= {} if state is None else {"state": column.array(state)}
    return column.selective_rotation(column.array(x), column.array(steps), **options)


def test_each_pair_turns_by_the_sum_of_its_steps(column):
    output, state = rotated(column, state=STATE)
    angles = STATE[:, :, None] + np.cumsum(STEPS, axis=2)
    pairs = (X[..., 0::2] + 1j * X[..., 1::2]) * np.exp(1j * angles)
    assert_close(column, output[..., 0::2], pairs.real)
    assert_close(column, output[..., 1::2], pairs.imag)
    got = np.asarray(state, float)
    assert np.abs(got).max() <= math.pi
    assert np.abs(np.exp(1j * got) - np.exp(1j * angles[:, :, -1])).max() < 1e-12


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_equal_steps_are_rope(column, layout):
    frequencies = np.array([1.0, 0.25])
    steps = np.broadcast_to(frequencies, (2, 1, N, 2))
    output, _ = rotated(column, steps=steps, layout=layout, state=steps[:, :, 0] * -1)
    options = {"frequencies": column.array(frequencies), "layout": layout}
    assert_close(column, output, column.numpy(column.rotate(column.array(X), **options)))


def test_a_text_cut_into_calls_is_rotated_as_in_one(column):
    whole, last = rotated(column)
    state = None
    for start, stop in ((0, 4), (4, 4), (4, 5), (5, N)):
        some = slice(start, stop)
        output, state = rotated(column, X[:, :, some], STEPS[:, :, some], state=state)
        state = np.asarray(state, float)
        assert_close(column, output, column.numpy(whole)[:, :, some])
    assert error(state, np.asarray(last, float)) < 1e-12


def test_values_and_gradients_agree_with_the_reference(twin):

    def output(column, x, steps):
        return column.selective_rotation(x, steps)[0]

    assert_twin_agrees(twin, output, X, STEPS)


def test_angles_are_right_after_many_tokens(precise_twin):
    """In float32 their sum would be off by 0.01 here."""
    n = 2**14
    steps = np.float64(np.float32(2 + np.random.default_rng(0).normal(size=(1, n, 1))))
    x = np.zeros((1, n, 2))
    x[..., 0] = 1
    output, _ = rotated(precise_twin, x, steps)
    for t in (0, 1000, n - 1):
        angle = math.fsum(steps[0, : t + 1, 0])
        want = [math.cos(angle), math.sin(angle)]
        assert np.abs(precise_twin.numpy(output)[0, t] - want).max() < 3e-7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": (2, 3, 5)}, "x must have an even width, got 5"),
        ({"steps": (2, 3, 4)}, r"steps must have shape \(2, 3, 2\), got \(2, 3, 4\)"),
        ({"steps": (3, 3, 2)}, r"steps must have shape \(2, 3, 2\), got \(3, 3, 2\)"),
        ({"state": (1, 2)}, r"state must have shape \(2, 2\), got \(1, 2\)"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_same_words(column, unchecked, change, message):
    shapes = {"x": (2, 3, 4), "steps": (2, 3, 2)} | change
    with pytest.raises(ValueError, match=message):
        column.selective_rotation(
            **{k: column.array(np.ones(shape)) for k, shape in shapes.items()}
        )
