"""DeBERTa's disentangled attention."""

from fractions import Fraction

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, WIDTH, DIM, REACH = 2, 3, 6, 2
TABLE = draw(250, 2 * REACH, DIM) / 4
QUERY_WEIGHT, KEY_WEIGHT = (draw(251 + i, DIM, HEADS * WIDTH) / 4 for i in range(2))
PARAMETERS = {"table": TABLE, "query_weight": QUERY_WEIGHT, "key_weight": KEY_WEIGHT}
WEIGHTS = [draw(253 + i, DIM, DIM) / 4 for i in range(4)]
N = np.arange(5)

# batch axes, positions of queries, positions of keys
CASES = {
    "in a row": ((2,), N, N),
    "no batch axis": ((), N, N),
    "two batch axes": ((2, 2), N[:2], N),
    "last queries": ((2,), N[3:], N),
    "one token": ((2,), N[:1], N[:1]),
    "beyond the table": ((2,), np.array([0, 9, 100]), np.array([3, -40, 99, 100])),
    "around 2**20": ((2,), 2**20 + N[3:], 2**20 + N),
    "far apart": ((2,), np.array([0, 2**20]), np.array([2**20, 0, -(2**20)])),
    "per example": ((2,), np.array([N[3:], 7 + N[1:3]]), np.array([N, 7 + N])),
    "no queries": ((2,), N[:0], N),
    "no keys": ((2,), N[:3], N[:0]),
    "empty batch": ((0,), N, N),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
MAIN = ["last queries", "beyond the table", "far apart", "per example", "no keys"]


def heads(case):
    """Queries and keys."""
    batch, query_positions, key_positions = case
    return [
        draw(260 + i, *batch, HEADS, where.shape[-1], WIDTH) / 4
        for i, where in enumerate((query_positions, key_positions))
    ]


def deberta(column, *parameters, **options):
    named = dict(zip(PARAMETERS, parameters, strict=True))
    options |= {"num_heads": HEADS}
    return column.with_parameters("DisentangledBias", named, 4, DIM, **options)


def drawn(column, **options):
    return deberta(column, *map(column.array, PARAMETERS.values()), **options)


def scores(column, bias, case, query, key):
    return bias.scores(query, key, *map(column.positions, case[1:]))


def delta(i, j, reach=REACH):
    """The paper's equation 3."""
    if i - j <= -reach:
        return 0
    return 2 * reach - 1 if i - j >= reach else i - j + reach


def two_terms(case, query, key, first=delta, second=lambda i, j: delta(j, i), table=TABLE):
    """The paper's content-to-position and position-to-content, pair by pair."""
    batch, *positions = case
    query_positions, key_positions = (
        np.broadcast_to(p, (*batch, p.shape[-1])) for p in positions
    )
    out = np.zeros((*query.shape[:-1], key.shape[-2]))
    for *b, h, i, j in np.ndindex(out.shape):
        columns = slice(WIDTH * h, WIDTH * (h + 1))
        at = int(query_positions[*b, i]), int(key_positions[*b, j])
        k_r = table[first(*at)] @ KEY_WEIGHT[:, columns]
        q_r = table[second(*at)] @ QUERY_WEIGHT[:, columns]
        out[*b, h, i, j] = query[*b, h, i] @ k_r + key[*b, h, j] @ q_r
    return out / (3 * WIDTH) ** 0.5


@every_case
def test_scores_are_the_two_terms_of_the_paper(column, case):
    query, key = heads(case)
    got = scores(column, drawn(column), case, column.array(query), column.array(key))
    assert_close(column, got, two_terms(case, query, key))


@pytest.mark.parametrize("case", [CASES[name] for name in MAIN], ids=MAIN)
def test_scores_and_their_gradients_agree_with_the_reference(twin, case):
    def scored(column, table, query_weight, key_weight, query, key):
        bias = deberta(column, table, query_weight, key_weight)
        return scores(column, bias, case, query, key)

    assert_twin_agrees(twin, scored, *PARAMETERS.values(), *heads(case))


def test_clipping_is_not_symmetric(column):
    """Of the distances to either side of reach, only the one into the past shares a row."""
    query, key = (column.array(np.ones((HEADS, 1, WIDTH))) for _ in range(2))

    def at(distance):
        case = ((), np.array([distance]), np.array([0]))
        zero = column.array(np.zeros_like(QUERY_WEIGHT))
        bias = deberta(column, column.array(TABLE), zero, column.array(KEY_WEIGHT))
        return column.numpy(scores(column, bias, case, query, key)).ravel()

    rows = [at(distance).tolist() for distance in range(-3, 4)]
    assert rows[0] == rows[1]  # -3 and -2
    assert rows[4] == rows[5] == rows[6]  # 1, 2 and 3
    assert len({tuple(row) for row in rows}) == 2 * REACH


def test_with_same_row_the_third_term_is_that_of_the_authors_code(column):
    """It gathers keys' products at clamp(-(j - i) + k), and transposes: that is delta(i, j)."""
    case = CASES["in a row"]
    query, key = heads(case)
    index = np.clip(-(N[:, None] - N) + REACH, 0, 2 * REACH - 1)
    by_head = np.swapaxes((TABLE @ QUERY_WEIGHT).reshape(-1, HEADS, WIDTH), 0, 1)
    products = key @ by_head.mT / (3 * WIDTH) ** 0.5
    theirs = np.take_along_axis(products, np.broadcast_to(index, (2, HEADS, 5, 5)), -1).mT
    assert np.abs(theirs - two_terms(case, 0 * query, key, second=delta)).max() < 1e-14
    inputs = list(map(column.array, (0 * query, key)))
    ours = scores(column, drawn(column, same_row=True), case, *inputs)
    assert_close(column, ours, theirs)
    assert error(column.numpy(scores(column, drawn(column), case, *inputs)), theirs) > 0.01


@every_case
def test_with_same_row_both_terms_read_the_same_distance(column, case):
    query, key = heads(case)
    bias = drawn(column, same_row=True)
    got = scores(column, bias, case, column.array(query), column.array(key))
    assert_close(column, got, two_terms(case, query, key, second=delta))


# half the rows of a table, where distances end
BUCKETS = [(256, 512), (32, 128), (16, 64), (50, 1000), (8, 20), (4, 5), (4, 2**20)]


def exact(distance, num_buckets, max_distance):
    """The bucket by its definition, in rational numbers: the logarithms compared as powers."""
    half = num_buckets // 2
    if distance <= half:
        return distance
    power = Fraction(distance, half) ** (half - 1)
    ratio = Fraction(max_distance - 1, half)
    return half + next((k for k in range(half) if ratio**k >= power), half)


@pytest.mark.parametrize(("num_buckets", "max_distance"), BUCKETS)
def test_buckets_are_exact_on_both_sides(column, num_buckets, max_distance):
    """Exact at both ends of every bucket, and steady between them."""
    options = {"num_buckets": num_buckets, "max_distance": max_distance}
    behind = np.arange(min(max_distance, 2000) + 50)
    got = column.numpy(column.deberta_bucket(column.positions(behind), **options))
    steps = np.diff(got)
    assert (steps >= 0).all()
    ends = {0, len(behind) - 1} | {e for i in np.flatnonzero(steps) for e in (i, i + 1)}
    assert [got[i] for i in ends] == [
        exact(int(i), num_buckets, max_distance) for i in ends
    ]
    ahead = column.numpy(column.deberta_bucket(column.positions(-behind), **options))
    assert np.array_equal(ahead, -got)
    far = column.positions(np.array([max_distance - 1, max_distance, -(2**30)]))
    assert column.numpy(column.deberta_bucket(far, **options)).tolist() == [
        num_buckets - 1, num_buckets, -num_buckets
    ]  # fmt: skip


@every_case
@pytest.mark.parametrize("same_row", [True, False])
def test_buckets_take_the_place_of_distances(column, case, same_row):
    """With four buckets of a direction, a distance of 1 or 2 is its own, and 3 to 7 share one."""
    query, key = heads(case)
    wide = draw(257, 8, DIM) / 4

    def of_bucket(i, j):
        return delta(np.sign(i - j) * exact(abs(i - j), 4, 8), 0, reach=4)

    bias = deberta(
        column,
        *map(column.array, (wide, QUERY_WEIGHT, KEY_WEIGHT)),
        same_row=same_row,
        bucketed_to=8,
    )
    got = scores(column, bias, case, column.array(query), column.array(key))
    back = of_bucket if same_row else lambda i, j: of_bucket(j, i)
    want = two_terms(case, query, key, of_bucket, back, wide)
    assert_close(column, got, want)


def test_buckets_of_another_reach_are_refused_when_they_are_used(column):
    case = CASES["in a row"]
    # 2 rows of a direction
    bias = deberta(column, *map(column.array, PARAMETERS.values()), bucketed_to=9)
    with pytest.raises(
        ValueError, match="max_distance must be an even integer of at least 4"
    ):
        scores(column, bias, case, *map(column.array, heads(case)))


@pytest.mark.slow
@given(shift=st.integers(-(2**20), 2**20), seed=st.integers(0, 99))
def test_a_shift_of_all_positions_changes_nothing(column, shift, seed):
    rng = np.random.default_rng(seed)
    case = ((), rng.integers(-9, 9, 3), rng.integers(-9, 9, 4))
    moved = ((), *(positions + shift for positions in case[1:]))
    query, key = map(column.array, heads(case))
    bias = drawn(column)
    assert np.array_equal(
        column.numpy(scores(column, bias, case, query, key)),
        column.numpy(scores(column, bias, moved, query, key)),
    )


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_entry_of_every_parameter_matters(twin, name):
    names = list(PARAMETERS)
    case = CASES["in a row"]

    def scored(*arrays):
        return scores(twin, deberta(twin, *arrays[:3]), case, *arrays[3:])

    arrays = [*PARAMETERS.values(), *heads(case)]
    _, gradients = twin.value_and_gradients(scored, arrays)
    assert gradients[names.index(name)].all()


def layer(column, bias):
    weights = [column.array(w) for w in WEIGHTS]
    return column.multi_head(weights, HEADS, bias=bias, scale=bias.scale)


def test_an_attention_with_these_terms_and_this_scale_is_the_papers(column):
    x, positions = draw(264, 5, DIM) / 2, np.array([0, 1, 2, 5, 9])
    bias = drawn(column)
    assert bias.scale == (3 * WIDTH) ** -0.5
    got = layer(column, bias)(
        *[column.array(x)] * 3, key_positions=column.positions(positions)
    )
    q, k, v = (REFERENCE.split_heads(x @ w, HEADS) for w in WEIGHTS[:3])
    s = q @ k.mT / (3 * WIDTH) ** 0.5 + two_terms(((), positions, positions), q, k)
    out = np.exp(s) / np.exp(s).sum(-1, keepdims=True) @ v
    assert_close(column, got, REFERENCE.merge_heads(out) @ WEIGHTS[3])


@pytest.mark.slow
def test_decoding_one_token_at_a_time_repeats_prefill(column):
    attend, x = layer(column, drawn(column)), column.array(draw(265, 6, DIM))
    whole = column.numpy(attend(x, x, x, causal=True))
    for n in (1, 3, 6):
        new = attend(x[n - 1 : n], x[:n], x[:n], causal=True)
        assert_close(column, new, whole[n - 1 : n])


def test_layers_and_the_gradients_of_the_parameters_agree_with_the_reference(twin):
    positions = np.array([[0, 1, 2, 3], [5, 6, 7, 1]])

    def attend(column, x, *parameters):
        bias = deberta(column, *parameters)
        return layer(column, bias)(x, x, x, key_positions=column.positions(positions))

    assert_twin_agrees(twin, attend, draw(266, 2, 4, DIM) / 4, *PARAMETERS.values())


def fresh(column, *sizes):
    if column.name == "torch":
        return column.DisentangledBias(*sizes, dtype=torch.float64, rng=column.rng())
    return column.DisentangledBias.init(column.rng(), *sizes)


def test_fresh_parameters_are_normal_and_repeat_with_their_rng(column):
    bias, again = fresh(column, 30, 96, 4), fresh(column, 30, 96, 4)
    assert bias.num_heads == 4
    assert bias.scale == 72**-0.5
    drawn = []
    for name, rows in {"table": 60, "query_weight": 96, "key_weight": 96}.items():
        parameter = column.numpy(getattr(bias, name))
        assert parameter.shape == (rows, 96)
        assert abs(parameter.std() / 0.02 - 1) < 0.05
        assert abs(parameter.mean()) < 1e-3
        assert np.array_equal(column.numpy(getattr(again, name)), parameter)
        drawn.append(parameter[:60])
    assert not np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[1], drawn[2])


