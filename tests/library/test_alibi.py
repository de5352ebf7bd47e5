"""ALiBi. What it shares with the other biases is in test_biases.py."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, TWINS, draw, error
from tests.library.test_biases import FAR, dtype_of

# minus the exponents of the slopes, as published
KNOWN = {
    1: [8],
    2: [4, 8],
    8: [1, 2, 3, 4, 5, 6, 7, 8],
    12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
    16: [h / 2 for h in range(1, 17)],
}
# what each number may be off, in its own size, up to 2**20: the slope, the product, the rounding
ROUNDINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-8}


def authors_slopes(n):
    """The recursion of the authors' program, in our own words."""
    if math.log2(n).is_integer():
        ratio = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [ratio * ratio**i for i in range(n)]
    power = 2 ** math.floor(math.log2(n))
    return authors_slopes(power) + authors_slopes(2 * power)[0::2][: n - power]


@pytest.mark.parametrize(("num_heads", "exponents"), KNOWN.items())
def test_slopes_are_the_published_ones(column, num_heads, exponents):
    slopes = np.asarray(column.alibi_slopes(num_heads))
    assert slopes.dtype == np.float64
    assert np.allclose(-np.log2(slopes), exponents, rtol=0, atol=1e-14)


@pytest.mark.parametrize("num_heads", [*range(1, 41), 71, 112])
def test_slopes_are_those_of_the_authors_program(column, num_heads):
    slopes = np.asarray(column.alibi_slopes(num_heads))
    assert np.allclose(slopes, authors_slopes(num_heads), rtol=1e-13, atol=0)
    assert len(set(slopes)) == num_heads


def test_the_formula_for_powers_of_two_is_wrong_for_others():
    """The fault of ml-explore/mlx issue 343."""
    formula = 2.0 ** (-8 * np.arange(1, 13) / 12)
    assert np.abs(REFERENCE.alibi_slopes(12) - formula).max() > 0.1


@given(
    st.integers(1, 20),
    st.lists(st.integers(-FAR, FAR), min_size=1, max_size=3),
    st.lists(st.floats(-1000, 1000), min_size=1, max_size=3),
)
def test_each_number_is_minus_slope_times_distance(num_heads, query, key):
    got = REFERENCE.ALiBi(num_heads)(np.array(query), np.array(key))
    for h, slope in enumerate(authors_slopes(num_heads)):
        for i, q in enumerate(query):
            for j, k in enumerate(key):
                assert math.isclose(got[h, i, j], -slope * abs(k - q), rel_tol=1e-12)


@pytest.mark.parametrize("traced", [False, True])
def test_numbers_are_right_to_the_last_digits_of_their_dtype(twin, traced):
    places = np.random.default_rng(0).integers(-FAR, FAR, 50, endpoint=True)
    bias = twin.ALiBi(12, **dtype_of(twin))
    run = jax.jit(bias) if traced and twin.name == "jax" else bias
    got = twin.numpy(run(twin.positions(places), twin.positions(places)))
    want = REFERENCE.ALiBi(12)(places, places)
    assert (np.abs(got - want) <= ROUNDINGS[twin.dtype] * np.abs(want)).all()


def test_under_a_causal_mask_it_is_the_form_of_the_paper_and_of_programs(column):
    n, slopes = 6, REFERENCE.alibi_slopes(3)[:, None, None]
    q, k = column.array(draw(220, 3, n, 4)), column.array(draw(221, 3, n, 4))
    places = np.arange(n)

    def weights(bias):
        bias = bias if callable(bias) else column.array(np.broadcast_to(bias, (3, n, n)))
        return column.numpy(column.attention_weights(q, k, causal=True, bias=bias))

    ours = weights(column.ALiBi(3, **dtype_of(column)))
    paper, program = slopes * (places - places[:, None]), slopes * places
    assert error(weights(paper), ours) <= BOUND["float64"]
    assert error(weights(program), ours) <= BOUND["float64"]
    per_row = (program - paper)[..., 0]
    assert np.array_equal(program - paper, np.broadcast_to(per_row[..., None], (3, n, n)))


def test_without_a_mask_the_forms_of_programs_differ(column):
    q = column.array(draw(222, 3, 6, 4))
    ours = column.ALiBi(3, **dtype_of(column))
    program = column.array(
        REFERENCE.alibi_slopes(3)[:, None, None] * np.arange(6) + np.zeros((3, 6, 6))
    )
    both = [column.numpy(column.attention_weights(q, q, bias=b)) for b in (ours, program)]
    assert np.abs(both[0] - both[1]).max() > 0.1


@given(st.integers(1, 12), st.integers(-50, 50), st.integers(-50, 50))
def test_the_two_directions_are_not_told_apart(num_heads, query, distance):
    bias = REFERENCE.ALiBi(num_heads)
    ahead, behind = bias(
        np.array([query]), np.array([query + distance, query - distance])
    ).T
    assert np.array_equal(ahead, behind)


@pytest.mark.slow
def test_the_bias_has_the_frameworks_default_dtype():
    for column in TWINS[2:4]:
        with column.mode():
            places = column.positions(np.arange(3))
            assert "float32" in str(column.ALiBi(2)(places, places).dtype)
            assert "float32" in str(column.sandwich_bias(2)(places, places).dtype)


def test_jax_biases_of_equal_arguments_share_a_compilation(jax_single):
    traces = []
    run = jax.jit(lambda bias, p: traces.append(1) or bias(p, p))
    for make in (jax_single.ALiBi, jax_single.sandwich_bias):
        before = len(traces)
        for num_heads in (4, 4, 2):
            run(make(num_heads), jax_single.positions(np.arange(3)))
        assert len(traces) == before + 2
