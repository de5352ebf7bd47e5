"""Stick-breaking."""

import math

import numpy as np
import pytest

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

DIM, HEADS, HEAD_DIM, N = 6, 2, 3, 5
PROJECTIONS = [draw(320 + i, DIM, DIM) / 2 for i in range(4)]
LONG = 2**16

# batch axes, query positions, key positions
CASES = {
    "no batch axis": ((), np.arange(N), np.arange(N)),
    "offset and gaps": ((2,), np.array([2.5, 9]), np.array([-4, 0, 2.5, 8, 9])),
    "per example": (
        (2,),
        np.array([[2, 4], [7, 9]]),
        np.array([np.arange(N), 3 + 2 * np.arange(N)]),
    ),
    "unsigned": ((), np.array([1, 3], np.uint8), np.arange(N).astype(np.uint8)),
    "no keys": ((2,), np.arange(2), np.arange(0)),
}


def heads(case):
    batch, *where = case
    return [
        draw(324 + i, *batch, HEADS, p.shape[-1], HEAD_DIM) / (2 - i)
        for i, p in enumerate(where)
    ]


def scores(column, case, query, key):
    return column.StickBreaking().scores(query, key, *map(column.positions, case[1:]))


def broken(query, key, query_positions, key_positions):
    """The weights of one head, from stick to stick; keys after the query have None."""
    out = np.full((len(query), len(key)), np.nan)
    for i, q in enumerate(query):
        stick = 1.0
        for j in reversed(range(len(key))):
            if key_positions[j] < query_positions[i]:
                share = 1 / (1 + math.exp(-q @ key[j] / math.sqrt(len(q))))
                out[i, j] = stick * share
                stick *= 1 - share
        out[i, key_positions == query_positions[i]] = stick
    return out


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_with_the_scores_it_is_the_logarithm_of_the_weights(column, case):
    batch, *where = case
    query, key = heads(case)
    got = column.numpy(scores(column, case, column.array(query), column.array(key)))
    products = query @ key.mT / math.sqrt(HEAD_DIM)
    where = [np.broadcast_to(p, (*batch, p.shape[-1])) for p in where]
    for b in np.ndindex(*batch):
        for h in range(HEADS):
            at = (*b, h)
            want = broken(query[at], key[at], where[0][b], where[1][b])
            seen = ~np.isnan(want)
            assert error(np.exp(got + products)[at][seen], want[seen]) <= BOUND["float64"]
            assert not got[at][~seen].any()


def test_scores_and_their_gradients_agree_with_the_reference(twin):
    case = CASES["per example"]
    assert_twin_agrees(twin, lambda column, *xs: scores(column, case, *xs), *heads(case))


def test_a_sum_over_many_keys_is_right(twin):
    share = 63.5 / LONG  # what each of them breaks off
    key = twin.array(np.full((1, LONG, 1), math.log(share / (1 - share))))
    case = ((), np.array([LONG - 1]), np.arange(LONG))
    got = twin.numpy(scores(twin, case, twin.array(np.ones((1, 1, 1))), key))[0, 0]
    logit = np.float64(twin.numpy(key)[0, 0, 0])
    want = -np.log1p(np.exp(logit)) * np.arange(LONG - 1, 0, -1)
    bound = {"float64": 1e-10, "float32": 2e-6, "bfloat16": 2**-8}[twin.dtype]
    assert np.max(np.abs(got[:-1] / want - 1)) <= bound


@pytest.mark.parametrize("size", [-60.0, 60.0])
def test_extreme_scores_have_finite_biases_and_slopes(precise_twin, size):
    key = np.full((HEADS, N, HEAD_DIM), size)
    value, slopes = precise_twin.value_and_gradients(
        lambda *inputs: scores(precise_twin, CASES["no batch axis"], *inputs),
        [np.ones((HEADS, N, HEAD_DIM)), key],
    )
    assert all(np.isfinite(x).all() for x in (value, *slopes))


def authors(q, k, v):
    """`stickbreaking` of the authors' repository in other words, and their remainder."""
    n = q.shape[-2]
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    before = np.tri(n, k=-1, dtype=bool)
    log_z = np.where(before, -np.log1p(np.exp(-logits)), -np.inf)
    log_beta = np.where(before, -np.log1p(np.exp(logits)), 0)
    later = np.tril(np.ones((n, n)), -1)  # sums over the keys after each
    weights = np.exp(log_z + log_beta @ later)
    remainder = 1 - weights.sum(-1, keepdims=True)
    return weights @ v + remainder * v


def layer_of(column):
    weights = [column.array(w) for w in PROJECTIONS]
    return column.multi_head(weights, HEADS, bias=column.StickBreaking())


def test_a_layer_breaks_the_authors_sticks_also_step_by_step(column):
    """The empty slots of a cache stand after all queries, and break off nothing."""
    x = draw(331, 2, N, DIM)
    q, k, v = (REFERENCE.split_heads(x @ w, HEADS) for w in PROJECTIONS[:3])
    want = REFERENCE.merge_heads(authors(q, k, v)) @ PROJECTIONS[3]
    layer, x = layer_of(column), column.array(x)
    assert_close(column, layer(x, causal=True), want)
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    cache = column.KVCache.init((2,), HEADS, N + 3, HEAD_DIM, **dtype)
    for part in (slice(0, 2), slice(2, 3), slice(3, N)):
        out, cache = layer(x[:, part], cache=cache)
        assert_close(column, out, want[:, part])


def test_padding_at_positions_after_all_queries_changes_nothing(column):
    layer, x, pad = layer_of(column), draw(334, 2, N, DIM), 3
    alone = column.numpy(layer(*[column.array(x)] * 3, causal=True))
    padded = np.concatenate([draw(335, 2, pad, DIM), x], axis=1)
    seen = column.array((np.arange(pad + N) >= pad)[None])
    where = column.positions(np.r_[np.full(pad, 10**6), np.arange(N)])
    arrays = [column.array(padded)] * 3
    out = layer(*arrays, causal=True, mask=seen, key_positions=where)
    assert_close(column, out[:, pad:], alone)
    other = column.numpy(layer(*arrays, causal=True, mask=seen))[:, pad:]
    assert np.abs(other - alone).max() > 1e-2  # what the docstring warns of
