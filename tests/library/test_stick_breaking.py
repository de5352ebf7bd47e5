"""Stick-breaking."""

import math

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

DIM, HEADS, HEAD_DIM, N = 6, 2, 3, 5
PROJECTIONS = [draw(320 + i, DIM, DIM) / 2 for i in range(4)]
LONG = 2**20
SUM = {"float64": 1e-10, "float32": 2e-6}  # relative, of a sum over LONG keys

# batch axes, query positions, key positions
CASES = {
    "no batch axis": ((), np.arange(N), np.arange(N)),
    "batch axes": ((2, 2), np.arange(N), np.arange(N)),
    "last queries": ((2,), np.arange(N - 2, N), np.arange(N)),
    "offset and gaps": ((2,), np.array([2.5, 9]), np.array([-4, 0, 2.5, 8, 9])),
    "per example": (
        (2,),
        np.array([[2, 4], [7, 9]]),
        np.array([np.arange(N), 3 + 2 * np.arange(N)]),
    ),
    "unsigned": ((), np.array([1, 3], np.uint8), np.arange(N).astype(np.uint8)),
    "no queries": ((2,), np.arange(0), np.arange(N)),
    "no keys": ((2,), np.arange(2), np.arange(0)),
    "empty batch": ((0,), np.arange(N), np.arange(N)),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


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


@every_case
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


@every_case
def test_scores_and_their_gradients_agree_with_the_reference(twin, case):
    def compute(column, *inputs):
        return scores(column, case, *inputs)

    assert_twin_agrees(twin, compute, *heads(case))


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


def test_attention_is_that_of_the_authors_with_the_remainder(column):
    q, k, v = (draw(326 + i, 2, HEADS, N, HEAD_DIM) for i in range(3))
    bias = scores(column, CASES["no batch axis"], column.array(q), column.array(k))
    arrays = [column.array(x) for x in (q, k, v)]
    got = column.scaled_dot_product_attention(*arrays, causal=True, bias=bias)
    assert error(column.numpy(got), authors(q, k, v)) <= BOUND["float64"]


def test_weights_sum_to_one_before_the_softmax(column):
    q, k = (draw(329 + i, HEADS, N, HEAD_DIM) for i in range(2))
    bias = scores(column, CASES["no batch axis"], column.array(q), column.array(k))
    weights = np.exp(column.numpy(bias) + q @ k.mT / math.sqrt(HEAD_DIM))
    assert np.allclose(np.tril(weights).sum(-1), 1, rtol=1e-12)


def test_of_equal_keys_the_nearest_gets_most(column):
    case = ((), np.array([4]), np.arange(5))
    q, k = np.ones((1, 1, 1)), np.full((1, 5, 1), 0.5)
    bias = column.numpy(scores(column, case, column.array(q), column.array(k)))[0, 0]
    assert (np.diff(bias[:4]) > 0).all()
    assert np.allclose(np.diff(bias[:4]), math.log1p(math.exp(0.5)))


@given(
    st.integers(-(2**20), 2**20),
    st.lists(st.integers(1, 2**16), min_size=N, max_size=N),
)
def test_only_the_order_of_positions_matters(column, start, gaps):
    case = CASES["last queries"]
    inputs = [column.array(x) for x in heads(case)]
    where = start + np.cumsum(gaps)
    moved = (case[0], where[N - 2 :], where)
    straight, shifted = (column.numpy(scores(column, c, *inputs)) for c in (case, moved))
    assert np.array_equal(straight, shifted)


@pytest.mark.slow
def test_a_sum_over_a_million_keys_is_right(precise_twin):
    share = 63.5 / LONG  # what each of them breaks off
    key = np.full((1, LONG, 1), math.log(share / (1 - share)))
    case = ((), np.array([LONG - 1]), np.arange(LONG))
    got = precise_twin.numpy(
        scores(
            precise_twin,
            case,
            precise_twin.array(np.ones((1, 1, 1))),
            precise_twin.array(key),
        )
    )[0, 0]
    single = np.float64(precise_twin.numpy(precise_twin.array(key))[0, 0, 0])
    want = -np.log1p(np.exp(single)) * np.arange(LONG - 1, 0, -1)
    assert np.max(np.abs(got[:-1] / want - 1)) <= SUM[precise_twin.dtype]


@pytest.mark.parametrize("size", [-60.0, 60.0])
def test_extreme_scores_have_finite_biases_and_slopes(precise_twin, size):
    case = CASES["no batch axis"]
    key = np.full((HEADS, N, HEAD_DIM), size)
    value, slopes = precise_twin.value_and_gradients(
        lambda *inputs: scores(precise_twin, case, *inputs),
        [np.ones((HEADS, N, HEAD_DIM)), key],
    )
    assert all(np.isfinite(x).all() for x in (value, *slopes))


def layer_of(column, projections=PROJECTIONS):
    weights = [column.array(w) for w in projections]
    return column.multi_head(weights, HEADS, bias=column.StickBreaking())


def test_a_layer_breaks_sticks(column):
    x = draw(331, 2, N, DIM)
    q, k, v = (REFERENCE.split_heads(x @ w, HEADS) for w in PROJECTIONS[:3])
    want = REFERENCE.merge_heads(authors(q, k, v)) @ PROJECTIONS[3]
    assert_close(column, layer_of(column)(*[column.array(x)] * 3, causal=True), want)


def test_the_whole_layer_and_its_gradients_agree_with_the_reference(twin):
    def layer(column, x, *projections):
        bias = column.StickBreaking()
        return column.multi_head(list(projections), HEADS, bias=bias)(x, x, x, causal=True)

    x = draw(332, 2, N, DIM) / 2
    assert_twin_agrees(twin, layer, x, *(w / 2 for w in PROJECTIONS))


@pytest.mark.parametrize("n_q", [1, 3])
def test_decoding_with_cached_keys_repeats_prefill(column, n_q):
    layer, x = layer_of(column), column.array(draw(333, 2, N, DIM))
    whole = column.numpy(layer(x, x, x, causal=True))
    assert_close(column, layer(x[:, N - n_q :], x, x, causal=True), whole[:, N - n_q :])


@pytest.mark.slow
def test_steps_with_a_cache_equal_prefill(column):
    """Its empty slots stand after all queries, and break off nothing."""
    layer, x = layer_of(column), column.array(draw(336, 2, N, DIM))
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    cache = column.KVCache.init((2,), HEADS, N + 3, HEAD_DIM, **dtype)
    whole = column.numpy(layer(x, causal=True))
    for part in (slice(0, 2), slice(2, 3), slice(3, N)):
        out, cache = layer(x[:, part], cache=cache)
        assert_close(column, out, whole[:, part])


@pytest.mark.slow
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


def test_bfloat16_heads_stay_bfloat16(twin):
    query, key = map(twin.array, heads(CASES["no batch axis"]))
    got = scores(twin, CASES["no batch axis"], query, key)
    assert str(got.dtype).rpartition(".")[2] == twin.dtype


def test_it_is_a_value(column):
    made = column.StickBreaking()
    assert made == column.StickBreaking()
    assert hash(made) == hash(column.StickBreaking())
    assert made != 1
    if column.name == "jax":
        assert jax.tree.leaves(made) == []


@pytest.mark.slow
def test_torch_compiles_it_once_for_all_lengths(torch_column, unchecked):
    torch.compiler.reset()
    made, graphs = torch_column.StickBreaking(), []
    assert repr(made) == "StickBreaking()"

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(made.scores, fullgraph=True, dynamic=True, backend=count)
    for n in (7, 9, 4):
        query, key = torch.randn(HEADS, n, 3), torch.randn(HEADS, n + 5, 3)
        where = torch.arange(5, n + 5), torch.arange(n + 5)
        want = made.scores(query, key, *where)
        assert torch.allclose(compiled(query, key, *where), want, atol=1e-5)
    assert len(graphs) == 1
