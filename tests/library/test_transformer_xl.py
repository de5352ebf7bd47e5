"""Transformer-XL's terms of the score."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import BOUND, REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, WIDTH, DIM = 2, 3, 6
CONTENT, POSITION = (draw(230 + i, HEADS, WIDTH) / 4 for i in range(2))
WEIGHT = draw(232, DIM, HEADS * WIDTH) / 4
PARAMETERS = {"content_bias": CONTENT, "position_bias": POSITION, "weight": WEIGHT}
WEIGHTS = [draw(233 + i, DIM, DIM) / 4 for i in range(4)]
N = np.arange(5)
# The largest error of a score per position of distance, relative to the largest score: an angle as
# large as the distance is rounded before its sine is taken, in the reference as in the twins.
ANGLE = 2**-51

# batch axes, positions of queries, positions of keys
CASES = {
    "in a row": ((2,), N, N),
    "no batch axis": ((), N, N),
    "two batch axes": ((2, 2), N[:2], N),
    "last queries": ((2,), N[3:], N),
    "one token": ((2,), N[:1], N[:1]),
    "around 2**20": ((2,), 2**20 + N[3:], 2**20 + N),
    "fractions": ((2,), np.array([0.5, -1.25]), np.array([0.0, 2.5, -3.0])),
    "whole queries, fractional keys": ((2,), N[:2], np.array([0.0, 2.5, -3.0])),
    "per example": ((2,), np.array([N[3:], 7 + N[1:3]]), np.array([N, 7 + N])),
    "no queries": ((2,), N[:0], N),
    "no keys": ((2,), N[:3], N[:0]),
    "empty batch": ((0,), N, N),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def heads(case):
    """Queries and keys."""
    batch, query_positions, key_positions = case
    return [
        draw(240 + i, *batch, HEADS, where.shape[-1], WIDTH) / 4
        for i, where in enumerate((query_positions, key_positions))
    ]


def xl(column, content_bias, position_bias, weight, **options):
    parameters = dict(zip(PARAMETERS, (content_bias, position_bias, weight), strict=True))
    sizes = (DIM, HEADS)
    return column.with_parameters("TransformerXLBias", parameters, *sizes, **options)


def drawn(column, **options):
    return xl(column, *map(column.array, PARAMETERS.values()), **options)


def scores(column, bias, case, query, key):
    return bias.scores(query, key, *map(column.positions, case[1:]))


def sinusoid(distance, base=10000.0):
    angles = [distance * base ** (-j / DIM) for j in range(0, DIM, 2)]
    return np.ravel([(np.sin(a), np.cos(a)) for a in angles])


def three_terms(case, query, key, base=10000.0):
    """The paper's second, third and fourth term, pair by pair."""
    batch, *positions = case
    query_positions, key_positions = (
        np.broadcast_to(p, (*batch, p.shape[-1])) for p in positions
    )
    out = np.zeros((*query.shape[:-1], key.shape[-2]))
    for *b, h, i, j in np.ndindex(out.shape):
        distance = float(query_positions[*b, i]) - float(key_positions[*b, j])
        r = sinusoid(distance, base) @ WEIGHT[:, WIDTH * h : WIDTH * (h + 1)]
        q, k = query[*b, h, i], key[*b, h, j]
        out[*b, h, i, j] = (q @ r + CONTENT[h] @ k + POSITION[h] @ r) / WIDTH**0.5
    return out


@every_case
def test_scores_are_the_three_terms_of_the_paper(column, case):
    query, key = heads(case)
    got = scores(column, drawn(column), case, column.array(query), column.array(key))
    assert_close(column, got, three_terms(case, query, key))


def test_the_base_of_the_sinusoids_can_be_chosen(column):
    query, key = heads(CASES["in a row"])
    arrays = column.array(query), column.array(key)
    got = scores(column, drawn(column, base=3.0), CASES["in a row"], *arrays)
    assert_close(column, got, three_terms(CASES["in a row"], query, key, base=3.0))


def act(case):
    def scored(column, content_bias, position_bias, weight, query, key):
        return scores(
            column, xl(column, content_bias, position_bias, weight), case, query, key
        )

    return scored


MAIN = ["last queries", "around 2**20", "fractions", "per example", "no keys"]


@pytest.mark.parametrize("case", [CASES[name] for name in MAIN], ids=MAIN)
def test_scores_and_their_gradients_agree_with_the_reference(twin, case):
    assert_twin_agrees(twin, act(case), *PARAMETERS.values(), *heads(case))


