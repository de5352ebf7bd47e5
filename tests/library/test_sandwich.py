"""Sandwich. What it shares with the other biases is in test_biases.py."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.conftest import BOUND, REFERENCE, error
from tests.library.test_biases import FAR, dtype_of

# what a number may be off, up to 2**20, in parts of the largest one
ROUNDINGS = {"float64": 1e-12, "float32": 3e-7, "bfloat16": 2.0**-8}
# of p_0 and p_0...5, d = 32
INNER_PRODUCTS = [16, 15.3136, 13.7301, 12.2724, 11.6615, 11.7774]


def bias(column, num_heads, query, key, **options):
    make = column.sandwich_bias(num_heads, **options, **dtype_of(column))
    return column.numpy(make(*map(column.positions, map(np.asarray, (query, key)))))


@given(
    st.integers(1, 6),
    st.integers(1, 8),
    st.floats(2, 1e5),
    st.lists(st.integers(-500, 500), min_size=1, max_size=3),
    st.lists(st.floats(-500, 500), min_size=1, max_size=3),
)
def test_each_number_is_a_scaled_sum_of_cosines(num_heads, half, base, query, key):
    got = bias(REFERENCE, num_heads, query, key, dim=2 * half, base=base)
    for h in range(num_heads):
        for i, q in enumerate(query):
            for j, k in enumerate(key):
                cosines = [math.cos((k - q) * base ** (-m / half)) for m in range(half)]
                want = num_heads / (8 * (h + 1)) * sum(cosines)
                assert math.isclose(got[h, i, j], want, rel_tol=0, abs_tol=1e-11)


def test_the_last_of_eight_heads_has_an_eighth_of_published_inner_products(column):
    got = bias(column, 8, [0], np.arange(6), dim=32)
    assert np.allclose(8 * got[7, 0], INNER_PRODUCTS, rtol=0, atol=6e-5)
    assert got[7, 0, 4] < got[7, 0, 5]  # not steadily


def test_it_is_the_product_of_encodings_wherever_they_stand(column):
    where = np.array([-3, 0, 5, 100])
    rows = REFERENCE.sinusoidal_encoding(where, 12, base=50.0)
    want = np.multiply.outer(5 / (8 * np.arange(1, 6)), rows @ rows.T)
    assert error(bias(column, 5, where, where, dim=12, base=50.0), want) <= BOUND["float64"]


def test_by_default_the_width_is_128_and_the_base_10000(column):
    where = np.arange(5)
    want = bias(column, 2, where, where, dim=128, base=10000.0)
    assert np.array_equal(bias(column, 2, where, where), want)
    assert np.allclose(np.diagonal(want[0]), 2 / 8 * 64)
    for other in ({"dim": 64}, {"base": 500.0}):
        assert np.abs(bias(column, 2, where, where, **other) - want).max() > 0.1


@pytest.mark.parametrize("span", [300, FAR])
def test_numbers_are_right_up_to_a_million_positions(twin, span):
    rng = np.random.default_rng(0)
    query = FAR - span + rng.integers(0, span, 40, endpoint=True)
    got, want = (bias(c, 3, query, query) for c in (twin, REFERENCE))
    assert error(got, want) * max(1, want.max()) / want.max() <= ROUNDINGS[twin.dtype]


def test_far_from_zero_near_keys_lose_nothing(column):
    where = np.arange(6)
    near, far = (bias(column, 2, where + shift, where + shift) for shift in (0, FAR))
    assert np.array_equal(near, far)
