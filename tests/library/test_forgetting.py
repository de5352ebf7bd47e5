"""The forgetting gate."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

DIM, HEADS, N = 4, 2, 5
WEIGHT, OFFSET = draw(100, DIM, HEADS), draw(101, HEADS)
PROJECTIONS = [draw(102 + i, DIM, DIM) / 2 for i in range(4)]
LONG = 2**20
RELATIVE = {"float64": 1e-12, "float32": 1e-6}  # of single entries, after LONG tokens

# shape of the log gates, number of queries
CASES = {
    "one head": ((1, N), None),
    "no batch axis": ((HEADS, N), None),
    "batch axes": ((2, 3, HEADS, N), None),
    "last queries": ((2, HEADS, N), 2),
    "decoding": ((2, HEADS, N), 1),
    "one token": ((HEADS, 1), None),
    "no queries": ((HEADS, N), 0),
    "no tokens": ((HEADS, 0), None),
    "empty batch": ((0, HEADS, N), None),
}
every_case = pytest.mark.parametrize(("shape", "n_q"), CASES.values(), ids=CASES)


def log_gates(shape):
    return -np.abs(draw(110, *shape)) / 4


def gate_of(column, weight=WEIGHT, offset=OFFSET):
    parameters = {"weight": column.array(weight), "offset": column.array(offset)}
    return column.with_parameters("ForgettingGate", parameters, DIM, HEADS)


@every_case
def test_the_bias_sums_the_gates_after_the_key_up_to_the_query(column, shape, n_q):
    gates = log_gates(shape)
    n_k = shape[-1]
    queries = range(n_k - (n_k if n_q is None else n_q), n_k)
    want = np.zeros((*shape[:-1], len(queries), n_k))
    for row, i in enumerate(queries):
        for j in range(i):
            want[..., row, j] = sum(gates[..., m] for m in range(j + 1, i + 1))
    assert_close(column, column.forgetting_bias(column.array(gates), n_q), want)


@every_case
def test_biases_and_their_gradients_agree_with_the_reference(twin, shape, n_q):
    def bias(column, gates):
        return column.forgetting_bias(gates, n_q)

    assert_twin_agrees(twin, bias, log_gates(shape))


@pytest.mark.parametrize("shape", [(N, DIM), (2, N, DIM), (2, 3, 1, DIM), (2, 0, DIM)])
def test_gates_are_log_sigmoids_of_projections(column, shape):
    x = draw(111, *shape)
    want = -np.log1p(np.exp(-(x @ WEIGHT + OFFSET))).swapaxes(-1, -2)
    assert_close(column, gate_of(column)(column.array(x)), want)


def test_gates_and_their_gradients_agree_with_the_reference(twin):
    def gate(column, x, weight, offset):
        parameters = {"weight": weight, "offset": offset}
        return column.with_parameters("ForgettingGate", parameters, DIM, HEADS)(x)

    assert_twin_agrees(twin, gate, draw(112, 2, N, DIM), WEIGHT / 4, OFFSET)


def test_gates_that_no_float_tells_from_0_or_1_keep_their_logarithm(precise_twin):
    x = np.array([[-1.0, 0, 0, 0], [1.0, 0, 0, 0]]) * 80
    weight = np.zeros((DIM, HEADS))
    weight[0] = 1, 1000
    want = np.array([[-80.0, -math.exp(-80)], [-80000.0, 0]])

    def gate(x, weight, offset):
        parameters = {"weight": weight, "offset": offset}
        return precise_twin.with_parameters("ForgettingGate", parameters, DIM, HEADS)(x)

    value, slopes = precise_twin.value_and_gradients(gate, (x, weight, OFFSET * 0))
    assert np.allclose(gate_of(REFERENCE, weight, OFFSET * 0)(x), want, rtol=1e-12, atol=0)
    assert np.allclose(value, want, rtol=1e-6, atol=0)
    assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("changed", ["weight", "offset"])
def test_changing_each_parameter_changes_the_gates(column, changed):
    x = column.array(draw(113, N, DIM))
    parameters = {"weight": WEIGHT, "offset": OFFSET}
    before, after = (
        column.numpy(gate_of(column, **parameters | new)(x))
        for new in ({}, {changed: parameters[changed] + 1})
    )
    assert error(after, before) > 1e-3


@given(st.integers(0, N - 1))
def test_changing_a_gate_changes_what_lies_across_it(column, changed):
    gates = log_gates((1, N))
    other = gates.copy()
    other[0, changed] -= 1
    before, after = (
        column.numpy(column.forgetting_bias(column.array(g)))[0] for g in (gates, other)
    )
    i, j = np.indices((N, N))
    across = (j < changed) & (changed <= i)
    assert np.allclose(after - before, -1.0 * across, atol=1e-12)


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=8))
def test_the_bias_only_falls_with_distance(column, gates):
    bias = column.numpy(column.forgetting_bias(column.array(np.array([gates]))))[0]
    for i, row in enumerate(bias):
        assert (row <= 0).all()
        assert (np.diff(row[: i + 1]) >= 0).all()
        assert row[i:].tolist() == [0] * (len(gates) - i)


@pytest.mark.parametrize("slope", [2**-0.5, 2**-8])
def test_gates_that_are_all_alike_are_a_linear_bias(column, slope):
    bias = column.forgetting_bias(column.array(np.full((1, 2 * N), -slope)), N)
    distance = np.arange(N, 2 * N)[:, None] - np.arange(2 * N)
    assert_close(column, bias, -slope * np.maximum(distance, 0)[None])


def test_attention_weights_are_multiplied_by_the_gates_passed(column):
    query, key = draw(114, N, DIM), draw(115, N, DIM)
    gates = np.exp(log_gates((1, N)))[0]
    weights = np.zeros((N, N))
    for i in range(N):
        for j in range(i + 1):
            passed = math.prod(gates[j + 1 : i + 1])
            weights[i, j] = passed * math.exp(query[i] @ key[j] / math.sqrt(DIM))
    weights /= weights.sum(axis=-1, keepdims=True)
    bias = column.forgetting_bias(column.array(np.log(gates)[None]))[0]
    got = column.attention_weights(
        column.array(query), column.array(key), causal=True, bias=bias
    )
    assert_close(column, got, weights)


@given(st.integers(1, N))
def test_the_bias_of_the_last_queries_is_the_end_of_the_whole(column, n_q):
    gates = column.array(log_gates((HEADS, N)))
    whole = column.numpy(column.forgetting_bias(gates))
    assert_close(column, column.forgetting_bias(gates, n_q), whole[..., N - n_q :, :])


@st.composite
def places(draw_from, least=0):
    """Where queries and keys stand, in any order."""
    one = st.lists(st.integers(least, N - 1), max_size=4)
    return [np.array(draw_from(one), dtype=np.int64) for _ in range(2)]


@given(places())
def test_any_tile_is_a_part_of_the_bias(column, pair):
    gates = column.array(log_gates((2, HEADS, N)))
    whole = column.numpy(column.forgetting_bias(gates))
    got = column.tiled_forgetting_bias(gates)(*map(column.positions, pair))
    rows, columns = pair
    assert_close(column, got, whole[..., rows[:, None], columns])


@pytest.mark.parametrize("shape", [(3, 1, N), (3, HEADS, N)])
def test_tiles_and_their_gradients_agree_with_the_reference(twin, shape):
    where = (
        np.array([[3, 0], [4, 4], [-1, 2]]),
        np.array([[0, 1, 2], [4, 3, 2], [-1, 0, 1]]),
    )

    def tile(column, gates):
        return column.tiled_forgetting_bias(gates)(*map(column.positions, where))

    assert_twin_agrees(twin, tile, log_gates(shape))


def test_padding_stands_before_the_first_token(column):
    gates = log_gates((1, N))
    bias = column.tiled_forgetting_bias(column.array(gates))
    got = bias(*(column.positions(np.array(p)) for p in ([-9, 0, 3], [-1, 0])))
    sums = np.cumsum(gates[0])
    assert_close(
        column, got, np.array([[[0, 0], [sums[0], 0], [sums[3], sums[3] - sums[0]]]])
    )


@pytest.mark.parametrize("kind", ["int32", "uint8"])
def test_positions_of_any_integers_do_and_keys_beyond_the_last_are_in_the_future(
    column, kind
):
    gates = log_gates((1, N))
    query, key = np.array([4, 1], kind), np.array([2, N, 200], kind)
    own = {"torch": torch.tensor, "jax": jnp.asarray}.get(column.name, np.asarray)
    got = column.tiled_forgetting_bias(column.array(gates))(own(query), own(key))
    assert_close(column, got, np.array([[[gates[0, 3] + gates[0, 4], 0, 0], [0, 0, 0]]]))


def test_a_gate_is_shut_where_no_dtype_tells_its_weight_from_0(precise_twin):
    gates = np.array([[0, -9999, 0], [0, -10001.0, 0]])
    where = (precise_twin.positions(np.array([p])) for p in (2, 0))
    got = precise_twin.tiled_forgetting_bias(precise_twin.array(gates))(*where)
    assert precise_twin.numpy(got).tolist() == [[[-9999]], [[-math.inf]]]


def test_a_new_token_adds_its_gate_to_the_row_before(column):
    gates = log_gates((HEADS, N))
    before, after = (
        column.numpy(column.forgetting_bias(column.array(gates[:, :n]), 1))
        for n in (N - 1, N)
    )
    grown = np.concatenate([before + gates[:, N - 1 :, None], np.zeros((HEADS, 1, 1))], -1)
    assert np.allclose(after, grown, rtol=1e-12, atol=0)


@pytest.mark.slow
def test_every_entry_is_right_after_a_million_tokens(precise_twin):
    gates = np.float64(np.float32(-np.logaddexp(0, draw(116, LONG))))
    got = precise_twin.numpy(
        precise_twin.forgetting_bias(precise_twin.array(gates[None]), 2)
    )[0]
    for row, i in enumerate((LONG - 2, LONG - 1)):
        for j in (*range(i - 20, i), 0, 1, LONG // 3):
            want = math.fsum(gates[j + 1 : i + 1])
            assert abs(got[row, j] / want - 1) <= RELATIVE[precise_twin.dtype]
    sums = np.cumsum(gates, dtype=np.float32)  # why it is no difference of two sums
    assert abs(sums[-1] - sums[-2] - gates[-1]) > 1e-3


@pytest.mark.slow
def test_every_tile_is_right_after_a_million_tokens(precise_twin):
    gates = np.float64(np.float32(-np.logaddexp(0, draw(116, LONG))))
    bias = precise_twin.tiled_forgetting_bias(precise_twin.array(gates[None]))
    for i in (LONG - 1, LONG // 2):
        keys = np.array([*range(i - 20, i), 0, 1, LONG // 3])
        pair = (precise_twin.positions(p) for p in (np.array([i]), keys))
        got = precise_twin.numpy(bias(*pair))[0, 0]
        want = np.array([math.fsum(gates[j + 1 : i + 1]) for j in keys])
        rounded = {"float64": 0, "float32": 2**-23}[precise_twin.dtype]
        assert (np.abs(got - want) <= 1e-8 + rounded * np.abs(want)).all()


def test_half_precision_gates_are_summed_in_float32(twin):
    gates = twin.array(np.full((1, 300), -3 / 256))
    where = twin.positions(np.array([299])), twin.positions(np.arange(300))
    for bias in (twin.forgetting_bias(gates, 1), twin.tiled_forgetting_bias(gates)(*where)):
        assert bias.dtype == gates.dtype
        got = twin.numpy(bias)[0, 0, :-1]
        assert np.max(np.abs(got / np.arange(299, 0, -1) * 256 / -3 - 1)) <= 2**-8


@pytest.mark.parametrize("shut", [-math.inf, -1e30])
def test_a_gate_that_is_shut_leaves_what_follows_exact(precise_twin, shut):
    gates = log_gates((1, 2 * N))
    alone = precise_twin.numpy(
        precise_twin.forgetting_bias(precise_twin.array(gates[:, N:]))
    )
    gates[0, N] = shut
    packed = precise_twin.numpy(precise_twin.forgetting_bias(precise_twin.array(gates)))
    assert np.array_equal(packed[0, N:, N:], alone[0])
    assert (packed[0, N:, :N] <= 0.999 * shut).all()
    where = precise_twin.positions(np.arange(2 * N))
    tiled = precise_twin.tiled_forgetting_bias(precise_twin.array(gates))(where, where)
    tiled = precise_twin.numpy(tiled)
    assert np.allclose(tiled[0, N:, N:], alone[0], rtol=0, atol=1e-6)
    assert np.allclose(tiled[0, :N, :N], packed[0, :N, :N], rtol=0, atol=1e-6)
    assert (tiled[0, N:, :N] == -math.inf).all()


def test_nothing_of_a_gate_that_is_shut_reaches_a_gradient(precise_twin):
    gates = log_gates((1, N))
    gates[0, 2] = -math.inf
    x = precise_twin.array(draw(123, N, DIM))
    where = precise_twin.positions(np.arange(N))

    def attend(gates):
        bias = precise_twin.tiled_forgetting_bias(gates)(where, where)[0]
        return precise_twin.scaled_dot_product_attention(x, x, x, causal=True, bias=bias)

    value, (slopes,) = precise_twin.value_and_gradients(attend, (gates,))
    assert np.isfinite(value).all()
    assert np.isfinite(slopes).all()
    assert slopes[0, 2] == 0
    assert np.abs(slopes[0, 3:]).min() > 0


def layer_of(column):
    return column.multi_head([column.array(w) for w in PROJECTIONS], HEADS)


def run(column, x, *, n_q=None, log_gates=None, **options):
    """A layer whose gates are `gate(x)`, or given."""
    log_gates = gate_of(column)(x) if log_gates is None else log_gates
    bias = column.forgetting_bias(log_gates, n_q)
    query = x if n_q is None else x[:, x.shape[1] - n_q :]
    return layer_of(column)(query, x, x, causal=True, bias=bias, **options)


@pytest.mark.slow
def test_decoding_with_cached_log_gates_repeats_prefill(column):
    x = column.array(draw(117, 2, N, DIM))
    whole = column.numpy(run(column, x))
    cache = gate_of(column)(x[:, : N - 2])
    join = {"torch": torch.cat, "jax": jnp.concatenate}.get(column.name, np.concatenate)
    for n in (N - 1, N):
        cache = join([cache, gate_of(column)(x[:, n - 1 : n])], -1)
        step = run(column, x[:, :n], n_q=1, log_gates=cache)
        assert_close(column, step[:, 0], whole[:, n - 1])


@pytest.mark.slow
def test_a_layer_with_a_cache_is_given_the_gates_of_all_tokens(column):
    x = column.array(draw(117, 2, N, DIM))
    whole, gates, layer = column.numpy(run(column, x)), gate_of(column)(x), layer_of(column)
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    cache = column.KVCache.init((2,), HEADS, N + 2, DIM // HEADS, **dtype)
    for start, stop in ((0, 3), (3, 4), (4, N)):
        bias = column.tiled_forgetting_bias(gates[..., :stop])
        out, cache = layer(x[:, start:stop], cache=cache, bias=bias)
        assert_close(column, out, whole[:, start:stop])


@pytest.mark.parametrize("pad", [1, 4])
def test_left_padding_changes_nothing(column, pad):
    x = draw(118, 2, N, DIM)
    alone = column.numpy(run(column, column.array(x)))
    padding = np.full((2, pad, DIM), np.nan)
    padded = column.array(np.concatenate([padding, x], axis=1))
    seen = column.array((np.arange(pad + N) >= pad)[None])
    assert_close(column, run(column, padded, mask=seen)[:, pad:], alone)


@pytest.mark.slow
def test_packed_sequences_are_as_if_alone(column):
    x, owner = draw(119, 1, N, DIM), np.array([0, 0, 0, 1, 1])
    mask = column.array(owner[:, None] == owner)
    out = run(column, column.array(x), mask=mask)
    for part in (slice(0, 3), slice(3, 5)):
        alone = column.numpy(run(column, column.array(x[:, part])))
        assert_close(column, out[:, part], alone)


def test_the_whole_layer_and_its_gradients_agree_with_the_reference(twin):
    def layer(column, x, weight, offset, *projections):
        parameters = {"weight": weight, "offset": offset}
        gate = column.with_parameters("ForgettingGate", parameters, DIM, HEADS)
        attention = column.multi_head(list(projections), HEADS)
        return attention(x, x, x, causal=True, bias=column.forgetting_bias(gate(x)))

    assert_twin_agrees(twin, layer, draw(120, 2, N, DIM) / 2, WEIGHT / 4, OFFSET / 4,
                       *(w / 2 for w in PROJECTIONS))  # fmt: skip


def fresh(column, dim=400):
    if column.name == "torch":
        return column.ForgettingGate(dim, 50, dtype=torch.float64, rng=column.rng())
    return column.ForgettingGate.init(column.rng(), dim, 50)


def test_fresh_gates_are_about_one_half_and_repeat_with_their_rng(column):
    first, again = fresh(column), fresh(column)
    weight, offset = column.numpy(first.weight), column.numpy(first.offset)
    assert weight.shape == (400, 50)
    assert abs(weight.std() / 0.02 - 1) < 0.05
    assert abs(weight.mean()) < 1e-3
    assert offset.shape == (50,)
    assert not offset.any()
    assert np.array_equal(column.numpy(again.weight), weight)
    assert_close(
        column, first(column.array(np.zeros((1, 400)))), np.full((50, 1), -np.log(2))
    )


@pytest.mark.slow
def test_bfloat16_tokens_stay_bfloat16_beside_float32_parameters():
    from posattn import jax as jax_column
    from posattn import torch as torch_column

    gate = torch_column.ForgettingGate(DIM, HEADS)
    assert gate(torch.zeros(N, DIM, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert gate(torch.zeros(N, DIM)).dtype == torch.float32
    gate = jax_column.ForgettingGate.init(jax.random.key(0), DIM, HEADS)
    assert gate(jnp.zeros((N, DIM), "bfloat16")).dtype == "bfloat16"


@pytest.mark.slow
def test_jax_gates_are_pytrees(jax_single):
    gate = jax_single.ForgettingGate.init(jax_single.rng(), DIM, HEADS)
    x = jax_single.array(draw(121, 3, N, DIM))

    def total(gate, x):
        return jax_single.forgetting_bias(gate(x)).sum()

    slope = jax.jit(jax.grad(total))(gate, x)
    assert jax.tree.structure(slope) == jax.tree.structure(gate)
    assert np.abs(slope.weight).max() > 0
    assert_close(jax_single, jax.vmap(gate)(x), np.asarray(gate(x)))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compiles_gate_and_layer_in_one_graph(torch_column, unchecked, backend):
    torch.compiler.reset()
    gate = torch_column.ForgettingGate(DIM, HEADS, dtype=torch.float64)
    layer = torch_column.MultiHeadAttention(DIM, HEADS, dtype=torch.float64)

    forgetting_bias = torch_column.forgetting_bias

    def attend(x):
        return layer(x, x, x, causal=True, bias=forgetting_bias(gate(x)))

    x = torch_column.array(draw(122, 2, N, DIM))
    got = torch.compile(attend, fullgraph=True, backend=backend)(x)
    assert error(got.detach().numpy(), attend(x).detach().numpy()) <= BOUND["float64"]