def test_traced_positions_are_as_good_as_known_ones(jax_single):
    case = CASES["around 2**20"]
    query, key = heads(case)
    bias = drawn(jax_single)
    got = jax.jit(bias.scores)(
        *map(jax_single.array, (query, key)), *map(jax_single.positions, case[1:])
    )
    assert_close(jax_single, got, three_terms(case, query, key))


@pytest.mark.parametrize("distance", [2**10, 2**20, -(2**20)])
def test_large_distances_are_as_exact_as_their_angles(twin, distance):
    case = ((), distance + np.arange(3), np.arange(4))
    query, key = heads(case)
    got = scores(twin, drawn(twin), case, twin.array(query), twin.array(key))
    want = scores(REFERENCE, drawn(REFERENCE), case, query, key)
    bound = max(BOUND[twin.dtype], ANGLE * abs(distance))
    assert error(twin.numpy(got), want) <= bound


@given(shift=st.integers(-(2**20), 2**20), seed=st.integers(0, 99))
def test_a_shift_of_all_positions_changes_nothing(column, shift, seed):
    rng = np.random.default_rng(seed)
    case = ((), rng.integers(-9, 9, 3), rng.integers(-9, 9, 4))
    moved = ((), *(positions + shift for positions in case[1:]))
    query, key = map(column.array, heads(case))
    bias = drawn(column)
    assert_close(
        column,
        scores(column, bias, moved, query, key),
        column.numpy(scores(column, bias, case, query, key)),
    )


def test_the_sign_of_a_distance_matters(column):
    query, key = (column.array(np.ones((HEADS, 1, WIDTH))) for _ in range(2))
    bias = drawn(column)
    before, after = (
        column.numpy(scores(column, bias, ((), np.array([i]), np.array([0])), query, key))
        for i in (3, -3)
    )
    assert np.abs(before - after).min() > 1e-3


@pytest.mark.parametrize("name", [*PARAMETERS, "base"])
def test_every_parameter_matters(column, name):
    query, key = map(column.array, heads(CASES["in a row"]))
    before = scores(column, drawn(column), CASES["in a row"], query, key)
    if name == "base":
        bias = drawn(column, base=9999.0)
    else:
        changed = PARAMETERS | {name: PARAMETERS[name] + 1}
        bias = xl(column, *map(column.array, changed.values()))
    after = scores(column, bias, CASES["in a row"], query, key)
    assert error(column.numpy(after), column.numpy(before)) > 1e-6


def test_sinusoids_in_the_order_of_the_authors_code_are_a_permutation_of_rows(column):
    query, key = heads(CASES["in a row"])
    theirs = draw(237, DIM, HEADS * WIDTH) / 4  # all sines before all cosines
    order = np.arange(DIM).reshape(2, -1).T.ravel()
    bias = xl(column, *map(column.array, (CONTENT, POSITION, theirs[order])))
    arrays = column.array(query), column.array(key)
    got = scores(column, bias, CASES["in a row"], *arrays)
    for h, i, j in np.ndindex(HEADS, 5, 5):
        r = (
            sinusoid(i - j).reshape(-1, 2).T.ravel()
            @ theirs[:, WIDTH * h : WIDTH * (h + 1)]
        )
        q, k = query[0, h, i], key[0, h, j]
        want = ((q + POSITION[h]) @ r + CONTENT[h] @ k) / WIDTH**0.5
        assert abs(column.numpy(got)[0, h, i, j] - want) < 1e-12


def layer(column, bias):
    return column.multi_head([column.array(w) for w in WEIGHTS], HEADS, bias=bias)


def test_an_attention_with_these_terms_is_the_papers(column):
    x, positions = draw(238, 5, DIM) / 2, np.array([0, 1, 2, 5, 9])
    got = layer(column, drawn(column))(
        *[column.array(x)] * 3, key_positions=column.positions(positions)
    )
    out = np.zeros((5, DIM))
    for h in range(HEADS):
        columns = slice(WIDTH * h, WIDTH * (h + 1))
        q, k, v = (x @ w[:, columns] for w in WEIGHTS[:3])
        for i in range(5):
            rs = [sinusoid(positions[i] - p) @ WEIGHT[:, columns] for p in positions]
            s = [
                q[i] @ k[j] + q[i] @ rs[j] + CONTENT[h] @ k[j] + POSITION[h] @ rs[j]
                for j in range(5)
            ]
            weights = np.exp(np.array(s) / WIDTH**0.5)
            out[i, columns] = weights / weights.sum() @ v
    assert_close(column, got, out @ WEIGHTS[3])


