"""The indexer: scores of keys, and keys of groups."""

import numpy as np
import pytest
import torch

import posattn.torch
from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, DIM, N_Q, N_K = 16, 4, 3, 7
QUERY, KEY = draw(300, 2, HEADS, N_Q, DIM), draw(301, 2, N_K, DIM)
WEIGHTS = draw(302, 2, N_Q, HEADS)
PADDED = np.array(
    [[False, False, True, True, True, True, True], [True] * 3 + [False] + [True] * 3]
)


def scores_by_hand(query, key, weights, scale):
    want = np.zeros((2, N_Q, N_K))
    for b, i, j in np.ndindex(want.shape):
        for h in range(HEADS):
            product = query[b, h, i] @ key[b, j] * scale
            want[b, i, j] += weights[b, i, h] * max(product, 0)
    return want


@pytest.mark.parametrize("scale", [None, 0.75])
def test_scores_are_weighted_sums_of_positive_products(column, scale):
    options = {} if scale is None else {"scale": scale}
    arrays = map(column.array, (QUERY, KEY, WEIGHTS))
    want = scores_by_hand(QUERY, KEY, WEIGHTS, scale or DIM**-0.5)
    assert (WEIGHTS < 0).any()
    assert_close(column, column.indexer_scores(*arrays, **options), want)


def test_without_weights_all_heads_count_alike(column):
    query, key = map(column.array, (QUERY, KEY))
    want = scores_by_hand(QUERY, KEY, np.ones_like(WEIGHTS), DIM**-0.5)
    assert_close(column, column.indexer_scores(query, key), want)


def test_gradients_of_scores_agree_with_the_reference(precise_twin):
    def run(column, *arrays):
        return column.indexer_scores(*arrays)

    assert_twin_agrees(precise_twin, run, QUERY, KEY, WEIGHTS)


def test_half_precision_keeps_the_order_of_scores():
    """In bfloat16 two of these scores would round to the same number."""
    query = torch.ones(1, 1, 256, dtype=torch.bfloat16)
    key = torch.stack([torch.ones(256), torch.ones(256)]).to(torch.bfloat16)
    key[1, 0] = 1.0078125
    scores = posattn.torch.indexer_scores(query, key, scale=1.0)
    assert scores.dtype == torch.float32
    assert scores.tolist() == [[256, 256.0078125]]


def members(mask, size):
    """The tokens of each complete group, counted without those that are masked."""
    tokens = np.flatnonzero(mask)
    return [tokens[i : i + size] for i in range(0, len(tokens) // size * size, size)]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_groups_are_counted_from_the_first_token(column, size):
    assert len(members(PADDED[0], 2)) < N_K // 2  # one group is not complete
    got = column.numpy(column.group_tokens(N_K, size, mask=column.array(PADDED)))
    assert got.shape == (2, N_K // size, size)
    for row, mask in zip(got, PADDED, strict=True):
        want = members(mask, size)
        assert row[: len(want)].tolist() == [list(tokens) for tokens in want]
        assert (row[len(want) :] == -1).all()
    plain = column.numpy(column.group_tokens(N_K, size))
    assert plain.tolist() == np.arange(N_K // size * size).reshape(-1, size).tolist()


def mixed(key, gates, groups, overlap):
    """A softmax of gates over the tokens of a group, channel by channel."""
    width = key.shape[-1] // 2 if overlap else key.shape[-1]
    rows = []
    for g, tokens in enumerate(groups):
        k, z = key[tokens][:, -width:], gates[tokens][:, -width:]
        if overlap and g:
            k = np.concatenate([key[groups[g - 1]][:, :width], k])
            z = np.concatenate([gates[groups[g - 1]][:, :width], z])
        weights = np.exp(z) / np.exp(z).sum(0)
        rows.append((weights * k).sum(0))
    return np.array(rows)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_a_group_mixes_its_keys_channel_by_channel(column, gated, overlap):
    gates = draw(303, 2, N_K, DIM)
    key = np.where(PADDED[..., None], KEY, np.nan)
    given = {"gates": column.array(gates)} if gated else {}
    got = column.group_keys(
        column.array(key), 2, mask=column.array(PADDED), overlap=overlap, **given
    )
    gates = gates if gated else np.zeros_like(gates)
    for row, keys, z, mask in zip(column.numpy(got), KEY, gates, PADDED, strict=True):
        want = mixed(keys, z, members(mask, 2), overlap)
        assert error(row[: len(want)], want) <= BOUND["float64"]
        assert (row[len(want) :] == 0).all()


def test_the_mean_is_what_gates_of_zero_give():
    got = REFERENCE.group_keys(KEY, 3)
    assert error(got, KEY[:, :6].reshape(2, 2, 3, DIM).mean(-2)) <= BOUND["float64"]


def test_gradients_of_groups_agree_with_the_reference(twin):
    def run(column, key, gates):
        mask = column.array(PADDED)
        return column.group_keys(key, 2, gates=gates, mask=mask, overlap=True)

    assert_twin_agrees(twin, run, KEY, draw(304, N_K, DIM))
