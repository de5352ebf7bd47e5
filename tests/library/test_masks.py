"""Masks."""

import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.conftest import assert_close, draw

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


@pytest.mark.slow
@given(SIZES, SIZES, st.integers(1, 9))
def test_windows_are_bands(column, n_q, n_k, window):
    mask = column.numpy(column.window_mask(n_q, n_k, window))
    band = np.tri(n_q, n_k, n_k - n_q + window - 1) - np.tri(n_q, n_k, n_k - n_q - window)
    assert np.array_equal(mask, band.astype(bool))


@pytest.mark.slow
@given(SIZES, SIZES, st.integers(1, 9))
def test_a_window_is_its_mask_as_a_function_of_positions(column, n_q, n_k, window):
    where = (column.array(p) for p in (np.arange(n_k - n_q, n_k), np.arange(n_k)))
    got = column.numpy(column.Window(window)(*where))
    assert np.array_equal(got, column.numpy(column.window_mask(n_q, n_k, window)))


@pytest.mark.parametrize(
    ("name", "printed"), [("Window", "Window(window=3)"), ("Chunk", "Chunk(size=3)")]
)
def test_masks_of_positions_are_values(column, name, printed):
    make = getattr(column, name)
    assert make(3) == make(3) != make(4)
    assert make(3) != (column.Chunk if name == "Window" else column.Window)(3)
    assert hash(make(3)) == hash(make(3))
    assert pickle.loads(pickle.dumps(make(3))) == make(3)
    assert repr(make(3)) == printed


def test_chunks_are_squares_along_the_diagonal(column):
    where = column.array(np.arange(7))
    mask = column.numpy(column.Chunk(3)(where, where))
    rows = ["".join(map(str, row)) for row in mask.astype(int)]
    assert rows == ["1110000"] * 3 + ["0001110"] * 3 + ["0000001"]


@given(st.integers(1, 5), st.lists(st.integers(-9, 300), min_size=1, max_size=5))
def test_tokens_of_a_chunk_stand_between_two_multiples_of_its_size(column, size, places):
    small, step = column.array(np.array(places, np.int16)), 70 * size
    got = column.numpy(column.Chunk(step)(small, small))
    starts = [max(s for s in range(-step, 301, step) if s <= p) for p in places]
    assert np.array_equal(got, np.equal.outer(starts, starts))


MASKS = {
    "window": lambda column: column.Window(3),
    "chunk": lambda column: column.Chunk(3),
    "packed": lambda column: (  # two texts in one row, whose positions begin again
        lambda q, k: (q[..., :, None] // 100) == (k[..., None, :] // 100)
    ),
}
WHERE = {
    "one row": np.array([0, 1, 2, 3, 100, 101, 102]),
    "one for each": np.array([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 100, 101, 102, 103]]),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_may_be_a_function_of_positions(column, mask, where, causal):
    mask, where = MASKS[mask](column), column.array(WHERE[where])
    q, k, v = (column.array(draw(seed, 2, 2, 7, 4)) for seed in range(3))
    pairs = mask(where, where)
    pairs = pairs[:, None] if where.ndim == 2 else pairs
    options = {"causal": causal, "query_positions": where, "key_positions": where}
    for function, arrays in [
        (column.attention_weights, (q, k)),
        (column.scaled_dot_product_attention, (q, k, v)),
    ]:
        got = function(*arrays, mask=mask, **options)
        assert_close(column, got, column.numpy(function(*arrays, mask=pairs, **options)))


def test_layers_take_a_mask_that_is_a_function(column):
    x = column.array(draw(4, 2, 6, 8))
    layer = column.multi_head([column.array(draw(5, 8, 8))] * 4, 2)
    got = layer(x, mask=column.Window(2), causal=True)
    want = layer(x, mask=column.window_mask(6, 6, 2), causal=True)
    assert_close(column, got, column.numpy(want))


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
    # the last W that a cache has room for
    stored = column.numpy(window(n, n, half) & causal)
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