@pytest.mark.slow
def test_decoding_one_token_at_a_time_repeats_prefill(column):
    attend, x = layer(column, drawn(column)), column.array(draw(239, 6, DIM))
    whole = column.numpy(attend(x, x, x, causal=True))
    for n in (1, 3, 6):
        new = attend(x[n - 1 : n], x[:n], x[:n], causal=True)
        assert_close(column, new, whole[n - 1 : n])


def test_a_segment_with_the_memory_of_the_last_one_is_as_if_in_one_sequence(column):
    attend, x = layer(column, drawn(column)), column.array(draw(239, 6, DIM))
    whole = column.numpy(attend(x, x, x, causal=True))
    positions = column.positions(np.arange(-1, 4))
    segment = attend(x[3:], x[1:], x[1:], key_positions=positions, causal=True)
    seen = np.arange(6) >= 1
    mask = column.array(np.broadcast_to(seen, (6, 6)))
    short = attend(x, x, x, causal=True, mask=mask)
    assert_close(column, segment, column.numpy(short)[3:])
    assert error(column.numpy(segment), whole[3:]) > 1e-6


def test_layers_and_the_gradients_of_the_parameters_agree_with_the_reference(twin):
    positions = np.array([[0, 1, 2, 3], [5, 6, 7, 1]])

    def attend(column, x, *parameters):
        bias = xl(column, *parameters)
        return layer(column, bias)(x, x, x, key_positions=column.positions(positions))

    assert_twin_agrees(twin, attend, draw(217, 2, 4, DIM) / 4, *PARAMETERS.values())


def fresh(column, *sizes):
    if column.name == "torch":
        return column.TransformerXLBias(*sizes, dtype=torch.float64, rng=column.rng())
    return column.TransformerXLBias.init(column.rng(), *sizes)


def test_fresh_parameters_are_normal_and_repeat_with_their_rng(column):
    bias, again = fresh(column, 96, 4), fresh(column, 96, 4)
    shapes = {"content_bias": (4, 24), "position_bias": (4, 24), "weight": (96, 96)}
    for name, shape in shapes.items():
        parameter = column.numpy(getattr(bias, name))
        assert parameter.shape == shape
        assert abs(parameter.std() / 0.02 - 1) < 0.2
        assert abs(parameter.mean()) < 5e-3
        assert np.array_equal(column.numpy(getattr(again, name)), parameter)
    assert not np.array_equal(
        column.numpy(bias.content_bias), column.numpy(bias.position_bias)
    )


@pytest.mark.slow
def test_bfloat16_heads_stay_bfloat16_beside_float32_parameters():
    from posattn import jax as jax_column
    from posattn import torch as torch_column

    x = jax.numpy.ones((HEADS, 5, WIDTH), "bfloat16")
    bias = jax_column.TransformerXLBias.init(jax.random.key(0), DIM, HEADS)
    assert bias.scores(x, x, jax.numpy.arange(5), jax.numpy.arange(5)).dtype == "bfloat16"
    x = torch.ones(HEADS, 5, WIDTH, dtype=torch.bfloat16)
    bias = torch_column.TransformerXLBias(DIM, HEADS)
    assert bias.scores(x, x, torch.arange(5), torch.arange(5)).dtype == torch.bfloat16


@pytest.mark.slow
def test_the_jax_scheme_is_a_pytree_inside_a_layer(jax_single):
    x, n = jax_single.array(draw(218, 2, 5, DIM)), jax_single.positions(N)
    bias = fresh(jax_single, DIM, HEADS)
    attend = jax_single.MultiHeadAttention.init(jax_single.rng(), DIM, HEADS, bias=bias)
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
    x = torch_column.array(draw(219, 2, 5, DIM))
    attend = torch_column.MultiHeadAttention(
        DIM, HEADS, bias=fresh(torch_column, DIM, HEADS), dtype=torch.float64
    )
    want = attend(x, x, x, causal=True)
    got = torch.compile(attend, fullgraph=True, backend="aot_eager")(x, x, x, causal=True)
    assert error(got.detach().numpy(), want.detach().numpy()) <= BOUND["float64"]


def test_the_reference_is_float64_for_float32_input():
    query, key = (x.astype(np.float32) for x in heads(CASES["in a row"]))
    parameters = [x.astype(np.float32) for x in PARAMETERS.values()]
    got = scores(REFERENCE, xl(REFERENCE, *parameters), CASES["in a row"], query, key)
    assert got.dtype == np.float64
