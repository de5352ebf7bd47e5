"""CoPE."""

import math

import numpy as np
import pytest

from tests.conftest import REFERENCE, TWINS, assert_close, assert_twin_agrees, draw

DIM, HEADS, HEAD_DIM, N, MAX_LEN = 6, 2, 3, 5, 4
TABLE = draw(130, MAX_LEN, HEAD_DIM)
PROJECTIONS = [draw(131 + i, DIM, DIM) / 2 for i in range(4)]
OPEN = 80.0  # a score whose gate a float32 cannot tell from 1
LONG = 2**16
# of a count to 63 over LONG keys, relative to it
COUNT = {"float64": 1e-12, "float32": 2e-6}
PER_EXAMPLE = np.array([np.arange(N), 3 + 2 * np.arange(N)])
# queries that have passed 2 and 3, or 3 and 4 of these keys
AT = np.array([[1, 2], [7, 9]])

# batch axes, n_q, rows of the table, query positions, key positions
CASES = {
    "no batch axis": ((), N, MAX_LEN, np.arange(N), np.arange(N)),
    "two rows": ((2,), N, 2, np.arange(N), np.arange(N)),
    "more rows than keys": ((2,), N, 3 * N, np.arange(N), np.arange(N)),
    "offset and gaps": ((2,), 2, MAX_LEN, np.array([2.5, 9]), np.array([-4, 0, 2.5, 8, 9])),
    "per example": ((2,), 2, MAX_LEN, AT, PER_EXAMPLE),
    "no keys": ((2,), 2, MAX_LEN, np.arange(2), np.arange(0)),
}  # fmt: skip


def arrays(case):
    batch, n_q, max_len, _, key_positions = case
    n_k = key_positions.shape[-1]
    return (
        draw(140, max_len, HEAD_DIM) / 2,
        draw(141, *batch, HEADS, n_q, HEAD_DIM) / 2,
        draw(142, *batch, HEADS, n_k, HEAD_DIM),
    )


def cope(column, table):
    return column.with_parameters("CoPE", {"table": table}, *table.shape)


def scores(column, case, table, query, key):
    where = map(column.positions, case[3:])
    return cope(column, table).scores(query, key, *where)


def naive(table, query, key, query_positions, key_positions):
    """One head, pair by pair."""
    out = np.zeros((len(query), len(key)))
    for i, q in enumerate(query):
        for j in range(len(key)):
            count = 0.0
            for l in range(j, len(key)):  # noqa: E741
                if key_positions[l] <= query_positions[i]:
                    count += 1 / (1 + math.exp(-q @ key[l] / math.sqrt(len(q))))
            count = min(count, len(table) - 1)
            below = math.floor(count)
            out[i, j] = q @ table[below]
            if count > below:
                out[i, j] += (count - below) * (q @ (table[below + 1] - table[below]))
    return out


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_scores_are_those_of_counting_pair_by_pair(column, case):
    table, query, key = arrays(case)
    batch, n_q, _, query_positions, key_positions = case
    n_k = key_positions.shape[-1]
    want = np.zeros((*batch, HEADS, n_q, n_k))
    query_positions = np.broadcast_to(query_positions, (*batch, n_q))
    key_positions = np.broadcast_to(key_positions, (*batch, n_k))
    for b in np.ndindex(*batch):
        for h in range(HEADS):
            want[(*b, h)] = naive(
                table, query[(*b, h)], key[(*b, h)], query_positions[b], key_positions[b]
            )
    got = scores(column, case, *map(column.array, (table, query, key)))
    assert_close(column, got, want)


def test_scores_and_their_gradients_agree_with_the_reference(twin):
    case = CASES["per example"]
    assert_twin_agrees(twin, lambda column, *xs: scores(column, case, *xs), *arrays(case))


@pytest.fixture(params=TWINS[:2], ids=lambda twin: twin.name)
def exact(request):
    """PyTorch and JAX in float64."""
    with request.param.mode():
        yield request.param


@pytest.mark.parametrize("gate", [0, OPEN])
def test_gradients_at_whole_counts_agree_with_the_reference(exact, gate):
    """Gates of 1/2 or 1 give whole counts, where the interpolation has a corner."""
    case = CASES["no batch axis"]
    table, query, key = arrays(case)
    query[..., 0], key[...] = 2, 0
    key[..., 0] = gate

    def compute(column, *inputs):
        return scores(column, case, *inputs)

    assert_twin_agrees(exact, compute, table, query, key)


def gated(column, gates, max_len=MAX_LEN):
    """Scores of one query `[1]` at the last of some keys whose gates are these."""
    with np.errstate(divide="ignore"):
        key = np.log(gates) - np.log1p(-np.asarray(gates))
    key = np.clip(key, -100, 100)[:, None]
    n = len(key)
    table = np.arange(max_len)[:, None] * 10.0
    out = cope(column, column.array(table)).scores(
        column.array(np.ones((1, 1, 1))),
        column.array(key[None]),
        column.positions(np.array([n - 1])),
        column.positions(np.arange(n)),
    )
    return column.numpy(out)[0, 0]


def test_open_gates_count_tokens_until_the_table_ends(column):
    got = gated(column, [1.0] * 6)
    assert np.allclose(got, [30, 30, 30, 30, 20, 10], rtol=1e-12, atol=0)


def test_a_count_over_many_keys_is_right(precise_twin):
    gates = np.full(LONG, 63.5 / LONG)
    gates[-7] = 0.25
    want = gated(REFERENCE, gates, max_len=65)
    got = gated(precise_twin, gates, max_len=65)
    assert want[0] / 10 == pytest.approx(63.75, rel=1e-4)
    assert np.max(np.abs(got / want - 1)) <= COUNT[precise_twin.dtype]


def test_counts_that_reached_the_end_have_no_gradient(exact):
    case = CASES["no batch axis"]
    table, query, key = arrays(case)
    query, case = query[:, -2:], ((), 2, 2, np.arange(N - 2, N), np.arange(N))
    query[..., 0], key[..., 0] = 4, OPEN  # from the last but two keys on, counts end
    _, (_, _, slope) = exact.value_and_gradients(
        lambda *inputs: scores(exact, case, *inputs), (table[:2], query, key)
    )
    assert np.abs(slope).max() < 1e-3


def layer_of(column, table=TABLE):
    bias = cope(column, column.array(table))
    return column.multi_head([column.array(w) for w in PROJECTIONS], HEADS, bias=bias)


def test_left_padding_changes_nothing(column):
    layer, x, pad = layer_of(column), draw(146, 2, N, DIM), 2
    alone = column.numpy(layer(*[column.array(x)] * 3, causal=True))
    padding = np.full((2, pad, DIM), np.nan)
    padded = column.array(np.concatenate([padding, x], axis=1))
    seen = column.array((np.arange(pad + N) >= pad)[None])
    out = layer(padded, padded, padded, causal=True, mask=seen)
    assert_close(column, out[:, pad:], alone)


def test_packed_sequences_without_positions_are_as_if_alone(column):
    layer, x = layer_of(column), draw(147, N, DIM)
    owner = np.array([0, 0, 0, 1, 1])
    mask = column.array(owner[:, None] == owner)
    out = layer(*[column.array(x)] * 3, causal=True, mask=mask)
    for part in (slice(0, 3), slice(3, 5)):
        alone = layer(*[column.array(x[part])] * 3, causal=True)
        assert_close(column, out[part], column.numpy(alone))
