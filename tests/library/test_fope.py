"""FoPE: sums of waves instead of one wave for each pair."""

import numpy as np
import pytest
import torch

from tests.conftest import REFERENCE, assert_twin_agrees, draw, error

FREQUENCIES = np.array([1.0, 0.3, 0.01])
COS, SIN = draw(330, 2, 3, 2), draw(331, 2, 3, 2)
X = draw(332, 2, 4, 5, 6)  # two sets of waves for four heads, and a pair that stands still


def call(column, x, positions, cos=COS, sin=SIN, frequencies=FREQUENCIES, **options):
    """The function with the weights above; frequencies keep their 64 bits."""
    precise = torch.tensor if column.name == "torch" else np.asarray
    where = None if positions is None else column.positions(positions)
    weights = {"cos_weight": cos, "sin_weight": sin}
    return column.fope(x, where, frequencies=precise(frequencies), **weights, **options)


def naive(x, positions, rest_sine=1.0):
    """Every pair by itself, in the layout of halves."""
    out, m = np.zeros_like(x), x.shape[-1] // 2
    for *b, h, t in np.ndindex(x.shape[:-1]):
        group = h // (x.shape[1] // len(COS))
        angles = positions[t] * FREQUENCIES
        for j in range(m):
            cos, sin = 1.0, rest_sine
            if j < COS.shape[-1]:
                cos = np.cos(angles) @ COS[group][:, j]
                sin = np.sin(angles) @ SIN[group][:, j]
            first, second = x[*b, h, t, j], x[*b, h, t, j + m]
            out[*b, h, t, j] = first * cos - second * sin
            out[*b, h, t, j + m] = second * cos + first * sin
    return out


@pytest.mark.parametrize("rest", [1.0, 0.0])
def test_each_pair_has_a_sum_of_waves(rest):
    positions = np.array([0, -3, 2.5, 1000, 2**20])
    got = call(REFERENCE, X, positions, rest_sine=rest)
    assert error(got, naive(X, positions, rest)) <= 1e-11


def test_frequencies_that_complete_a_cycle_are_kept(column):
    got = np.asarray(column.fope_frequencies(128, base=5e6, trained_length=262144))
    plain = REFERENCE.frequencies(128, base=5e6)
    assert np.allclose(got, plain[: len(got)], rtol=1e-14)
    assert plain[len(got) - 1] * 262144 > 2 * np.pi >= plain[len(got)] * 262144


def test_values_and_gradients_agree_with_the_reference(twin):
    def rotated(column, x, cos, sin):
        return call(column, x, np.array([-3, 0, 1, 5, 900]), cos, sin)

    assert_twin_agrees(twin, rotated, X, COS, SIN)
