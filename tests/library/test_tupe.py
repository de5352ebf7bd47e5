"""TUPE."""

import jax
import numpy as np
import pytest

from tests.conftest import REFERENCE, assert_close, assert_twin_agrees, draw

HEADS, WIDTH, DIM, MAX_LEN = 2, 3, 6, 8
TABLE = draw(270, MAX_LEN, DIM) / 4
QUERY_WEIGHT, KEY_WEIGHT = (draw(271 + i, DIM, HEADS * WIDTH) / 4 for i in range(2))
CLS = draw(273, 2, HEADS)
PARAMETERS = {"table": TABLE, "query_weight": QUERY_WEIGHT, "key_weight": KEY_WEIGHT}
PLACES = np.array([[3, 7], [0, 1]]), np.array([[0, 1, 2, 3, 7], [5, 4, 0, 2, 1]])
with_and_without_cls = pytest.mark.parametrize("cls", [[CLS], []], ids=["cls", "no cls"])


def tupe(column, *parameters):
    """Made from table, weights and perhaps the scores of [CLS]."""
    named = dict(zip([*PARAMETERS, "cls_bias"], [*parameters, None][:4], strict=True))
    return column.with_parameters("TUPEBias", named, MAX_LEN, DIM, num_heads=HEADS)


@with_and_without_cls
def test_the_bias_is_the_papers_correlation(cls):
    """With its reset: one score from [CLS] to all tokens, one from all others to it."""
    bias = tupe(REFERENCE, *PARAMETERS.values(), *cls)
    assert bias.scale == (2 * WIDTH) ** -0.5
    want = np.zeros((2, HEADS, 2, 5))
    for b, h, i, j in np.ndindex(want.shape):
        columns, (at, to) = slice(WIDTH * h, WIDTH * h + WIDTH), (p[b] for p in PLACES)
        q, k = (
            TABLE[at[i]] @ QUERY_WEIGHT[:, columns],
            TABLE[to[j]] @ KEY_WEIGHT[:, columns],
        )
        want[b, h, i, j] = q @ k / (2 * WIDTH) ** 0.5
        if cls and 0 in (at[i], to[j]):
            want[b, h, i, j] = CLS[0 if at[i] == 0 else 1, h]
    assert_close(REFERENCE, bias(*PLACES), want)


@with_and_without_cls
def test_values_and_gradients_agree_with_the_reference(twin, cls):
    def bias(column, *parameters):
        return tupe(column, *parameters)(*map(column.positions, PLACES))

    assert_twin_agrees(twin, bias, *PARAMETERS.values(), *cls)


def test_under_jit_a_position_outside_becomes_nan(jax_single):
    bias = jax.jit(tupe(jax_single, *map(jax_single.array, [*PARAMETERS.values(), CLS])))
    places = np.array([1, 0, -1, MAX_LEN]), np.array([2, 2**30])
    got = np.isnan(bias(*map(jax_single.positions, places)))
    assert got[0].tolist() == [[False, True], [False, False], [True, True], [True, True]]
