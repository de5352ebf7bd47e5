"""DAPE."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

DIM, HEADS, HEAD_DIM, N, HIDDEN = 6, 2, 3, 5, 4
NAMES = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
NETWORK = tuple(
    draw(300 + i, *shape) / 2
    for i, shape in enumerate(((2 * HEADS, HIDDEN), (HIDDEN,), (HIDDEN, HEADS), (HEADS,)))
)
KERPLE = (np.array([0.5, 1.25]), np.array([0.25, 1.0]))
PROJECTIONS = [draw(305 + i, DIM, DIM) / 2 for i in range(4)]

# batch axes, query positions, key positions
CASES = {
    "no batch axis": ((), np.arange(N), np.arange(N)),
    "batch axes": ((2, 2), np.arange(N), np.arange(N)),
    "last queries": ((2,), np.arange(N - 2, N), np.arange(N)),
    "offset and gaps": ((2,), np.array([2.5, 9]), np.array([-4, 0, 2.5, 8, 9])),
    "per example": (
        (2,),
        np.array([[1, 2], [7, 9]]),
        np.array([np.arange(N), 3 + 2 * np.arange(N)]),
    ),
    "no queries": ((2,), np.arange(0), np.arange(N)),
    "no keys": ((2,), np.arange(2), np.arange(0)),
    "empty batch": ((0,), np.arange(N), np.arange(N)),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def heads(case):
    batch, *where = case
    return [
        draw(309 + i, *batch, HEADS, p.shape[-1], HEAD_DIM) for i, p in enumerate(where)
    ]


def kerple(column, r1, r2):
    return column.with_parameters("KerpleLog", {"r1": r1, "r2": r2}, HEADS)


def dape(column, base, network):
    named = dict(zip(NAMES, network, strict=True))
    if column.name == "torch":
        return column.with_parameters("DAPE", named, HEADS, base, hidden_dim=HIDDEN)
    return column.DAPE(base, **named)


def scores(column, case, query, key, r1, r2, *network):
    made = dape(column, kerple(column, r1, r2), network)
    return made.scores(query, key, *map(column.positions, case[1:]))


def naive(query, key, query_positions, key_positions):
    """One example, pair by pair, in the words of the authors' program."""
    w1, b1, w2, b2 = NETWORK
    out = np.zeros((HEADS, len(query_positions), len(key_positions)))
    for i, at in enumerate(query_positions):
        for j, there in enumerate(key_positions):
            products = [query[h, i] @ key[h, j] / math.sqrt(HEAD_DIM) for h in range(HEADS)]
            base = [
                -r * math.log(1 + a * abs(at - there)) for r, a in zip(*KERPLE, strict=True)
            ]
            hidden = np.array([*products, *base]) @ w1 + b1
            hidden = [z if z > 0 else 0.01 * z for z in hidden]
            out[:, i, j] = np.array(base) + np.array(hidden) @ w2 + b2
    return out


@every_case
def test_each_pair_is_the_bias_and_what_the_network_adds(column, case):
    query, key = heads(case)
    batch, *where = case
    want = np.zeros((*batch, HEADS, query.shape[-2], key.shape[-2]))
    where = [np.broadcast_to(p, (*batch, p.shape[-1])) for p in where]
    for b in np.ndindex(*batch):
        want[b] = naive(query[b], key[b], where[0][b], where[1][b])
    got = scores(column, case, *map(column.array, (query, key, *KERPLE, *NETWORK)))
    assert_close(column, got, want)


@every_case
def test_scores_and_their_gradients_agree_with_the_reference(twin, case):
    def compute(column, *inputs):
        return scores(column, case, *inputs)

    assert_twin_agrees(twin, compute, *(x / 2 for x in heads(case)), *KERPLE, *NETWORK)


def test_gradients_at_the_corner_agree_with_the_reference(twin):
    """Where what is hidden is zero, the slope is that of the negative side."""
    case = CASES["batch axes"]

    def compute(column, *network):
        fixed = [column.array(x) for x in (*heads(case), *KERPLE)]
        return scores(column, case, *fixed, *network)

    assert_twin_agrees(twin, compute, 0 * NETWORK[0], 0 * NETWORK[1], *NETWORK[2:])