@pytest.mark.slow
def test_bfloat16_heads_stay_bfloat16_beside_float32_parameters():
    from posattn import jax as jax_column
    from posattn import torch as torch_column

    x, n = jax.numpy.ones((HEADS, 5, WIDTH), "bfloat16"), jax.numpy.arange(5)
    bias = jax_column.DisentangledBias.init(jax.random.key(0), REACH, DIM, HEADS)
    assert bias.scores(x, x, n, n).dtype == "bfloat16"
    x, n = torch.ones(HEADS, 5, WIDTH, dtype=torch.bfloat16), torch.arange(5)
    bias = torch_column.DisentangledBias(REACH, DIM, HEADS)
    assert bias.scores(x, x, n, n).dtype == torch.bfloat16


@pytest.mark.slow
def test_the_jax_scheme_is_a_pytree_inside_a_layer(jax_single):
    x, n = jax_single.array(draw(267, 2, 5, DIM)), jax_single.positions(N)
    bias = fresh(jax_single, REACH, DIM, HEADS)
    attend = jax_single.MultiHeadAttention.init(
        jax_single.rng(), DIM, HEADS, bias=bias, scale=bias.scale
    )
    run = jax.jit(lambda layer, x, n: layer(x, x, x, causal=True, key_positions=n))
    want = np.asarray(attend(x, x, x, causal=True))
    assert_close(jax_single, run(attend, x, n), want)
    assert_close(jax_single, jax.vmap(lambda x: run(attend, x, n))(x), want)
    slope = jax.grad(lambda layer: (run(layer, x, n) ** 2).sum())(attend)
    assert len(jax.tree.leaves(slope.bias)) == 3
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(slope.bias))


@pytest.mark.slow
def test_torch_compiles_the_scheme_in_one_graph(torch_column, unchecked):
    torch.compiler.reset()
    x = torch_column.array(draw(268, 2, 5, DIM))
    bias = fresh(torch_column, REACH, DIM, HEADS)
    attend = torch_column.MultiHeadAttention(
        DIM, HEADS, bias=bias, scale=bias.scale, dtype=torch.float64
    )
    want = attend(x, x, x, causal=True)
    got = torch.compile(attend, fullgraph=True, backend="aot_eager")(x, x, x, causal=True)
    assert error(got.detach().numpy(), want.detach().numpy()) <= BOUND["float64"]


def test_the_reference_is_float64_for_float32_input():
    query, key = (x.astype(np.float32) for x in heads(CASES["in a row"]))
    bias = deberta(REFERENCE, *(x.astype(np.float32) for x in PARAMETERS.values()))
    assert scores(REFERENCE, bias, CASES["in a row"], query, key).dtype == np.float64
