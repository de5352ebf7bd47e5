"""Sandwich. What it shares with the other biases is in test_biases.py."""

import math

import numpy as np
import pytest

from tests.conftest import REFERENCE, error
from tests.library.test_biases import FAR, dtype_of

# what a number may be off, up to 2**20, in parts of the largest one
ROUNDINGS = {"float64": 1e-12, "float32": 3e-7, "bfloat16": 2.0**-8}
# of p_0 and p_0...5, d = 32
INNER_PRODUCTS = [16, 15.3136, 13.7301, 12.2724, 11.6615, 11.7774]


def bias(column, num_heads, query, key, **options):
    make = column.sandwich_bias(num_heads, **options, **dtype_of(column))
    return column.numpy(make(*map(column.positions, map(np.asarray, (query, key)))))


def test_each_number_is_a_scaled_sum_of_cosines():
    query, key = [-3, 7], [0.5, -100.0, 7.0]
    got = bias(REFERENCE, 3, query, key, dim=6, base=50.0)
    for h, i, j in np.ndindex(3, 2, 3):
        cosines = [math.cos((key[j] - query[i]) * 50.0 ** (-m / 3)) for m in range(3)]
        assert math.isclose(got[h, i, j], 3 / (8 * (h + 1)) * sum(cosines), abs_tol=1e-12)


def test_the_last_head_has_published_inner_products(column):
    got = bias(column, 8, [0], np.arange(6), dim=32)
    assert np.allclose(8 * got[7, 0], INNER_PRODUCTS, rtol=0, atol=6e-5)


@pytest.mark.parametrize("span", [300, FAR])
def test_numbers_are_exact_up_to_a_million_positions(twin, span):
    query = FAR - span + np.random.default_rng(0).integers(0, span, 20, endpoint=True)
    got, want = (bias(c, 3, query, query) for c in (twin, REFERENCE))
    assert error(got, want) * max(1, want.max()) / want.max() <= ROUNDINGS[twin.dtype]
