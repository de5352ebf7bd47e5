"""Masks."""

import pickle

import numpy as np
import pytest

from tests.conftest import assert_close, draw

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


def test_a_window_is_its_mask_as_a_function_of_positions(column):
    where = (column.positions(p) for p in (np.arange(2, 7), np.arange(7)))
    got = column.numpy(column.Window(3)(*where))
    assert np.array_equal(got, column.numpy(column.window_mask(5, 7, 3)))


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


def test_chunks_of_negative_and_small_integers_do_not_wrap(column):
    """A quotient rounded towards 0 would join -1 and 1; 300 does not fit 8 bits."""
    where = column.array(np.array([-100, -1, 0, 1, 100], np.int8))
    rows = column.numpy(column.Chunk(300)(where, where)).astype(int).tolist()
    assert rows == [[1, 1, 0, 0, 0]] * 2 + [[0, 0, 1, 1, 1]] * 3


def test_a_mask_of_positions_keeps_packed_texts_apart(column):
    """Two texts in one row, whose positions begin again, and each row has its own."""
    where = column.positions(
        np.array([[0, 1, 2, 3, 100, 101, 102], [0, 1, 100, 101, 102, 103, 104]])
    )

    def same_text(q, k):
        return (q[..., :, None] // 100) == (k[..., None, :] // 100)

    q, k, v = (column.array(draw(seed, 2, 2, 7, 4)) for seed in range(3))
    options = {"causal": True, "query_positions": where, "key_positions": where}
    got = column.scaled_dot_product_attention(q, k, v, mask=same_text, **options)
    for row, first in enumerate([4, 2]):
        for text in (slice(first), slice(first, 7)):
            alone = [x[row : row + 1, :, text] for x in (q, k, v)]
            want = column.scaled_dot_product_attention(*alone, causal=True)
            assert_close(column, got[row : row + 1, :, text], column.numpy(want))


def test_windows_of_longformer_and_mistral_by_their_own_words(column):
    past = np.subtract.outer(np.arange(7), np.arange(7))
    each_side = column.numpy(column.window_mask(7, 7, 3))  # w / 2 = 2 on each side
    assert np.array_equal(each_side, abs(past) <= 2)
    causal = column.window_mask(7, 7, 3) & column.causal_mask(7)  # the last 3 of a cache
    assert np.array_equal(column.numpy(causal), (past >= 0) & (past < 3))


@pytest.mark.parametrize("lengths", [[3, 0, 4], [[1, 2], [4, 0], [0, 3]]])
def test_lengths_count_the_visible_keys(column, lengths):
    mask = column.numpy(column.length_mask(column.array(lengths), 4))
    visible = np.array(lengths).reshape(3, -1)
    assert mask.shape == (*visible.shape, 4)
    assert np.array_equal(mask.sum(axis=-1), visible)
    assert np.array_equal(mask, np.sort(mask, axis=-1)[..., ::-1])
