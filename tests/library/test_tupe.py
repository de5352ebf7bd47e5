"""TUPE."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, WIDTH, DIM, MAX_LEN = 2, 3, 6, 8
TABLE = draw(270, MAX_LEN, DIM) / 4
QUERY_WEIGHT, KEY_WEIGHT = (draw(271 + i, DIM, HEADS * WIDTH) / 4 for i in range(2))
CLS = draw(273, 2, HEADS)
PARAMETERS = {"table": TABLE, "query_weight": QUERY_WEIGHT, "key_weight": KEY_WEIGHT}
WEIGHTS = [draw(274 + i, DIM, DIM) / 4 for i in range(4)]
N = np.arange(5)

# positions of queries, positions of keys
CASES = {
    "in a row": (N, N),
    "last queries": (N[3:], N),
    "to the end of the table": (np.array([7]), np.array([7, 0, 6])),
    "out of order, repeated": (np.array([4, 0, 4]), np.array([1, 0, 0, 2])),
    "per example": (np.array([N[3:], N[:2]]), np.array([N, 1 + N])),
    "shared queries": (N[:2], np.array([N, 1 + N])),
    "two batch axes": (np.array([[N[:2]]]), np.array([[N]])),
    "no queries": (N[:0], N),
    "no keys": (N[:3], N[:0]),
    "empty batch": (np.zeros((0, 3), int), np.zeros((0, 4), int)),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
with_and_without_cls = pytest.mark.parametrize("cls", [CLS, None], ids=["cls", "no cls"])


def tupe(column, *parameters):
    """Made from table, weights and perhaps the scores of [CLS]."""
    named = dict(zip([*PARAMETERS, "cls_bias"], [*parameters, None][:4], strict=True))
    return column.with_parameters("TUPEBias", named, MAX_LEN, DIM, num_heads=HEADS)


def drawn(column, cls=None):
    extra = [] if cls is None else [column.array(cls)]
    return tupe(column, *map(column.array, PARAMETERS.values()), *extra)


def naive(case, cls):
    """The paper's positional correlation and its reset, pair by pair."""
    query_positions, key_positions = case
    batch = np.broadcast_shapes(query_positions.shape[:-1], key_positions.shape[:-1])
    query_positions, key_positions = (
        np.broadcast_to(p, (*batch, p.shape[-1])) for p in case
    )
    out = np.zeros((*batch, HEADS, query_positions.shape[-1], key_positions.shape[-1]))
    for *b, h, i, j in np.ndindex(out.shape):
        columns = slice(WIDTH * h, WIDTH * (h + 1))
        at, to = query_positions[*b, i], key_positions[*b, j]
        if cls is not None and at == 0:
            out[*b, h, i, j] = cls[0, h]
        elif cls is not None and to == 0:
            out[*b, h, i, j] = cls[1, h]
        else:
            q, k = TABLE[at] @ QUERY_WEIGHT[:, columns], TABLE[to] @ KEY_WEIGHT[:, columns]
            out[*b, h, i, j] = q @ k / (2 * WIDTH) ** 0.5
    return out


@with_and_without_cls
@every_case
def test_the_bias_is_the_papers_correlation_of_positions(column, case, cls):
    got = drawn(column, cls)(*map(column.positions, case))
    assert_close(column, got, naive(case, cls))


@pytest.mark.parametrize("name", ["last queries", "per example", "no keys"])
def test_the_bias_and_its_gradients_agree_with_the_reference(twin, name):
    def bias(column, *parameters):
        return tupe(column, *parameters)(*map(column.positions, CASES[name]))

    assert_twin_agrees(twin, bias, *PARAMETERS.values(), CLS)


def test_without_cls_gradients_agree_with_the_reference(twin):
    def bias(column, *parameters):
        return tupe(column, *parameters)(*map(column.positions, CASES["in a row"]))

    assert_twin_agrees(twin, bias, *PARAMETERS.values())


def test_every_entry_of_every_parameter_matters(twin):
    everywhere = np.arange(MAX_LEN)

    def bias(*parameters):
        return tupe(twin, *parameters)(*[twin.positions(everywhere)] * 2)

    _, gradients = twin.value_and_gradients(bias, [*PARAMETERS.values(), CLS])
    assert gradients[0][1:].all()
    assert not gradients[0][0].any()  # [CLS] is untied from its position
    assert all(gradient.all() for gradient in gradients[1:])


def test_the_authors_code_is_this_with_what_it_makes_of_its_rows(column):
    """guolinke/TUPE: one more row in front, offsets in the projections, one matrix for all tokens."""
    rows, n = draw(283, MAX_LEN + 1, DIM), MAX_LEN
    query_offset, key_offset = draw(284, DIM) / 4, draw(285, DIM) / 4
    q, k = (
        REFERENCE.split_heads(rows @ weight + offset, HEADS)
        for weight, offset in ((QUERY_WEIGHT, query_offset), (KEY_WEIGHT, key_offset))
    )
    scores = q * (2 * WIDTH) ** -0.5 @ k.mT
    from_cls, to_cls = scores[:, 0, 0].copy(), scores[:, 1, 1].copy()
    theirs = scores[:, 1:, 1:]
    theirs[:, :, 0] = to_cls[:, None]
    theirs[:, 0, :] = from_cls[:, None]

    table = np.concatenate([rows[1:], np.ones((n, 1))], axis=1)
    weights = (
        np.concatenate([QUERY_WEIGHT, query_offset[None]]),
        np.concatenate([KEY_WEIGHT, key_offset[None]]),
    )
    bias = tupe(column, *map(column.array, (table, *weights, [from_cls, to_cls])))
    assert_close(column, bias(*2 * [column.positions(np.arange(n))]), theirs)


