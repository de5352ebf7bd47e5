"""Swin V2's continuous bias. What it shares with the other biases is in test_biases.py."""

import math

import jax
import numpy as np
import pytest

from tests.conftest import BOUND, REFERENCE, draw, error

HEADS, HIDDEN = 2, 5
NAMES = ("hidden_weight", "hidden_bias", "output_weight")
NETWORK = (draw(290, 2, HIDDEN), draw(291, HIDDEN) / 4, draw(292, HIDDEN, HEADS) / 4)


def layer(column, height, width, **options):
    named = dict(zip(NAMES, map(column.array, NETWORK), strict=True))
    if column.name == "torch":
        options["hidden_dim"] = HIDDEN
    sides = {"height": height, "width": width}
    return column.with_parameters("SwinV2Bias", named, HEADS, **sides, **options)


def naive(height, width, trained_height, trained_width):
    """One pair of cells at a time, in the words of the authors' program."""
    w1, b1, w2 = NETWORK
    n = height * width
    out = np.zeros((HEADS, n, n))
    for h, i, j in np.ndindex(out.shape):
        u = []
        for offset, side in (
            (i // width - j // width, trained_height),
            (i % width - j % width, trained_width),
        ):
            scaled = 8.0 * offset / (side - 1) if side > 1 else 8.0 * offset
            u.append(math.copysign(math.log2(1 + abs(scaled)) / math.log2(8), scaled))
        hidden = np.maximum(0, u @ w1 + b1)
        out[h, i, j] = 16 / (1 + math.exp(-(hidden @ w2)[h]))
    return out


@pytest.mark.parametrize(("trained_height", "trained_width"), [(3, 4), (8, 1)])
def test_each_number_is_the_network_of_its_displacement(trained_height, trained_width):
    """Scaled as in training, whatever the window is now."""
    options = {"trained_height": trained_height, "trained_width": trained_width}
    cells = np.arange(12)
    got = layer(REFERENCE, 3, 4, **options)(cells, cells)
    assert error(got, naive(3, 4, trained_height, trained_width)) <= BOUND["float64"]


def test_under_jit_a_cell_outside_becomes_nan(jax_single):
    got = jax.jit(layer(jax_single, 2, 3))(np.array([0, 6]), np.array([0]))
    assert np.isnan(got).all(axis=0).tolist() == [[False], [True]]
