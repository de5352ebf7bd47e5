"""Masks."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

SIZES = st.integers(0, 7)

# function, arguments, rows
DRAWN_BY_HAND = [
    ("causal_mask", (3,), ["100", "110", "111"]),
    ("causal_mask", (2, 4), ["1110", "1111"]),
    ("causal_mask", (4, 2), ["00", "00", "10", "11"]),
    ("causal_mask", (1, 4), ["1111"]),
    ("window_mask", (4, 4, 2), ["1100", "1110", "0111", "0011"]),
    ("window_mask", (2, 4, 1), ["0010", "0001"]),
    ("window_mask", (3, 2, 2), ["10", "11", "11"]),
    ("window_mask", (3, 2, 1), ["00", "10", "01"]),
    ("window_mask", (2, 2, 9), ["11", "11"]),
]


@pytest.mark.parametrize(("name", "arguments", "rows"), DRAWN_BY_HAND)
def test_masks_are_the_drawn_ones(column, name, arguments, rows):
    mask = column.numpy(getattr(column, name)(*arguments))
    assert mask.dtype == bool
    assert ["".join(map(str, row)) for row in mask.astype(int)] == rows


@given(SIZES, SIZES)
def test_the_last_query_stands_at_the_last_key(column, n_q, n_k):
    mask = column.numpy(column.causal_mask(n_q, n_k))
    assert np.array_equal(mask, np.tri(n_q, n_k, n_k - n_q, dtype=bool))


@given(SIZES, SIZES, st.integers(1, 9))
def test_windows_are_bands(column, n_q, n_k, window):
    mask = column.numpy(column.window_mask(n_q, n_k, window))
    band = np.tri(n_q, n_k, n_k - n_q + window - 1) - np.tri(n_q, n_k, n_k - n_q - window)
    assert np.array_equal(mask, band.astype(bool))


@given(st.integers(1, 5), st.integers(1, 9))
def test_a_causal_window_holds_at_most_its_width(column, window, n):
    mask = column.numpy(column.window_mask(n, n, window) & column.causal_mask(n))
    assert np.array_equal(mask.sum(axis=-1), np.minimum(np.arange(n) + 1, window))


@given(st.integers(1, 5), st.integers(1, 12))
def test_windows_of_longformer_and_mistral_by_their_own_words(column, half, n):
    i = np.arange(n)
    past = i[:, None] - i
    window, causal = column.window_mask, column.causal_mask(n)
    each_side = column.numpy(window(n, n, half + 1))  # w / 2 = half on each side
    assert np.array_equal(each_side, abs(past) <= half)
    text = column.numpy(window(n, n, half + 1) & causal)  # from i - W to i, W = half
    assert np.array_equal(text, np.triu(np.tri(n), -half) == 1)
    stored = column.numpy(
        window(n, n, half) & causal
    )  # the last W that a cache has room for
    assert np.array_equal(stored, (past >= 0) & (past < half))


@pytest.mark.parametrize("lengths", [[3, 0, 4], [[1, 2], [4, 0], [0, 3]]])
def test_lengths_count_the_visible_keys(column, lengths):
    mask = column.numpy(column.length_mask(column.array(lengths), 4))
    visible = np.array(lengths).reshape(3, -1)
    assert mask.shape == (*visible.shape, 4)
    assert np.array_equal(mask.sum(axis=-1), visible)
    assert np.array_equal(mask, np.sort(mask, axis=-1)[..., ::-1])


def test_no_lengths_make_no_rows(column):
    assert column.length_mask(column.array(np.zeros(0, int)), 4).shape == (0, 1, 4)