def test_absolute_positions_matter(column):
    bias = drawn(column)
    here, there = (
        column.numpy(bias(*[column.positions(positions)] * 2)) for positions in (N, 1 + N)
    )
    assert error(here, there) > 0.01


@given(st.permutations(range(1, MAX_LEN)))
def test_a_permutation_of_positions_permutes_the_bias(column, order):
    order = np.array([0, *order])
    bias = drawn(column, CLS)
    straight = column.numpy(bias(*[column.positions(np.arange(MAX_LEN))] * 2))
    shuffled = column.numpy(bias(*[column.positions(order)] * 2))
    assert np.abs(shuffled - straight[:, order][:, :, order]).max() < 1e-14


def layer(column, bias):
    weights = [column.array(w) for w in WEIGHTS]
    return column.multi_head(weights, HEADS, bias=bias, scale=bias.scale)


@with_and_without_cls
def test_an_attention_with_this_bias_and_this_scale_is_the_papers(column, cls):
    x, positions = draw(278, 2, 4, DIM) / 2, np.array([[0, 1, 2, 5], [7, 3, 0, 1]])
    bias = drawn(column, cls)
    assert bias.scale == (2 * WIDTH) ** -0.5
    got = layer(column, bias)(
        *[column.array(x)] * 3, key_positions=column.positions(positions)
    )
    q, k, v = (REFERENCE.split_heads(x @ w, HEADS) for w in WEIGHTS[:3])
    s = q @ k.mT / (2 * WIDTH) ** 0.5 + naive((positions, positions), cls)
    out = np.exp(s) / np.exp(s).sum(-1, keepdims=True) @ v
    assert_close(column, got, REFERENCE.merge_heads(out) @ WEIGHTS[3])


@with_and_without_cls
def test_decoding_one_token_at_a_time_repeats_prefill(column, cls):
    attend, x = layer(column, drawn(column, cls)), column.array(draw(279, 6, DIM))
    whole = column.numpy(attend(x, x, x, causal=True))
    for n in (1, 3, 6):
        new = attend(x[n - 1 : n], x[:n], x[:n], causal=True)
        assert_close(column, new, whole[n - 1 : n])


def test_layers_and_the_gradients_of_the_parameters_agree_with_the_reference(twin):
    def attend(column, x, *parameters):
        return layer(column, tupe(column, *parameters))(x, x, x, causal=True)

    x = draw(280, 2, 4, DIM) / 4
    assert_twin_agrees(twin, attend, x, *PARAMETERS.values(), CLS)


def fresh(column, *sizes, **options):
    if column.name == "torch":
        options |= {"dtype": torch.float64, "rng": column.rng()}
        return column.TUPEBias(*sizes, **options)
    return column.TUPEBias.init(column.rng(), *sizes, **options)


def test_fresh_parameters_are_normal_and_repeat_with_their_rng(column):
    bias, again = fresh(column, 60, 96, 4), fresh(column, 60, 96, 4, use_cls=True)
    assert bias.num_heads == 4
    assert bias.scale == 48**-0.5
    assert bias.cls_bias is None
    assert again.cls_bias.shape == (2, 4)
    assert not column.numpy(again.cls_bias).any()
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
def test_under_jit_a_position_outside_the_table_becomes_nan(jax_single):
    bias = jax.jit(drawn(jax_single, CLS))
    query_positions, key_positions = np.array([1, 0, -1, MAX_LEN]), np.array([2, 2**30])
    got = np.isnan(bias(*map(jax_single.positions, (query_positions, key_positions))))
    assert got[0].tolist() == [[False, True], [False, False], [True, True], [True, True]]


@pytest.mark.slow
def test_the_jax_scheme_is_a_pytree_inside_a_layer(jax_single):
    x, n = jax_single.array(draw(281, 2, 5, DIM)), jax_single.positions(N)
    bias = fresh(jax_single, MAX_LEN, DIM, HEADS, use_cls=True)
    attend = jax_single.MultiHeadAttention.init(
        jax_single.rng(), DIM, HEADS, bias=bias, scale=bias.scale
    )
    run = jax.jit(lambda layer, x, n: layer(x, x, x, key_positions=n))
    want = np.asarray(attend(x, x, x))
    assert_close(jax_single, run(attend, x, n), want)
    assert_close(jax_single, jax.vmap(lambda x: run(attend, x, n))(x), want)
    slope = jax.grad(lambda layer: (run(layer, x, n) ** 2).sum())(attend)
    assert len(jax.tree.leaves(slope.bias)) == 4
    assert all(np.abs(g).max() > 0 for g in jax.tree.leaves(slope.bias))


@pytest.mark.slow
def test_torch_compiles_the_scheme_in_one_graph(torch_column, unchecked):
    torch.compiler.reset()
    x = torch_column.array(draw(282, 2, 5, DIM))
    bias = fresh(torch_column, MAX_LEN, DIM, HEADS, use_cls=True)
    attend = torch_column.MultiHeadAttention(
        DIM, HEADS, bias=bias, scale=bias.scale, dtype=torch.float64
    )
    assert "bias.cls_bias" in attend.state_dict()
    want = attend(x, x, x)
    got = torch.compile(attend, fullgraph=True, backend="aot_eager")(x, x, x)
    assert error(got.detach().numpy(), want.detach().numpy()) <= BOUND["float64"]


def test_the_reference_is_float64_for_float32_parameters():
    parameters = [x.astype(np.float32) for x in [*PARAMETERS.values(), CLS]]
    assert tupe(REFERENCE, *parameters)(N, N).dtype == np.float64
