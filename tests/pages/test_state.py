"""Order in a state: sums, decays, the delta rule, rotations, and what leaks."""

import json
from functools import reduce

import numpy as np
import pytest

from posattn import reference
from posattn.reference import gated_delta, kimi_delta, linear_attention, rotate
from tests.nightly.studies import recall
from tests.pages.reading import DOCS

DRAWN = np.random.default_rng(3)
Q, K, V = DRAWN.normal(size=(3, 6, 4))  # six tokens
K /= np.linalg.norm(K, axis=1, keepdims=True)
G, BETA = -DRAWN.uniform(size=6), DRAWN.uniform(size=6)
RATES = -DRAWN.uniform(size=(6, 4))  # a gate for each channel
RECORD = json.loads(recall.FILE.read_text("utf-8"))
DOG, MAN, FOX, CAT = np.eye(4)
FACTS = [(DOG, MAN), (FOX, DOG), (DOG, CAT)]


def recurrence(step):
    """The outputs of a recurrence from one state to the next."""
    S, outputs = np.zeros((4, 4)), []
    for i in range(6):
        S = step(S, i)
        outputs.append(S.T @ Q[i])
    return np.array(outputs)


def library(layer, *gates):
    return layer(Q[None], K[None], V[None], *(g[None] for g in gates), scale=1.0)[0][0]


def erasing(i):
    return np.eye(4) - BETA[i] * np.outer(K[i], K[i])


def test_eq_state_sum():
    r"""$$ \mathbf{y}_i = \sum_{j \le i} (\mathbf{q}_i^\top \mathbf{k}_j)\, \mathbf{v}_j = \mathbf{S}_i^\top \mathbf{q}_i, \qquad \mathbf{S}_i = \mathbf{S}_{i-1} + \mathbf{k}_i \mathbf{v}_i^\top . $$"""
    y = recurrence(lambda S, i: S + np.outer(K[i], V[i]))
    assert np.allclose(y, library(linear_attention))
    assert np.allclose(y, np.tril(Q @ K.T) @ V)  # attention without the softmax
    again = [3, 0, 4, 1, 2, 5]
    assert np.allclose(y[5], np.tril(Q @ K[again].T)[5] @ V[again])  # no order of the past


def test_eq_state_decay():
    r"""$$ \mathbf{S}_i = e^{g_i}\, \mathbf{S}_{i-1} + \mathbf{k}_i \mathbf{v}_i^\top . $$"""
    y = recurrence(lambda S, i: np.exp(G[i]) * S + np.outer(K[i], V[i]))
    assert np.allclose(y, library(linear_attention, G))


def test_eq_state_distance():
    r"""$$ \mathbf{y}_i = \sum_{j \le i} e^{c_i - c_j}\, (\mathbf{q}_i^\top \mathbf{k}_j)\, \mathbf{v}_j . $$"""
    c = G.cumsum()
    for i, y in enumerate(library(linear_attention, G)):
        parts = [np.exp(c[i] - c[j]) * (Q[i] @ K[j]) * V[j] for j in range(i + 1)]
        assert np.allclose(y, sum(parts))
    forgets = reference.forgetting_bias(G[None])[0]
    assert np.allclose(np.tril(forgets), np.tril(c[:, None] - c))
    slope = reference.alibi_slopes(8)[0]
    steady = np.full(6, -slope).cumsum()[:, None] - np.full(6, -slope).cumsum()
    assert np.allclose(np.tril(steady), np.tril(reference.ALiBi(8)(*[np.arange(6)] * 2)[0]))


def test_eq_delta_rule():
    r"""$$ \mathbf{S}_i = \mathbf{S}_{i-1} + \beta_i\, \mathbf{k}_i \left( \mathbf{v}_i - \mathbf{S}_{i-1}^\top \mathbf{k}_i \right)^\top . $$"""
    y = recurrence(lambda S, i: S + BETA[i] * np.outer(K[i], V[i] - S.T @ K[i]))
    assert np.allclose(y, library(gated_delta, np.zeros(6), BETA))


def test_eq_householder():
    r"""$$ \mathbf{S}_i = \left( \mathbf{I} - \beta_i\, \mathbf{k}_i \mathbf{k}_i^\top \right) \mathbf{S}_{i-1} + \beta_i\, \mathbf{k}_i \mathbf{v}_i^\top . $$"""
    y = recurrence(lambda S, i: erasing(i) @ S + BETA[i] * np.outer(K[i], V[i]))
    assert np.allclose(y, library(gated_delta, np.zeros(6), BETA))
    mirror = np.eye(4) - 2 * np.outer(K[0], K[0])  # beta = 2
    assert np.allclose(mirror @ mirror, np.eye(4))
    assert np.allclose(mirror @ K[0], -K[0])


def test_eq_gated_delta():
    r"""$$ \mathbf{S}_i = e^{g_i} \left( \mathbf{I} - \beta_i\, \mathbf{k}_i \mathbf{k}_i^\top \right) \mathbf{S}_{i-1} + \beta_i\, \mathbf{k}_i \mathbf{v}_i^\top . $$"""
    y = recurrence(
        lambda S, i: np.exp(G[i]) * erasing(i) @ S + BETA[i] * np.outer(K[i], V[i])
    )
    assert np.allclose(y, library(gated_delta, G, BETA))