def test_a_network_of_zeros_is_the_bias_alone(column):
    case = CASES["last queries"]
    nothing = [0 * w for w in NETWORK]
    got = scores(column, case, *map(column.array, (*heads(case), *KERPLE, *nothing)))
    want = REFERENCE.KerpleLog(*KERPLE)(*case[1:])
    assert_close(column, got, np.broadcast_to(want, (2, HEADS, 2, N)))


@pytest.mark.parametrize("head", range(HEADS))
def test_heads_read_each_other(column, head):
    case = CASES["no batch axis"]
    query, key = heads(case)
    before = scores(column, case, *map(column.array, (query, key, *KERPLE, *NETWORK)))
    key[head] += 1
    after = scores(column, case, *map(column.array, (query, key, *KERPLE, *NETWORK)))
    moved = np.abs(column.numpy(after) - column.numpy(before)).max(axis=(-2, -1))
    assert (moved > 1e-3).all()


def test_a_tile_is_a_part_of_the_whole(column):
    case = CASES["no batch axis"]
    query, key = heads(case)
    parameters = [column.array(p) for p in (*KERPLE, *NETWORK)]
    whole = scores(column, case, column.array(query), column.array(key), *parameters)
    tile = ((), np.arange(1, 3), np.arange(2, 5))
    part = scores(
        column, tile, column.array(query[:, 1:3]), column.array(key[:, 2:5]), *parameters
    )
    assert error(column.numpy(part), column.numpy(whole)[:, 1:3, 2:5]) <= BOUND["float64"]


@pytest.mark.parametrize("base", ["ALiBi", "FIRE"])
def test_other_biases_can_be_adapted(column, base):
    if base == "FIRE":
        parameters = {"hidden_dim": 3} | (
            {"rng": column.rng(), "dtype": torch.float64} if column.name == "torch" else {}
        )
        made = (
            column.FIRE(HEADS, **parameters)
            if column.name == "torch"
            else column.FIRE.init(column.rng(), HEADS, **parameters)
        )
    else:
        made = column.ALiBi(HEADS)
    case = CASES["no batch axis"]
    nothing = [column.array(0 * w) for w in NETWORK]
    where = [column.positions(p) for p in case[1:]]
    got = dape(column, made, nothing).scores(*map(column.array, heads(case)), *where)
    assert error(column.numpy(got), np.asarray(made(*where).tolist())) <= 1e-6


def layer_of(column, projections=PROJECTIONS, parameters=(*KERPLE, *NETWORK)):
    r1, r2, *network = map(column.array, parameters)
    bias = dape(column, kerple(column, r1, r2), network)
    return column.multi_head([column.array(w) for w in projections], HEADS, bias=bias)


def test_a_layer_adds_them_to_the_scaled_scores(column):
    x = draw(312, 2, N, DIM)
    q, k, v = (REFERENCE.split_heads(x @ w, HEADS) for w in PROJECTIONS[:3])
    bias = np.stack([naive(q[b], k[b], np.arange(N), np.arange(N)) for b in range(2)])
    attended = REFERENCE.scaled_dot_product_attention(q, k, v, causal=True, bias=bias)
    want = REFERENCE.merge_heads(attended) @ PROJECTIONS[3]
    assert_close(column, layer_of(column)(*[column.array(x)] * 3, causal=True), want)


def test_the_whole_layer_and_its_gradients_agree_with_the_reference(twin):
    def layer(column, x, *inputs):
        projections, (r1, r2, *network) = list(inputs[:4]), inputs[4:]
        bias = dape(column, kerple(column, r1, r2), network)
        return column.multi_head(projections, HEADS, bias=bias)(x, x, x, causal=True)

    x = draw(313, 2, N, DIM) / 2
    assert_twin_agrees(twin, layer, x, *(w / 2 for w in PROJECTIONS), *KERPLE, *NETWORK)


@pytest.mark.parametrize("n_q", [1, 3])
def test_decoding_with_cached_keys_repeats_prefill(column, n_q):
    layer, x = layer_of(column), column.array(draw(314, 2, N, DIM))
    whole = column.numpy(layer(x, x, x, causal=True))
    assert_close(column, layer(x[:, N - n_q :], x, x, causal=True), whole[:, N - n_q :])


