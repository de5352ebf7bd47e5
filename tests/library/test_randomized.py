"""Randomised positions."""

from itertools import combinations

import jax
import numpy as np
import pytest
import torch

DRAWS = 200
SIGMAS = 5  # how far a number may be from its expectation, in standard deviations


def sample(column, length, max_len, draws=DRAWS):
    """Many draws, `(draws, length)`, each from an rng of its own."""
    drawn = (
        column.randomized_positions(length, max_len, rng=column.rng(seed))
        for seed in range(draws)
    )
    return np.array([column.numpy(positions) for positions in drawn])


@pytest.mark.parametrize(("length", "max_len"), [(0, 5), (1, 1), (9, 9), (50, 4096)])
def test_positions_increase_below_the_maximum(column, length, max_len):
    positions = sample(column, length, max_len, draws=3)
    assert positions.shape == (3, length)
    assert (np.diff(positions) > 0).all()
    assert ((positions >= 0) & (positions < max_len)).all()
    if length == 50:
        assert len(np.unique(positions, axis=0)) == 3
        assert np.array_equal(sample(column, length, max_len, draws=3), positions)


def test_every_subset_is_equally_likely(column):
    drawn, subsets = sample(column, 2, 4), list(combinations(range(4), 2))
    counts = np.array([(drawn == s).all(axis=-1).sum() for s in subsets])
    share = 1 / len(subsets)
    deviation = np.sqrt(DRAWS * share * (1 - share))
    assert np.abs(counts - DRAWS * share).max() < SIGMAS * deviation


@pytest.mark.usefixtures("unchecked")
def test_without_an_rng_there_is_nothing_to_draw_from(column):
    with pytest.raises(TypeError, match="rng"):
        column.randomized_positions(3, 5)
    with pytest.raises(TypeError, match=r"rng must be a .*, got NoneType"):
        column.randomized_positions(3, 5, rng=None)


def test_jax_draws_once_per_example_under_vmap(jax_single):
    keys = jax.random.split(jax.random.key(0), 3)
    draw_one = jax.jit(lambda key: jax_single.randomized_positions(4, 100, rng=key))
    drawn = jax.vmap(draw_one)(keys)
    assert len(np.unique(drawn, axis=0)) == 3
    assert np.array_equal(drawn[1], draw_one(keys[1]))


def test_torch_puts_them_where_it_is_told(torch_column):
    there = torch_column.randomized_positions(3, 5, rng=torch.Generator(), device="meta")
    assert there.device.type == "meta"
