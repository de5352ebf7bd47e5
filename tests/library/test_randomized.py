"""Randomised positions."""

from itertools import combinations

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import assert_close, draw

DRAWS = 200
SIGMAS = 5  # how far a frequency may be from its expectation, in standard deviations


def sample(column, length, max_len, draws=DRAWS):
    """Many draws, `(draws, length)`, each from an rng of its own."""
    return np.array(
        [
            column.numpy(column.randomized_positions(length, max_len, rng=column.rng(seed)))
            for seed in range(draws)
        ]
    )


def assert_frequency(counts, probability):
    deviation = np.sqrt(DRAWS * probability * (1 - probability))
    assert np.abs(np.asarray(counts) - DRAWS * probability).max() < SIGMAS * deviation


@pytest.mark.parametrize(("length", "max_len"), [(0, 5), (1, 1), (4, 9), (50, 4096)])
@given(seed=st.integers(0, 2**31 - 1))
def test_positions_are_increasing_and_below_the_maximum(column, length, max_len, seed):
    positions = column.numpy(
        column.randomized_positions(length, max_len, rng=column.rng(seed))
    )
    assert positions.shape == (length,)
    assert positions.dtype.kind == "i"
    assert (np.diff(positions) > 0).all()
    assert ((positions >= 0) & (positions < max_len)).all()


def test_every_subset_is_equally_likely(column):
    drawn = sample(column, 2, 4)
    subsets = list(combinations(range(4), 2))
    assert_frequency([(drawn == s).all(axis=-1).sum() for s in subsets], 1 / len(subsets))


def test_means_are_evenly_spaced(column):
    drawn = sample(column, 3, 99)
    want = np.arange(1, 4) * 100 / 4 - 1
    assert np.abs(drawn.mean(axis=0) - want).max() < SIGMAS * 25 / np.sqrt(DRAWS)


def test_as_many_tokens_as_positions_get_all_of_them(column):
    assert np.array_equal(sample(column, 9, 9, draws=3), [range(9)] * 3)


def test_draws_repeat_with_their_rng_and_differ_without(column):
    first, again, other = (
        column.numpy(column.randomized_positions(20, 4096, rng=column.rng(seed)))
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_layers_and_encodings_take_them_as_positions(column):
    positions = column.randomized_positions(5, 4096, rng=column.rng(3))
    where = column.numpy(positions)
    want = np.concatenate([np.sin(where[:, None]), np.cos(where[:, None])], axis=-1)
    x = column.array(draw(90, 2, 5, 2))
    encoded = column.PositionalEncoding(2)(x, positions=positions)
    assert_close(column, encoded, column.numpy(x) + want)
    layer = column.learned(column.array(draw(91, 9, 2)))
    rows = column.randomized_positions(5, 9, rng=column.rng(3))
    assert_close(
        column,
        layer(x, positions=rows),
        column.numpy(x) + draw(91, 9, 2)[column.numpy(rows)],
    )


@pytest.mark.usefixtures("unchecked")
def test_without_an_rng_there_is_nothing_to_draw_from(column):
    with pytest.raises(TypeError, match="rng"):
        column.randomized_positions(3, 5)
    with pytest.raises(TypeError, match=r"rng must be a .*, got NoneType"):
        column.randomized_positions(3, 5, rng=None)


@pytest.mark.slow
def test_jax_draws_once_per_example_under_vmap_and_jit(jax_single):
    keys = jax.random.split(jax.random.key(0), 3)
    draw_one = jax.jit(lambda key: jax_single.randomized_positions(4, 100, rng=key))
    drawn = jax.vmap(draw_one)(keys)
    assert drawn.shape == (3, 4)
    assert len(np.unique(drawn, axis=0)) == 3
    assert np.array_equal(drawn[1], draw_one(keys[1]))


def test_torch_puts_them_where_it_is_told(torch_column):
    here = torch_column.randomized_positions(3, 5, rng=torch.Generator())
    assert here.device.type == "cpu"
    there = torch_column.randomized_positions(3, 5, rng=torch.Generator(), device="meta")
    assert there.device.type == "meta"