def test_eq_kimi_delta():
    r"""$$ \mathbf{S}_i = \left( \mathbf{I} - \beta_i\, \mathbf{k}_i \mathbf{k}_i^\top \right) \operatorname{diag}(e^{\mathbf{g}_i})\, \mathbf{S}_{i-1} + \beta_i\, \mathbf{k}_i \mathbf{v}_i^\top . $$"""
    y = recurrence(
        lambda S, i: (
            erasing(i) @ np.diag(np.exp(RATES[i])) @ S + BETA[i] * np.outer(K[i], V[i])
        )
    )
    assert np.allclose(y, library(kimi_delta, RATES, BETA))


def test_eq_delta_chunk():
    r"""$$ \mathbf{u}_i + \beta_i \sum_{j<i} (\mathbf{k}_i^\top \mathbf{k}_j)\, \mathbf{u}_j = \beta_i \left( \mathbf{v}_i - \mathbf{S}_0^\top \mathbf{k}_i \right) . $$"""
    S = np.random.default_rng(4).normal(size=(4, 4))
    system = np.eye(6) + np.tril(BETA[:, None] * (K @ K.T), -1)
    u = np.linalg.solve(system, BETA[:, None] * (V - K @ S))
    given = (each[None] for each in (Q, K, V, np.zeros(6), BETA))
    assert np.allclose(gated_delta(*given, state=S[None])[1][0], S + K.T @ u)


def test_eq_transitions():
    r"""$$ \mathbf{y}_i = \sum_{j \le i} \left( \mathbf{q}_i^\top \mathbf{A}_i \mathbf{A}_{i-1} \cdots \mathbf{A}_{j+1} \mathbf{k}_j \right) \mathbf{v}_j . $$"""

    def unrolled(A, keys):
        def between(i, j):
            return reduce(np.matmul, [A[m] for m in range(i, j, -1)], np.eye(4))

        return [
            sum((Q[i] @ between(i, j) @ keys[j]) * V[j] for j in range(i + 1))
            for i in range(6)
        ]

    A = [np.exp(G[i]) * erasing(i) for i in range(6)]
    assert np.allclose(unrolled(A, BETA[:, None] * K), library(gated_delta, G, BETA))
    back = rotate(np.eye(4), np.full(4, -1)).T  # a rotation by minus each frequency
    at = np.arange(6)
    rotary = linear_attention(rotate(Q, at)[None], rotate(K, at)[None], V[None], scale=1.0)
    assert np.allclose(unrolled([back] * 6, K), rotary[0][0])


def test_constant_steps_are_rope():
    steps = np.broadcast_to(reference.frequencies(4), (1, 6, 2))
    q, k = (reference.selective_rotation(x[None], steps)[0][0] for x in (Q, K))
    assert np.allclose(q @ k.T, rotate(Q) @ rotate(K).T)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_two_facts_decides(order):
    facts = FACTS[::order]
    k, v = (np.array(side)[None] for side in zip(*facts, strict=True))
    one = np.ones((1, 3))
    added = linear_attention(k, k, v)[1][0]
    faded = linear_attention(k, k, v, np.log(one / 2))[1][0]
    state = gated_delta(k, k, v, 0 * one, one)[1][0]
    first, last = (MAN, CAT)[::order]
    assert np.allclose(added[0], MAN + CAT)
    assert np.allclose(faded[0], first / 4 + last)
    assert np.allclose(faded[2], DOG / 2)
    assert np.allclose([state[0], state[2]], [last, DOG])
    half = gated_delta(k, k, v, 0 * one, one / 2)[1][0]
    assert np.allclose(half[0], first / 4 + last / 2)
    both = gated_delta(k, k, v, np.log(one / 2), one)[1][0]
    assert np.allclose([both[0], both[2]], [last, DOG / 2])


def test_the_record_is_of_this_code_and_says_what_the_page_says():
    assert RECORD["made_from"] == recall.fingerprint(), (
        "train again: nox -s record -- study recall"
    )
    names = RECORD["names"]
    right = {
        model: np.mean([RECORD[f"{model}, seed {seed}"] for seed in recall.SEEDS], axis=0)
        for model in recall.MODELS
    }
    for fewer, more in ((2, 4), (4, 8), (8, 16)):
        assert (right[f"{fewer} rows"] <= right[f"{more} rows"] + 0.01).all()
    assert min(right["4 rows, one full"][-1], right["mask alone"][-1]) > 0.97
    assert right["4 rows"][names.index(16)] < 0.7 < 0.9 < right["16 rows"][-1]


def test_numbers_of_released_models(page):
    text = (DOCS / "_records" / "configs" / "qwen3.5.json").read_text("utf-8")
    model = json.loads(text)["text_config"]
    assert (page.glued["qwen state"], page.glued["qwen full"]) == (48, 16)
    assert model["rope_parameters"]["partial_rotary_factor"] == 1 / 4
    sizes = ("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
    assert [model[size] for size in sizes] == [48, 128, 128]
    assert (model["num_key_value_heads"], model["head_dim"]) == (4, 256)
