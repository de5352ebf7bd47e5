"""The forgetting gate."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

DIM, HEADS, N = 4, 2, 5
WEIGHT, OFFSET = draw(100, DIM, HEADS), draw(101, HEADS)
PROJECTIONS = [draw(102 + i, DIM, DIM) / 2 for i in range(4)]
LONG = 2**16
RELATIVE = {"float64": 1e-12, "float32": 1e-6}  # of single entries, after LONG tokens


def log_gates(shape):
    return -np.abs(draw(110, *shape)) / 4


def gate_of(column, weight=WEIGHT, offset=OFFSET):
    parameters = {"weight": column.array(weight), "offset": column.array(offset)}
    return column.with_parameters("ForgettingGate", parameters, DIM, HEADS)


@pytest.mark.parametrize(
    ("shape", "n_q"), [((2, 3, HEADS, N), None), ((HEADS, N), 2), ((HEADS, 0), None)]
)
def test_the_bias_sums_the_gates_after_the_key_up_to_the_query(column, shape, n_q):
    gates = log_gates(shape)
    n_k = shape[-1]
    queries = range(n_k - (n_k if n_q is None else n_q), n_k)
    want = np.zeros((*shape[:-1], len(queries), n_k))
    for row, i in enumerate(queries):
        for j in range(i):
            want[..., row, j] = sum(gates[..., m] for m in range(j + 1, i + 1))
    assert_close(column, column.forgetting_bias(column.array(gates), n_q), want)


def test_biases_and_their_gradients_agree_with_the_reference(twin):
    def bias(column, gates):
        return column.forgetting_bias(gates, 2)

    assert_twin_agrees(twin, bias, log_gates((2, HEADS, N)))


def test_gates_and_their_gradients_agree_with_the_reference(twin):
    def gate(column, x, weight, offset):
        parameters = {"weight": weight, "offset": offset}
        return column.with_parameters("ForgettingGate", parameters, DIM, HEADS)(x)

    inputs = draw(112, 2, N, DIM), WEIGHT / 4, OFFSET
    assert_twin_agrees(twin, gate, *inputs)
    want = -np.log1p(np.exp(-(inputs[0] @ inputs[1] + OFFSET))).swapaxes(-1, -2)
    assert error(gate(REFERENCE, *inputs), want) <= BOUND["float64"]


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


def test_tiles_and_their_gradients_agree_with_the_reference(twin):
    where = (
        np.array([[3, 0], [4, 4], [-1, 2]]),
        np.array([[0, 1, 2], [4, 3, 2], [-1, 0, 1]]),
    )

    def tile(column, gates):
        return column.tiled_forgetting_bias(gates)(*map(column.positions, where))

    gates = log_gates((3, HEADS, N))
    assert_twin_agrees(twin, tile, gates)
    whole = REFERENCE.forgetting_bias(gates)[0][:, where[0][0][:, None], where[1][0]]
    assert error(tile(REFERENCE, gates)[0], whole) <= BOUND["float64"]


def test_padding_stands_before_the_first_token(column):
    gates = log_gates((1, N))
    bias = column.tiled_forgetting_bias(column.array(gates))
    got = bias(*(column.positions(np.array(p)) for p in ([-9, 0, 3], [-1, 0])))
    sums = np.cumsum(gates[0])
    assert_close(
        column, got, np.array([[[0, 0], [sums[0], 0], [sums[3], sums[3] - sums[0]]]])
    )


def test_keys_beyond_the_last_are_in_the_future(column):
    """Positions are integers of any dtype."""
    gates = log_gates((1, N))
    query, key = np.array([4, 1], np.uint8), np.array([2, N, 200], np.uint8)
    own = {"torch": torch.tensor, "jax": jnp.asarray}.get(column.name, np.asarray)
    got = column.tiled_forgetting_bias(column.array(gates))(own(query), own(key))
    assert_close(column, got, np.array([[[gates[0, 3] + gates[0, 4], 0, 0], [0, 0, 0]]]))


def test_a_gate_is_shut_where_no_dtype_tells_its_weight_from_0(precise_twin):
    gates = np.array([[0, -9999, 0], [0, -10001.0, 0]])
    where = (precise_twin.positions(np.array([p])) for p in (2, 0))
    got = precise_twin.tiled_forgetting_bias(precise_twin.array(gates))(*where)
    assert precise_twin.numpy(got).tolist() == [[[-9999]], [[-math.inf]]]


def test_every_entry_is_right_after_many_tokens(precise_twin):
    gates = np.float64(np.float32(-np.logaddexp(0, draw(116, LONG))))
    got = precise_twin.numpy(
        precise_twin.forgetting_bias(precise_twin.array(gates[None]), 2)
    )[0]
    for row, i in enumerate((LONG - 2, LONG - 1)):
        for j in (i - 20, i - 1, 0, LONG // 3):
            want = math.fsum(gates[j + 1 : i + 1])
            assert abs(got[row, j] / want - 1) <= RELATIVE[precise_twin.dtype]


def test_every_tile_is_right_after_many_tokens(precise_twin):
    gates = np.float64(np.float32(-np.logaddexp(0, draw(116, LONG))))
    bias = precise_twin.tiled_forgetting_bias(precise_twin.array(gates[None]))
    for i in (LONG - 1, LONG // 2):
        keys = np.array([i - 20, i - 1, 0, LONG // 3])
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


def run(column, x, **options):
    bias = column.forgetting_bias(gate_of(column)(x))
    return layer_of(column)(x, causal=True, bias=bias, **options)


def test_a_layer_with_a_cache_is_given_the_gates_of_all_tokens(column):
    x = column.array(draw(117, 2, N, DIM))
    whole, gates, layer = column.numpy(run(column, x)), gate_of(column)(x), layer_of(column)
    dtype = {} if column is REFERENCE else {"dtype": x.dtype}
    cache = column.KVCache.init((2,), HEADS, N + 2, DIM // HEADS, **dtype)
    for start, stop in ((0, 3), (3, 4), (4, N)):
        bias = column.tiled_forgetting_bias(gates[..., :stop])
        out, cache = layer(x[:, start:stop], cache=cache, bias=bias)
        assert_close(column, out, whole[:, start:stop])


def test_left_padding_changes_nothing(column):
    x, pad = draw(118, 2, N, DIM), 2
    alone = column.numpy(run(column, column.array(x)))
    padding = np.full((2, pad, DIM), np.nan)
    padded = column.array(np.concatenate([padding, x], axis=1))
    seen = column.array((np.arange(pad + N) >= pad)[None])
    assert_close(column, run(column, padded, mask=seen)[:, pad:], alone)
