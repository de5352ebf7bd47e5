"""FoPE: sums of waves instead of one wave for each pair."""

import functools

import jax
import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, assert_twin_agrees, draw, error

FREQUENCIES = np.array([1.0, 0.3, 0.01])
COS, SIN = draw(330, 2, 3, 2), draw(331, 2, 3, 2)
X = draw(332, 2, 4, 5, 6)  # two sets of waves for four heads, and a pair that stands still
CASES = {
    "positions not given": (X, None, {}),
    "far positions": (X, np.array([0, 5, 1000, 2**19, 2**20]), {}),
    "positions per example": (X, np.arange(10).reshape(2, 1, 5), {"layout": "interleaved"}),
    "positions per head": (X[0], np.arange(20).reshape(4, 5), {}),
    "fractions, and before the start": (X, np.array([-3.5, -1, 0, 0.25, 9]), {}),
    "the rest stays": (X, None, {"rest_sine": 0.0}),
    "as many heads as sets": (X[:, :2], None, {}),
    "no tokens": (X[:, :, :0], None, {}),
}


def call(
    column, x, positions=None, *, cos=COS, sin=SIN, frequencies=FREQUENCIES, **options
):
    """The function with the weights above; frequencies keep their 64 bits."""
    precise = (
        torch.tensor(frequencies) if column.name == "torch" else np.asarray(frequencies)
    )
    return column.fope(
        x,
        None if positions is None else column.positions(positions),
        frequencies=precise,
        cos_weight=column.array(cos),
        sin_weight=column.array(sin),
        **options,
    )


@pytest.mark.parametrize(("x", "positions", "options"), CASES.values(), ids=CASES)
def test_columns_agree(column, x, positions, options):
    got = column.numpy(call(column, column.array(x), positions, **options))
    want = call(REFERENCE, x, positions, **options)
    assert got.shape == want.shape
    assert x.size == 0 or error(got, want) <= 4 * BOUND[column.dtype]


def test_frequencies_that_complete_a_turn_are_kept(column):
    got = np.asarray(column.fope_frequencies(128, base=5e6, trained_length=262144))
    all_of_them = REFERENCE.frequencies(128, base=5e6)
    assert np.allclose(got, all_of_them[: len(got)], rtol=1e-14)
    assert all_of_them[len(got) - 1] * 262144 > 2 * np.pi >= all_of_them[len(got)] * 262144


def test_identity_matrices_make_it_the_plain_rotation(column):
    x = column.array(X)
    frequencies, one = np.array([1.0, 0.5, 0.25]), np.eye(3)[None]
    got = call(column, x, cos=one, sin=one, frequencies=frequencies)
    want = REFERENCE.rotate(X, frequencies=frequencies, layout="half")
    assert error(column.numpy(got), want) <= BOUND[column.dtype]


def test_the_rest_doubles_its_part_of_the_score_or_leaves_it(column):
    nothing = np.zeros((1, 3, 0))
    q, k = X[0], draw(333, 4, 5, 6)
    for rest, factor in ((1.0, 2.0), (0.0, 1.0)):
        rotated = [
            column.numpy(
                call(column, column.array(x), cos=nothing, sin=nothing, rest_sine=rest)
            )
            for x in (q, k)
        ]
        scores = rotated[0] @ np.swapaxes(rotated[1], -1, -2)
        assert error(scores, factor * q @ np.swapaxes(k, -1, -2)) <= 8 * BOUND[column.dtype]


def test_values_and_gradients_agree(twin):
    def rotated(column, x, cos, sin):
        waves = column.name == "torch"
        frequencies = torch.tensor(FREQUENCIES) if waves else FREQUENCIES
        return column.fope(x, frequencies=frequencies, cos_weight=cos, sin_weight=sin)

    assert_twin_agrees(twin, rotated, X, COS, SIN)


def test_a_layer_takes_it(torch_column):
    turn = functools.partial(
        torch_column.fope,
        frequencies=torch.tensor(FREQUENCIES),
        cos_weight=torch_column.array(COS),
        sin_weight=torch_column.array(SIN),
    )
    layer = torch_column.MultiHeadAttention(24, 4, num_kv_heads=2, rotate=turn)
    assert layer(torch.ones(2, 5, 24), causal=True).shape == (2, 5, 24)


def test_it_is_compiled_by_jax(jax_single):
    weights = {"cos_weight": jax_single.array(COS), "sin_weight": jax_single.array(SIN)}
    compiled = jax.jit(lambda x: jax_single.fope(x, frequencies=FREQUENCIES, **weights))
    assert error(np.asarray(compiled(jax_single.array(X))), call(REFERENCE, X)) <= 1e-5
