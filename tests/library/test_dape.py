"""DAPE."""

import math

import numpy as np
import pytest

from tests.conftest import REFERENCE, assert_close, assert_twin_agrees, draw, error

HEADS, HEAD_DIM, N, HIDDEN = 2, 3, 5, 4
NAMES = ("hidden_weight", "hidden_bias", "output_weight", "output_bias")
NETWORK = tuple(
    draw(300 + i, *shape) / 2
    for i, shape in enumerate(((2 * HEADS, HIDDEN), (HIDDEN,), (HIDDEN, HEADS), (HEADS,)))
)
KERPLE = (np.array([0.5, 1.25]), np.array([0.25, 1.0]))
# batch axes, query positions, key positions
CASES = {
    "no batch axis": ((), np.arange(N), np.arange(N)),
    "offset and gaps": ((2,), np.array([2.5, 9]), np.array([-4, 0, 2.5, 8, 9])),
    "per example": (
        (2,),
        np.array([[1, 2], [7, 9]]),
        np.array([np.arange(N), 3 + 2 * np.arange(N)]),
    ),
    "no keys": ((2,), np.arange(2), np.arange(0)),
}


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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_pair_is_the_bias_and_what_the_network_adds(column, case):
    query, key = heads(case)
    batch, *where = case
    want = np.zeros((*batch, HEADS, query.shape[-2], key.shape[-2]))
    where = [np.broadcast_to(p, (*batch, p.shape[-1])) for p in where]
    for b in np.ndindex(*batch):
        want[b] = naive(query[b], key[b], where[0][b], where[1][b])
    got = scores(column, case, *map(column.array, (query, key, *KERPLE, *NETWORK)))
    assert_close(column, got, want)


def test_scores_and_their_gradients_agree_with_the_reference(twin):
    case = CASES["per example"]
    inputs = *(x / 2 for x in heads(case)), *KERPLE, *NETWORK
    assert_twin_agrees(twin, lambda column, *xs: scores(column, case, *xs), *inputs)


def test_gradients_at_the_corner_agree_with_the_reference(twin):
    """Where what is hidden is zero, the slope is that of the negative side."""
    case = CASES["per example"]

    def compute(column, *network):
        fixed = [column.array(x) for x in (*heads(case), *KERPLE)]
        return scores(column, case, *fixed, *network)

    assert_twin_agrees(twin, compute, 0 * NETWORK[0], 0 * NETWORK[1], *NETWORK[2:])


def test_a_network_of_zeros_leaves_a_function_as_it_is(column):
    """Any function of positions can be adapted."""
    case, alibi = CASES["no batch axis"], column.ALiBi(HEADS)
    nothing = [column.array(0 * w) for w in NETWORK]
    where = [column.positions(p) for p in case[1:]]
    made = dape(column, lambda *where: alibi(*where) / 2, nothing)
    got = made.scores(*map(column.array, heads(case)), *where)
    want = REFERENCE.ALiBi(HEADS)(*case[1:]) / 2
    assert error(column.numpy(got), want) <= 1e-6