def fresh(column, base, hidden_dim=500):
    if column.name == "torch":
        options = {"dtype": torch.float64, "rng": column.rng()}
        return column.DAPE(8, base, hidden_dim=hidden_dim, **options)
    return column.DAPE.init(column.rng(), 8, base, hidden_dim=hidden_dim)


def test_fresh_networks_begin_as_the_authors_and_repeat_with_their_rng(column):
    base = column.ALiBi(8)
    drawn = [column.numpy(getattr(fresh(column, base), name)) for name in NAMES]
    assert [w.shape for w in drawn] == [(16, 500), (500,), (500, 8), (8,)]
    for weights, bound in zip(drawn, (1 / 4, 1 / 4, 500**-0.5, 500**-0.5), strict=True):
        assert 0.7 * bound < np.abs(weights).max() <= bound
        assert abs(weights.mean()) < 0.5 * bound
    for before, name in zip(drawn, NAMES, strict=True):
        assert np.array_equal(before, column.numpy(getattr(fresh(column, base), name)))


def test_the_hidden_layer_has_32_entries_unless_given(column):
    base = column.ALiBi(HEADS)
    made = (
        column.DAPE(HEADS, base)
        if column.name == "torch"
        else column.DAPE.init(column.rng(), HEADS, base)
    )
    assert tuple(made.hidden_bias.shape) == (32,)


@pytest.mark.slow
def test_jax_layers_are_pytrees_with_the_bias_inside(jax_single):
    base = jax_single.KerpleLog.init(jax_single.rng(), HEADS)
    bias = jax_single.DAPE.init(jax_single.rng(1), HEADS, base, hidden_dim=HIDDEN)
    layer = jax_single.MultiHeadAttention.init(jax_single.rng(2), DIM, HEADS, bias=bias)
    assert len(jax.tree.leaves(layer)) == 4 + 4 + 2
    x = jax_single.array(draw(315, 2, N, DIM))

    def run(layer, x):
        return layer(x, x, x, causal=True)

    want = np.asarray(run(layer, x))
    assert_close(jax_single, jax.jit(run)(layer, x), want)
    assert_close(jax_single, jax.vmap(run, (None, 0))(layer, x), want)
    slope = jax.grad(lambda layer: run(layer, x).sum())(layer)
    assert np.abs(slope.bias.bias.r1).max() > 0


@pytest.mark.slow
def test_jax_wraps_a_plain_function(jax_single):
    def penalty(query_positions, key_positions):
        return jnp.ones((HEADS, 1, 1)) * -abs(key_positions - query_positions[:, None])

    bias = jax_single.DAPE.init(jax_single.rng(), HEADS, penalty)
    query, key = map(jax_single.array, heads(CASES["no batch axis"]))
    where = [jax_single.positions(np.arange(N))] * 2
    got = jax.jit(lambda bias: bias.scores(query, key, *where))(bias)
    assert error(np.asarray(got), np.asarray(bias.scores(query, key, *where))) <= 2e-6


def test_torch_resets_and_shows_a_module(torch_column):
    base = torch_column.KerpleLog(HEADS)
    made = torch_column.DAPE(HEADS, torch_column.ALiBi(HEADS), hidden_dim=3, device="meta")
    made = made.to_empty(device="cpu")
    made.reset_parameters(torch_column.rng())
    drawn = torch_column.DAPE(HEADS, base, hidden_dim=3, rng=torch_column.rng())
    for name in NAMES:
        assert torch.equal(getattr(made, name), getattr(drawn, name))
    assert set(drawn.state_dict()) == {*NAMES, "bias.r1", "bias.r2"}
    assert made.extra_repr() == "2, hidden_dim=3"


@pytest.mark.slow
def test_torch_compiles_it_once_for_all_lengths(torch_column, unchecked):
    torch.compiler.reset()
    made, graphs = torch_column.DAPE(HEADS, torch_column.KerpleLog(HEADS)), []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(made.scores, fullgraph=True, dynamic=True, backend=count)
    for n in (7, 9, 4):
        query, key = torch.randn(HEADS, n, 3), torch.randn(HEADS, n + 5, 3)
        where = torch.arange(5, n + 5), torch.arange(n + 5)
        assert torch.allclose(
            compiled(query, key, *where), made.scores(query, key, *where), atol=1e-6
        )
    assert len(graphs) == 1
