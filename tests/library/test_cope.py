"""CoPE."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

DIM, HEADS, HEAD_DIM, N, MAX_LEN = 6, 2, 3, 5, 4
TABLE = draw(130, MAX_LEN, HEAD_DIM)
PROJECTIONS = [draw(131 + i, DIM, DIM) / 2 for i in range(4)]
OPEN = 80.0  # a score whose gate a float32 cannot tell from 1
LONG = 2**20
# of a count to 63 over LONG keys, relative to it
COUNT = {"float64": 1e-12, "float32": 2e-6}
PER_EXAMPLE = np.array([np.arange(N), 3 + 2 * np.arange(N)])
# queries that have passed 2 and 3, or 3 and 4 of these keys
AT = np.array([[1, 2], [7, 9]])

# batch axes, n_q, rows of the table, query positions, key positions
CASES = {
    "no batch axis": ((), N, MAX_LEN, np.arange(N), np.arange(N)),
    "batch axes": ((2, 2), N, MAX_LEN, np.arange(N), np.arange(N)),
    "last queries": ((2,), 2, MAX_LEN, np.arange(N - 2, N), np.arange(N)),
    "one row": ((2,), N, 1, np.arange(N), np.arange(N)),
    "two rows": ((2,), N, 2, np.arange(N), np.arange(N)),
    "more rows than keys": ((2,), N, 3 * N, np.arange(N), np.arange(N)),
    "offset and gaps": ((2,), 2, MAX_LEN, np.array([2.5, 9]), np.array([-4, 0, 2.5, 8, 9])),
    "per example": ((2,), 2, MAX_LEN, AT, PER_EXAMPLE),
    "packed": ((2,), 2, MAX_LEN, np.array([0, 1]), np.array([0, 1, 2, 0, 1])),
    "no queries": ((2,), 0, MAX_LEN, np.arange(0), np.arange(N)),
    "no keys": ((2,), 2, MAX_LEN, np.arange(2), np.arange(0)),
    "empty batch": ((0,), N, MAX_LEN, np.arange(N), np.arange(N)),
}  # fmt: skip
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


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


@every_case
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


@every_case
def test_scores_and_their_gradients_agree_with_the_reference(twin, case):
    def compute(column, *inputs):
        return scores(column, case, *inputs)

    assert_twin_agrees(twin, compute, *arrays(case))


@pytest.mark.parametrize("gate", [0, OPEN])
def test_gradients_at_whole_counts_agree_with_the_reference(twin, gate):
    """Gates of 1/2 or 1 give whole counts, where the interpolation has a corner."""
    case = CASES["batch axes"]
    table, query, key = arrays(case)
    query[..., 0], key[...] = 2, 0
    key[..., 0] = gate

    def compute(column, *inputs):
        return scores(column, case, *inputs)

    assert_twin_agrees(twin, compute, table, query, key)


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


def test_shut_gates_count_nothing(column):
    assert np.allclose(gated(column, [0.0] * 6), 0, atol=1e-30)


@pytest.mark.slow
@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=6))
def test_a_count_is_the_sum_of_the_gates_from_the_key_on(column, gates):
    want = 10 * np.minimum(np.cumsum(gates[::-1])[::-1], MAX_LEN - 1)
    assert np.allclose(gated(column, gates), want, rtol=1e-12, atol=0)


@given(
    st.integers(-(2**20), 2**20),
    st.lists(st.integers(1, 2**16), min_size=N, max_size=N),
)
def test_only_the_order_of_positions_matters(column, start, gaps):
    case = CASES["last queries"]
    inputs = [column.array(x) for x in arrays(case)]
    where = start + np.cumsum(gaps)
    moved = (*case[:3], where[N - 2 :], where)
    straight, shifted = (column.numpy(scores(column, c, *inputs)) for c in (case, moved))
    assert np.array_equal(straight, shifted)


@pytest.mark.slow
def test_a_count_over_a_million_keys_is_right(precise_twin):
    gates = np.full(LONG, 63.5 / LONG)
    gates[-7] = 0.25
    want = gated(REFERENCE, gates, max_len=65)
    got = gated(precise_twin, gates, max_len=65)
    assert want[0] / 10 == pytest.approx(63.75, rel=1e-6)
    assert np.max(np.abs(got / want - 1)) <= COUNT[precise_twin.dtype]


@pytest.mark.parametrize("row", range(MAX_LEN))
def test_changing_each_row_changes_the_scores(column, row):
    case = CASES["more rows than keys"]
    _, query, key = arrays(case)
    other = TABLE.copy()
    other[row] += 1
    before, after = (
        column.numpy(scores(column, case, *map(column.array, (t, query, key))))
        for t in (TABLE, other)
    )
    assert error(after, before) > 1e-3


def test_counts_that_reached_the_end_have_no_gradient(twin):
    case = CASES["last queries"]
    table, query, key = arrays(case)
    query[..., 0], key[..., 0] = 4, OPEN  # from the last but two keys on, counts end
    _, (_, _, slope) = twin.value_and_gradients(
        lambda *inputs: scores(twin, case, *inputs), (table[:2], query, key)
    )
    assert np.abs(slope).max() < 1e-3


def test_the_authors_training_code_divides_the_table(column):
    """There, gates are `sigmoid(q k / sqrt(d))` and attention is `softmax((q k + b) / sqrt(d))`."""
    table, query, key = arrays(CASES["batch axes"])
    where = [column.positions(np.arange(N))] * 2
    ours = cope(column, column.array(table / math.sqrt(HEAD_DIM)))
    inputs = column.array(query), column.array(key)
    ours = ours.scores(*inputs, *where)
    theirs = cope(column, column.array(table)).scores(*inputs, *where)
    assert_close(column, ours, column.numpy(theirs) / math.sqrt(HEAD_DIM))


def layer_of(column, table=TABLE):
    bias = cope(column, column.array(table))
    return column.multi_head([column.array(w) for w in PROJECTIONS], HEADS, bias=bias)


def test_a_layer_adds_them_to_the_scaled_scores(column):
    x = draw(143, 2, N, DIM)
    q, k, v = (REFERENCE.split_heads(x @ w, HEADS) for w in PROJECTIONS[:3])
    where = np.arange(N)
    bias = REFERENCE.CoPE(TABLE).scores(q, k, where, where)
    heads = REFERENCE.scaled_dot_product_attention(q, k, v, causal=True, bias=bias)
    want = REFERENCE.merge_heads(heads) @ PROJECTIONS[3]
    got = layer_of(column)(*[column.array(x)] * 3, causal=True)
    assert_close(column, got, want)


def test_the_whole_layer_and_its_gradients_agree_with_the_reference(twin):
    def layer(column, x, table, *projections):
        attention = column.multi_head(list(projections), HEADS, bias=cope(column, table))
        return attention(x, x, x, causal=True)

    x = draw(144, 2, N, DIM) / 2
    assert_twin_agrees(twin, layer, x, TABLE / 2, *(w / 2 for w in PROJECTIONS))


@pytest.mark.parametrize("n_q", [1, 3])
def test_decoding_with_cached_keys_repeats_prefill(column, n_q):
    layer, x = layer_of(column), column.array(draw(145, 2, N, DIM))
    whole = column.numpy(layer(x, x, x, causal=True))
    assert_close(column, layer(x[:, N - n_q :], x, x, causal=True), whole[:, N - n_q :])


@pytest.mark.parametrize("pad", [1, 4])
def test_left_padding_changes_nothing(column, pad):
    layer, x = layer_of(column), draw(146, 2, N, DIM)
    alone = column.numpy(layer(*[column.array(x)] * 3, causal=True))
    padding = np.full((2, pad, DIM), np.nan)
    padded = column.array(np.concatenate([padding, x], axis=1))
    seen = column.array((np.arange(pad + N) >= pad)[None])
    out = layer(padded, padded, padded, causal=True, mask=seen)
    assert_close(column, out[:, pad:], alone)


@pytest.mark.slow
def test_packed_sequences_without_positions_are_as_if_alone(column):
    layer, x = layer_of(column), draw(147, N, DIM)
    owner = np.array([0, 0, 0, 1, 1])
    mask = column.array(owner[:, None] == owner)
    out = layer(*[column.array(x)] * 3, causal=True, mask=mask)
    for part in (slice(0, 3), slice(3, 5)):
        alone = layer(*[column.array(x[part])] * 3, causal=True)
        assert_close(column, out[part], column.numpy(alone))


def fresh(column):
    if column.name == "torch":
        return column.CoPE(200, 50, dtype=torch.float64, rng=column.rng()).table
    return column.CoPE.init(column.rng(), 200, 50).table


def test_fresh_tables_are_normal_and_repeat_with_their_rng(column):
    table = column.numpy(fresh(column))
    assert table.shape == (200, 50)
    assert abs(table.std() / 0.02 - 1) < 0.05
    assert abs(table.mean()) < 1e-3
    assert np.array_equal(column.numpy(fresh(column)), table)


@pytest.mark.slow
def test_bfloat16_heads_stay_bfloat16_beside_a_float32_table():
    from posattn import jax as jax_column
    from posattn import torch as torch_column

    where = np.arange(N)
    x = torch.zeros(HEADS, N, HEAD_DIM, dtype=torch.bfloat16)
    out = torch_column.CoPE(MAX_LEN, HEAD_DIM).scores(x, x, *[torch.tensor(where)] * 2)
    assert out.dtype == torch.bfloat16
    x = jnp.zeros((HEADS, N, HEAD_DIM), "bfloat16")
    table = jax_column.CoPE.init(jax.random.key(0), MAX_LEN, HEAD_DIM)
    assert table.scores(x, x, *[jnp.asarray(where)] * 2).dtype == "bfloat16"


@pytest.mark.slow
def test_jax_tables_are_pytrees(jax_single):
    bias = jax_single.CoPE.init(jax_single.rng(), MAX_LEN, HEAD_DIM)
    layer = jax_single.MultiHeadAttention.init(jax_single.rng(1), DIM, HEADS, bias=bias)
    assert len(jax.tree.leaves(layer)) == 5
    x = jax_single.array(draw(148, 2, N, DIM))
    want = np.asarray(layer(x, x, x, causal=True))

    def run(layer, x):
        return layer(x, x, x, causal=True)

    assert_close(jax_single, jax.jit(run)(layer, x), want)
    assert_close(jax_single, jax.vmap(run, (None, 0))(layer, x), want)
    slope = jax.grad(lambda layer: run(layer, x).sum())(layer)
    assert np.abs(slope.bias.table).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_the_layer_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    bias = torch_column.CoPE(MAX_LEN, HEAD_DIM, dtype=torch.float64)
    layer = torch_column.MultiHeadAttention(DIM, HEADS, bias=bias, dtype=torch.float64)
    assert "bias.table" in layer.state_dict()
    x = torch_column.array(draw(149, 2, N, DIM))
    got = torch.compile(layer, fullgraph=True, backend=backend)(x, x, x, causal=True)
    want = layer(x, x, x, causal=True)
    assert error(got.detach().numpy(), want.detach().numpy()) <= BOUND["float64"]
