"""Shaw's relative representations, the skewing procedure and the Music Transformer's attention."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, WIDTH, REACH, MAX_LEN, DIM = 2, 3, 2, 4, 6
KEY_TABLE, VALUE_TABLE = (draw(200 + i, 2 * REACH + 1, WIDTH) / 4 for i in range(2))
TABLE = draw(202, HEADS, MAX_LEN, WIDTH) / 4
WEIGHTS = [draw(203 + i, DIM, DIM) / 4 for i in range(4)]
N = np.arange(5)

# batch axes, positions of queries, positions of keys
CASES = {
    "in a row": ((2,), N, N),
    "no batch axis": ((), N, N),
    "two batch axes": ((2, 2), N[:2], N),
    "last queries": ((2,), N[3:], N),
    "one token": ((2,), N[:1], N[:1]),
    "beyond the tables": ((2,), np.array([0, 9, 100]), np.array([3, -40, 99, 100])),
    "around 2**20": ((2,), 2**20 + N[3:], 2**20 + N),
    "out of order": ((2,), np.array([4, 0]), np.array([1, 0, 2, 1])),
    "per example": ((2,), np.array([N[3:], 7 + N[1:3]]), np.array([N, 7 + N])),
    "shared queries": ((2,), N[3:], np.array([N, 1 + N])),
    "no queries": ((2,), N[:0], N),
    "no keys": ((2,), N[:3], N[:0]),
    "empty batch": ((0,), N, N),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
MAIN = ["last queries", "beyond the tables", "around 2**20", "per example", "no keys"]


def heads(case):
    """Queries and keys."""
    batch, query_positions, key_positions = case
    return [
        draw(210 + i, *batch, HEADS, where.shape[-1], WIDTH) / 4
        for i, where in enumerate((query_positions, key_positions))
    ]


def weights_of(case):
    batch, query_positions, key_positions = case
    shape = (*batch, HEADS, query_positions.shape[-1], key_positions.shape[-1])
    return np.abs(draw(212, *shape)) / 16


def where(column, case):
    return [column.positions(positions) for positions in case[1:]]


def shaw(column, key_table, value_table=None):
    tables = {"key_table": key_table, "value_table": value_table}
    return column.with_parameters("ShawRelative", tables, len(key_table) // 2, WIDTH)


def music(column, table):
    num_heads, max_len, width = table.shape
    sizes = (max_len, num_heads, width)
    return column.with_parameters("RelativeGlobalAttention", {"table": table}, *sizes)


def pairs(case):
    """Example, head, query and key, with the offset between them."""
    batch, *positions = case
    query_positions, key_positions = (
        np.broadcast_to(p, (*batch, p.shape[-1])) for p in positions
    )
    shape = (*batch, HEADS, query_positions.shape[-1], key_positions.shape[-1])
    for *b, h, i, j in np.ndindex(shape):
        yield (*b, h), i, j, int(key_positions[*b, j]) - int(query_positions[*b, i])


def clipped_row(offset):
    return max(-REACH, min(REACH, offset)) + REACH


@every_case
def test_shaws_scores_are_products_with_the_vector_of_the_offset(column, case):
    query, key = heads(case)
    bias = shaw(column, column.array(KEY_TABLE))
    got = bias.scores(column.array(query), column.array(key), *where(column, case))
    want = np.zeros((*query.shape[:-1], key.shape[-2]))
    for at, i, j, offset in pairs(case):
        want[*at, i, j] = query[*at, i] @ KEY_TABLE[clipped_row(offset)] / WIDTH**0.5
    assert_close(column, got, want)


@every_case
def test_shaws_values_are_mixed_like_those_of_keys(column, case):
    weights = weights_of(case)
    bias = shaw(column, column.array(KEY_TABLE), column.array(VALUE_TABLE))
    got = bias.values(column.array(weights), *where(column, case))
    want = np.zeros((*weights.shape[:-1], WIDTH))
    for at, i, j, offset in pairs(case):
        want[*at, i] += weights[*at, i, j] * VALUE_TABLE[clipped_row(offset)]
    assert_close(column, got, want)


@every_case
def test_the_music_transformer_has_a_vector_for_each_head_and_distance(column, case):
    query, key = heads(case)
    bias = music(column, column.array(TABLE))
    got = bias.scores(column.array(query), column.array(key), *where(column, case))
    want = np.zeros((*query.shape[:-1], key.shape[-2]))
    for (*b, h), i, j, offset in pairs(case):
        if 0 <= -offset < MAX_LEN:
            vector = TABLE[h, MAX_LEN - 1 + offset]
            want[*b, h, i, j] = query[*b, h, i] @ vector / WIDTH**0.5
    assert_close(column, got, want)


@pytest.mark.parametrize("case", [CASES[name] for name in MAIN], ids=MAIN)
def test_scores_values_and_their_gradients_agree_with_the_reference(twin, case):
    def chain(column, key_table, value_table, table, query, key, weights):
        """Everything in one graph, which compiles once: values, mixed with the sum of all scores."""
        at = where(column, case)
        bias = shaw(column, key_table, value_table)
        scores = bias.scores(query, key, *at) + music(column, table).scores(query, key, *at)
        return bias.values(weights + scores, *at)

    arrays = KEY_TABLE, VALUE_TABLE, TABLE, *heads(case), weights_of(case)
    assert_twin_agrees(twin, chain, *arrays)


@pytest.mark.parametrize("far", [2**20, -(2**20)])
def test_whole_offsets_of_any_size_are_exact_in_every_dtype(twin, far):
    case = ((), np.array([0, 1, 2]), np.array([far, far + 1, far + 2]))
    query, key = heads(case)
    bias = shaw(twin, twin.array(KEY_TABLE), twin.array(VALUE_TABLE))
    got = bias.scores(twin.array(query), twin.array(key), *where(twin, case))
    want = query @ KEY_TABLE[-1 if far > 0 else 0] / WIDTH**0.5
    assert_close(twin, got, np.repeat(want[..., None], 3, axis=-1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_offsets_of_small_integers_do_not_overflow(column, dtype):
    query_positions, key_positions = np.array([100, 3]), np.array([1, 101])
    if dtype == np.int8:
        query_positions, key_positions = query_positions - 101, key_positions - 101
        query_positions[0], key_positions[1] = -100, 100
    query, key = heads(((), query_positions, key_positions))
    for bias in (shaw(column, column.array(KEY_TABLE)), music(column, column.array(TABLE))):
        small, large = (
            bias.scores(
                column.array(query),
                column.array(key),
                column.positions(query_positions.astype(kind)),
                column.positions(key_positions.astype(kind)),
            )
            for kind in (dtype, int)
        )
        assert np.array_equal(column.numpy(small), column.numpy(large))


def test_half_precision_weights_of_many_keys_are_summed_in_full(twin):
    n = 4096
    bias = shaw(twin, twin.array(KEY_TABLE), twin.array(np.ones_like(VALUE_TABLE)))
    weights = twin.array(np.full((1, 1, n), 1 / n))
    got = bias.values(weights, twin.positions(np.array([n])), twin.positions(np.arange(n)))
    assert_close(twin, got, np.ones((1, 1, WIDTH)))


def test_without_a_table_of_values_shaw_adds_nothing_to_them(column):
    bias = shaw(column, column.array(KEY_TABLE))
    weights = column.array(weights_of(CASES["last queries"]))
    out = bias.values(weights, *where(column, CASES["last queries"]))
    assert out.shape == (2, HEADS, 2, WIDTH)
    assert not column.numpy(out).any()


@pytest.mark.slow
@given(shift=st.integers(-(2**20), 2**20), seed=st.integers(0, 99))
def test_a_shift_of_all_positions_changes_nothing(column, shift, seed):
    rng = np.random.default_rng(seed)
    case = ((), rng.integers(-9, 9, 3), rng.integers(-9, 9, 4))
    moved = ((), *(positions + shift for positions in case[1:]))
    query, key = map(column.array, heads(case))
    weights = column.array(weights_of(case))
    bias = shaw(column, column.array(KEY_TABLE), column.array(VALUE_TABLE))
    table = music(column, column.array(TABLE))
    for act in (
        lambda c: bias.scores(query, key, *where(column, c)),
        lambda c: bias.values(weights, *where(column, c)),
        lambda c: table.scores(query, key, *where(column, c)),
    ):
        assert np.array_equal(column.numpy(act(case)), column.numpy(act(moved)))


@pytest.mark.slow
def test_every_row_of_every_table_matters_to_the_offset_it_belongs_to(column):
    case = ((), np.array([10]), np.arange(5, 16))
    query, key = (column.array(np.abs(x) + 1) for x in heads(case))
    offsets = case[2] - 10

    def changed(make, table, rows, act):
        for row in rows:
            other = table.copy()
            other[..., row, :] += 1
            before, after = (
                column.numpy(act(make(column, column.array(t)))) for t in (table, other)
            )
            yield row, (before != after)[0, 0]

    def scores(bias):
        return bias.scores(query, key, *where(column, case))

    def values(bias):
        weights = column.array(np.eye(len(offsets))[None])
        one_by_one = column.positions(np.full(len(offsets), 10))
        return bias.values(weights, one_by_one, where(column, case)[1])[..., 0][None]

    clipped = np.clip(offsets, -REACH, REACH) + REACH
    for row, where_changed in changed(shaw, KEY_TABLE, range(5), scores):
        assert np.array_equal(where_changed, clipped == row)
    make = lambda c, table: shaw(c, c.array(KEY_TABLE), table)  # noqa: E731
    for row, where_changed in changed(make, VALUE_TABLE, range(5), values):
        assert np.array_equal(where_changed, clipped == row)
    for row, where_changed in changed(music, TABLE, range(MAX_LEN), scores):
        assert np.array_equal(where_changed, MAX_LEN - 1 + offsets == row)


@pytest.mark.parametrize(
    "shape", [(5, 5), (2, 3, 4, 4), (1, 1), (2, 2), (0, 3, 3), (2, 0, 0)]
)
def test_skewing_is_the_naive_gather_below_the_diagonal(column, shape):
    x = draw(213, *shape)
    n, want = shape[-1], np.zeros(shape)
    for i in range(n):
        for j in range(n):
            if j <= i:
                want[..., i, j] = x[..., i, n - 1 - (i - j)]
            elif j >= i + 2:
                want[..., i, j] = x[..., i + 1, j - i - 2]
    assert np.array_equal(column.numpy(column.skew(column.array(x))), want)


def test_skewing_and_its_gradient_agree_with_the_reference(twin):
    assert_twin_agrees(twin, lambda column, x: column.skew(x), draw(214, 2, 4, 4))


@pytest.mark.parametrize("n", [1, 2, MAX_LEN])
def test_skewed_products_are_the_music_transformers_scores_of_tokens_in_a_row(column, n):
    query, key = heads(((2,), np.arange(n), np.arange(n)))
    rows = TABLE[:, MAX_LEN - n :]
    products = query @ rows.mT / WIDTH**0.5
    skewed = column.numpy(column.skew(column.array(products)))
    positions = column.positions(np.arange(7, 7 + n))
    got = music(column, column.array(TABLE)).scores(
        column.array(query), column.array(key), positions, positions
    )
    assert_close(column, got, np.tril(skewed))


def layer(column, bias, weights=WEIGHTS, **options):
    return column.multi_head(
        [column.array(w) for w in weights], HEADS, bias=bias, **options
    )


def test_an_attention_with_shaws_tables_is_the_papers(column):
    x, positions = draw(215, 5, DIM) / 2, np.array([0, 1, 2, 5, 9])
    bias = shaw(column, column.array(KEY_TABLE), column.array(VALUE_TABLE))
    got = layer(column, bias)(
        *[column.array(x)] * 3, key_positions=column.positions(positions)
    )
    out = np.zeros((5, DIM))
    for h in range(HEADS):
        columns = slice(WIDTH * h, WIDTH * (h + 1))
        q, k, v = (x @ w[:, columns] for w in WEIGHTS[:3])
        for i in range(5):
            rows = [clipped_row(positions[j] - positions[i]) for j in range(5)]
            scores = [q[i] @ (k[j] + KEY_TABLE[rows[j]]) / WIDTH**0.5 for j in range(5)]
            weights = np.exp(scores) / np.sum(np.exp(scores))
            out[i, columns] = sum(
                weights[j] * (v[j] + VALUE_TABLE[rows[j]]) for j in range(5)
            )
    assert_close(column, got, out @ WEIGHTS[3])


@pytest.mark.parametrize("scheme", ["shaw", "music"])
def test_decoding_one_token_at_a_time_repeats_prefill(column, scheme):
    bias = {
        "shaw": lambda: shaw(column, column.array(KEY_TABLE), column.array(VALUE_TABLE)),
        "music": lambda: music(column, column.array(TABLE)),
    }[scheme]()
    attend, x = layer(column, bias), column.array(draw(216, 6, DIM))
    whole = column.numpy(attend(x, x, x, causal=True))
    for n in (1, 3, 6):
        new = attend(x[n - 1 : n], x[:n], x[:n], causal=True)
        assert_close(column, new, whole[n - 1 : n])


def test_layers_and_the_gradients_of_their_tables_agree_with_the_reference(twin):
    positions = np.array([[0, 1, 2, 3], [5, 6, 7, 1]])

    def with_shaw(column, x, key_table, value_table):
        where = column.positions(positions)
        return layer(column, shaw(column, key_table, value_table))(
            x, x, x, key_positions=where
        )

    def with_music(column, x, table):
        where = column.positions(positions)
        return layer(column, music(column, table))(
            x, x, x, causal=True, key_positions=where
        )

    x = draw(217, 2, 4, DIM) / 4
    assert_twin_agrees(twin, with_shaw, x, KEY_TABLE, VALUE_TABLE)
    assert_twin_agrees(twin, with_music, x, TABLE)


def fresh(column, name, *sizes, **options):
    if column.name == "torch":
        kind = getattr(column, name)
        return kind(*sizes, **options, dtype=torch.float64, rng=column.rng())
    return getattr(column, name).init(column.rng(), *sizes, **options)


def test_fresh_tables_have_their_distribution_and_repeat_with_their_rng(column):
    bias = fresh(column, "ShawRelative", 100, 50)
    bound = (6 / 251) ** 0.5
    tables = [column.numpy(t) for t in (bias.key_table, bias.value_table)]
    for table in tables:
        assert table.shape == (201, 50)
        assert 0.99 * bound < np.abs(table).max() <= bound
        assert abs(table.std() / bound - 3**-0.5) < 0.02
    assert not np.array_equal(*tables)
    table = column.numpy(fresh(column, "RelativeGlobalAttention", 100, 4, 25).table)
    assert table.shape == (4, 100, 25)
    assert abs(table.std() / 0.2 - 1) < 0.05
    assert abs(table.mean()) < 0.01
    again = fresh(column, "RelativeGlobalAttention", 100, 4, 25).table
    assert np.array_equal(column.numpy(again), table)
    again = fresh(column, "ShawRelative", 100, 50)
    assert np.array_equal(column.numpy(again.key_table), tables[0])


def test_a_table_of_values_is_optional(column):
    bias = fresh(column, "ShawRelative", 0, WIDTH, use_values=False)
    assert bias.key_table.shape == (1, WIDTH)
    assert bias.value_table is None


@pytest.mark.slow
def test_bfloat16_heads_stay_bfloat16_beside_float32_tables():
    from posattn import jax as jax_column
    from posattn import torch as torch_column

    key = jax.random.key(0)
    x, n = jax.numpy.ones((HEADS, 5, WIDTH), "bfloat16"), jax.numpy.arange(5)
    for bias in (
        jax_column.ShawRelative.init(key, REACH, WIDTH),
        jax_column.RelativeGlobalAttention.init(key, MAX_LEN, HEADS, WIDTH),
    ):
        assert bias.scores(x, x, n, n).dtype == "bfloat16"
    weights = jax.numpy.ones((HEADS, 5, 5), "bfloat16")
    for use_values in (True, False):
        bias = jax_column.ShawRelative.init(key, REACH, WIDTH, use_values=use_values)
        assert bias.values(weights, n, n).dtype == "bfloat16"
    x, n = torch.ones(HEADS, 5, WIDTH, dtype=torch.bfloat16), torch.arange(5)
    for bias in (
        torch_column.ShawRelative(REACH, WIDTH),
        torch_column.RelativeGlobalAttention(MAX_LEN, HEADS, WIDTH),
    ):
        assert bias.scores(x, x, n, n).dtype == torch.bfloat16
    weights = torch.ones(HEADS, 5, 5, dtype=torch.bfloat16)
    for use_values in (True, False):
        bias = torch_column.ShawRelative(REACH, WIDTH, use_values=use_values)
        assert bias.values(weights, n, n).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("ShawRelative", (REACH, WIDTH)),
        ("RelativeGlobalAttention", (MAX_LEN, HEADS, WIDTH)),
    ],
)
def test_jax_schemes_are_pytrees_inside_a_layer(jax_single, name, sizes):
    x, n = jax_single.array(draw(218, 2, 5, DIM)), jax_single.positions(N)
    bias = fresh(jax_single, name, *sizes)
    attend = jax_single.MultiHeadAttention.init(jax_single.rng(), DIM, HEADS, bias=bias)
    run = jax.jit(lambda layer, x, n: layer(x, x, x, causal=True, key_positions=n))
    want = np.asarray(attend(x, x, x, causal=True))
    assert_close(jax_single, run(attend, x, n), want)
    assert_close(jax_single, jax.vmap(lambda x: run(attend, x, n))(x), want)
    slope = jax.grad(lambda layer: (run(layer, x, n) ** 2).sum())(attend)
    assert len(jax.tree.leaves(slope.bias)) == len(jax.tree.leaves(bias)) > 0
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(slope.bias))


@pytest.mark.slow
def test_torch_compiles_the_schemes_in_one_graph(torch_column, unchecked):
    torch.compiler.reset()
    x = torch_column.array(draw(219, 2, 5, DIM))
    for name, sizes in (
        ("ShawRelative", (REACH, WIDTH)),
        ("RelativeGlobalAttention", (MAX_LEN, HEADS, WIDTH)),
    ):
        attend = torch_column.MultiHeadAttention(
            DIM, HEADS, bias=fresh(torch_column, name, *sizes), dtype=torch.float64
        )
        assert any(key.startswith("bias.") for key in attend.state_dict())
        want = attend(x, x, x, causal=True)
        got = torch.compile(attend, fullgraph=True, backend="aot_eager")(
            x, x, x, causal=True
        )
        assert error(got.detach().numpy(), want.detach().numpy()) <= BOUND["float64"]
    products = torch_column.array(draw(214, 2, 4, 4))
    skewed = torch.compile(torch_column.skew, fullgraph=True, backend="aot_eager")(products)
    assert torch.equal(skewed, torch_column.skew(products))


def test_the_reference_is_float64_for_float32_input():
    query, key = (x.astype(np.float32) for x in heads(CASES["in a row"]))
    assert (
        shaw(REFERENCE, KEY_TABLE.astype(np.float32)).scores(query, key, N, N).dtype
        == float
    )
    assert (
        music(REFERENCE, TABLE.astype(np.float32)).scores(query, key, N, N).dtype == float
    )
