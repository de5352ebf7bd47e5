"""A cache of latent vectors."""

import jax
import numpy as np
import pytest
import torch

import posattn.torch.attention.latent_cache as torch_cache
from tests.conftest import draw

WIDTH, SLOTS = 3, 5
LATENT = draw(80, 2, 4, WIDTH)
PADDED = np.array([[-1, -1, 0, 1], [0, 1, 2, 3]])


def empty(column):
    dtype = {"torch": {"dtype": torch.float64}}.get(column.name, {})
    return column.LatentCache.init((2,), SLOTS, WIDTH, **dtype)


def held(column, cache, example):
    """The vectors of an example by position."""
    latent, positions = column.numpy(cache.latent), np.asarray(cache.positions)
    known = positions[example] < 2**31 - 1
    return dict(
        zip(positions[example][known].tolist(), latent[example][known], strict=True)
    )


def test_tokens_stand_at_positions_and_padding_nowhere(column):
    """What is not kept leaves no NaN behind."""
    latent = LATENT.copy()
    latent[0, :2] = np.nan
    cache = empty(column).append(column.array(latent), column.array(PADDED))
    for example in (0, 1):
        kept = held(column, cache, example)
        assert sorted(kept) == [p for p in PADDED[example] if p >= 0]
        for latent, p in zip(LATENT[example], PADDED[example], strict=True):
            assert p < 0 or np.array_equal(kept[p], latent)
    assert np.array_equal(column.numpy(cache.next_positions(2)), [[2, 3], [4, 5]])
    assert np.isfinite(column.numpy(cache.latent)).all()


def test_tokens_at_one_position_are_all_kept(column):
    none = column.array(LATENT[:, :0]), column.array(np.zeros((2, 0), int))
    cache = empty(column).append(*none)
    cache = cache.append(column.array(LATENT), column.array(np.array([0, 1, 1, 9])))
    cache = cache.append(column.array(LATENT[:, :1] + 1), column.array(np.array([1])))
    kept = column.numpy(cache.latent)[:, :SLOTS]
    assert np.array_equal(kept, np.concatenate([LATENT, LATENT[:, :1] + 1], axis=1))
    assert np.array_equal(column.numpy(cache.next_positions(1)), [[10], [10]])


def test_beyond_the_end_on_a_device_is_nan(torch_column, monkeypatch):
    """Nothing is read there, since that would stop the program until the device is done."""
    monkeypatch.setattr(torch_cache, "readable", lambda positions: False)
    where = torch.tensor([[2, 3, 4, 5], [0, 1, -1, -1]])
    cache = empty(torch_column)
    for _ in range(2):
        cache = cache.append(torch_column.array(LATENT), where)
    assert cache.latent[0, 4].isnan().all()
    assert cache.latent[1].isfinite().all()


def test_trimming_too_much_on_a_device_is_nan(torch_column, jax_single, monkeypatch):
    monkeypatch.setattr("posattn.torch.attention.cache.readable", lambda x: False)
    assert empty(torch_column).trim(1).latent.isnan().all()
    assert np.isnan(jax.jit(lambda cache: cache.trim(1))(empty(jax_single)).latent).all()


@pytest.mark.usefixtures("unchecked")
def test_positions_that_do_not_fit_are_refused(column):
    cache, array = empty(column), column.array
    with pytest.raises(ValueError, match=r"room for all tokens, max_len = 5, got 8"):
        cache.append(array(LATENT), array(PADDED)).append(
            array(LATENT), array(np.arange(4))
        )
    short = column.LatentCache(array(LATENT), array(np.zeros((2, 3), int)))
    with pytest.raises(
        ValueError, match=r"positions must have shape \(2, 4\), got \(2, 3\)"
    ):
        short.next_positions(1)
