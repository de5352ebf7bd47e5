"""A cache of latent vectors."""

import numpy as np
import pytest
import torch

import posattn.torch.attention.latent_cache as torch_cache
from tests.conftest import draw

WIDTH, SLOTS = 3, 5
LATENT = draw(80, 2, 4, WIDTH)


def empty(column, batch=(2,), slots=SLOTS):
    dtype = {"torch": {"dtype": torch.float64}}.get(column.name, {})
    return column.LatentCache.init(batch, slots, WIDTH, **dtype)


def held(column, cache, example):
    """The vectors of an example by position."""
    latent, positions = column.numpy(cache.latent), np.asarray(cache.positions)
    known = positions[example] < 2**31 - 1
    return dict(
        zip(positions[example][known].tolist(), latent[example][known], strict=True)
    )


def test_each_token_stands_at_its_position_and_padding_is_not_kept(column):
    where = np.array([[-1, -1, 0, 1], [0, 1, 2, 3]])
    cache = empty(column).append(column.array(LATENT), column.array(where))
    for example in (0, 1):
        kept = held(column, cache, example)
        assert sorted(kept) == [p for p in where[example] if p >= 0]
        for latent, p in zip(LATENT[example], where[example], strict=True):
            assert p < 0 or np.array_equal(kept[p], latent)
    assert np.array_equal(column.numpy(cache.next_positions(2)), [[2, 3], [4, 5]])


def test_positions_that_all_examples_share_and_a_token_written_again(column):
    cache = empty(column).append(column.array(LATENT), column.array(np.arange(4)))
    cache = cache.append(column.array(LATENT[:, :1] + 1), column.array(np.array([2])))
    assert np.array_equal(held(column, cache, 1)[2], LATENT[1, 0] + 1)
    assert np.array_equal(held(column, cache, 1)[3], LATENT[1, 3])


def test_a_query_sees_what_does_not_stand_after_it(column):
    cache = empty(column)
    assert np.array_equal(column.numpy(cache.next_positions(1)), [[0], [0]])
    where = np.array([[-1, -1, 0, 1], [0, 1, 2, 3]])
    cache = cache.append(column.array(LATENT), column.array(where))
    seen = column.numpy(cache.mask(column.array(np.array([[1], [2]]))))[..., :SLOTS]
    assert np.array_equal(seen[:, 0], [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])
    others = column.array(np.array([5, 2]))
    seen = column.numpy(cache.mask(column.array(np.array([2, 6])), others))
    assert np.array_equal(seen, [[False, True], [True, True]])


def test_no_tokens_are_kept_where_none_come(column):
    nothing = column.array(LATENT[:, :0])
    cache = empty(column).append(nothing, column.array(np.arange(0)))
    assert held(column, cache, 0) == {}


def test_on_a_device_a_token_beyond_the_end_makes_its_example_nan(
    torch_column, monkeypatch
):
    """Nothing is read there, since that would stop the program until the device is done."""
    monkeypatch.setattr(torch_cache, "readable", lambda positions: False)
    where = torch.tensor([[2, 3, 4, 5], [0, 1, 2, 3]])
    cache = empty(torch_column).append(torch_column.array(LATENT), where)
    assert cache.latent[0, 4].isnan().all()
    assert cache.latent[1].isfinite().all()


@pytest.mark.usefixtures("unchecked")
def test_wrong_input_is_refused(column):
    cache, array = empty(column), column.array
    init = column.LatentCache.init
    for call, kind, text in [
        (lambda: init((2,), 0, 3), ValueError, "max_len must be a positive integer, got 0"),
        (lambda: init((2,), 4, 0), ValueError, "width must be a positive integer, got 0"),
        (lambda: init(2, 4, 3), TypeError, "batch_shape must be a tuple of non-negative integers, got 2"),
        (lambda: init((-1,), 4, 3), ValueError, r"batch_shape\[0\] must be a non-negative integer, got -1"),
        (lambda: cache.next_positions(-1), ValueError, "n must be a non-negative integer, got -1"),
        (lambda: cache.append(array(LATENT[..., :2]), array(np.arange(4))), ValueError,
         r"latent must have shape \(2, n, 3\), got \(2, 4, 2\)"),
        (lambda: cache.append(array(LATENT), array(np.arange(3))), ValueError,
         r"query_positions must have shape \(4,\) or \(2, 4\), got \(3,\)"),
        (lambda: cache.append(array(LATENT), array(draw(1, 4))), TypeError,
         "query_positions must have an integer dtype, got float64"),
        (lambda: cache.append(array(LATENT), array(np.arange(2, 6))), ValueError,
         "query_positions must be less than max_len = 5 of the cache, got 5"),
        (lambda: column.LatentCache(array(LATENT), array(np.zeros((2, 3), int))).mask(array(np.arange(2))),
         ValueError,
         r"positions must have shape \(2, 4\), got \(2, 3\)"),
    ]:  # fmt: skip
        with pytest.raises(kind, match=text):
            call()
