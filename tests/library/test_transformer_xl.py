"""Transformer-XL's terms of the score."""

import jax
import numpy as np
import pytest

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, WIDTH, DIM = 2, 3, 6
CONTENT, POSITION = (draw(230 + i, HEADS, WIDTH) / 4 for i in range(2))
WEIGHT = draw(232, DIM, HEADS * WIDTH) / 4
PARAMETERS = {"content_bias": CONTENT, "position_bias": POSITION, "weight": WEIGHT}
# two examples of two queries and five keys
PLACES = np.array([[3, 4], [8, 20]]), np.array([[0, 1, 2, 3, 4], [11, 7, 8, 6, 9]])
QUERY, KEY = draw(240, 2, HEADS, 2, WIDTH) / 4, draw(241, 2, HEADS, 5, WIDTH) / 4
# The largest error of a score per position of distance, relative to the largest score: an angle as
# large as the distance is rounded before its sine is taken, in the reference as in the twins.
ANGLE = 2**-51


def xl(column, *parameters, **options):
    named = dict(zip(PARAMETERS, parameters, strict=True))
    return column.with_parameters("TransformerXLBias", named, DIM, HEADS, **options)


def three_terms(places, base=10000.0):
    """The paper's second, third and fourth term, pair by pair."""
    out = np.zeros((2, HEADS, 2, 5))
    for b, h, i, j in np.ndindex(out.shape):
        distance = float(places[0][b, i] - places[1][b, j])
        angles = [distance * base ** (-j / DIM) for j in range(0, DIM, 2)]
        rows = np.ravel([(np.sin(a), np.cos(a)) for a in angles])
        r = rows @ WEIGHT[:, WIDTH * h : WIDTH * (h + 1)]
        q, k = QUERY[b, h, i], KEY[b, h, j]
        out[b, h, i, j] = (q @ r + CONTENT[h] @ k + POSITION[h] @ r) / WIDTH**0.5
    return out


@pytest.mark.parametrize("places", [PLACES, [p - 0.25 * i for i, p in enumerate(PLACES)]])
def test_scores_are_the_three_terms_of_the_paper(places):
    bias = xl(REFERENCE, *PARAMETERS.values(), base=50.0)
    got = bias.scores(QUERY, KEY, *places)
    assert_close(REFERENCE, got, three_terms(places, base=50.0))


def test_values_and_gradients_agree_with_the_reference(twin):
    def scored(column, content_bias, position_bias, weight, query, key):
        bias = xl(column, content_bias, position_bias, weight)
        return bias.scores(query, key, *map(column.positions, PLACES))

    assert_twin_agrees(twin, scored, *PARAMETERS.values(), QUERY, KEY)


def test_far_from_zero_near_keys_lose_nothing(twin):
    bias = xl(twin, *map(twin.array, PARAMETERS.values()))
    far = [twin.positions(p + 2**20) for p in PLACES]
    got = bias.scores(*map(twin.array, (QUERY, KEY)), *far)
    assert_close(twin, got, three_terms(PLACES))


@pytest.mark.parametrize("distance", [2**20, -(2**20)])
def test_large_distances_are_as_exact_as_their_angles(twin, distance):
    places = PLACES[0] + distance, PLACES[1]
    run = xl(twin, *map(twin.array, PARAMETERS.values())).scores
    run = jax.jit(run) if twin.name == "jax" else run
    got = run(*map(twin.array, (QUERY, KEY)), *map(twin.positions, places))
    bound = max(BOUND[twin.dtype], ANGLE * abs(distance))
    assert error(twin.numpy(got), three_terms(places)) <= bound
