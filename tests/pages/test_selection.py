"""Which keys to read: the equations, the example by hand, and where a wrong indexer shows."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from posattn import reference
from posattn.configs import plan

RNG = np.random.default_rng(3)
RECORDS = Path(__file__).parents[2] / "docs" / "_records" / "configs"


def entropy(scores):
    weights = reference.masked_softmax(scores)
    return -(weights * np.log(weights)).sum(-1).mean()


def test_eq_index_score(page):
    r"""$$ \tilde{s}_{ij} = \sum_h w_{ih} \max\left(0,\; \tilde{\mathbf{q}}_{ih}^\top \tilde{\mathbf{k}}_j / \sqrt{D}\right) . $$"""
    sizes, D = ((3, 6, 4), (6, 4), (6, 3)), 4
    q, k, w = (RNG.normal(size=size) for size in sizes)
    chosen = page.torch.chosen_torch(*map(torch.from_numpy, (q, k, w)), 2).numpy()
    for i in range(1, 6):
        s = [
            sum(w[i, h] * max(0, q[h, i] @ k[j] / np.sqrt(D)) for h in range(3))
            for j in range(i + 1)
        ]
        assert {*chosen[i]} == {*np.argsort(s)[-2:]}


def test_by_hand():
    query, weight = np.eye(2)[:, None], np.array([[1.0, 2.0]])  # nouns, verbs
    key = np.array([[0.0, 0], [2, -1], [0, 3], [0, 0], [1, 0]])  # the dog bites the man
    found = query @ key.T
    assert (weight[0] @ np.maximum(found, 0)[:, 0]).tolist() == [0, 2, 6, 0, 1]
    assert (weight[0] @ found[:, 0]).tolist() == [0, 0, 6, 0, 1]


def test_eq_unread():
    r"""$$ \mathbf{y} - \mathbf{y}' = (1 - c)\,(\mathbf{y}'' - \mathbf{y}') . $$"""
    scores, value, read = RNG.normal(size=(1, 9)), RNG.normal(size=(9, 4)), np.arange(9) < 4
    weights = reference.masked_softmax(scores)
    c = weights[0, read].sum()
    y, some, rest = (
        reference.masked_softmax(scores, mask) @ value
        for mask in (np.ones((1, 9), bool), read[None], ~read[None])
    )
    assert np.allclose(y - some, (1 - c) * (rest - some))


def test_eq_selection_cost():
    r"""$$ \frac{n}{m}\, I + K\, A \qquad\text{instead of}\qquad n\, A . $$"""
    config = json.loads((RECORDS / "deepseek-v3.2.json").read_text("utf-8"))
    rank, turned = config["kv_lora_rank"], config["qk_rope_head_dim"]
    index = config["index_n_heads"] * config["index_head_dim"]
    attend = config["num_attention_heads"] * (rank + turned + rank)
    K, n = config["index_topk"], 10**9
    assert (index, attend, K) == (64 * 128, 128 * (576 + 512), 2048)
    assert n * attend / (n * index + K * attend) == pytest.approx(17, rel=1e-3)
    assert K * attend == 2176 * (attend - index)  # reading all of so many keys, or choosing


def test_windows_of_gpt_oss():
    layers = plan(RECORDS / "gpt-oss-120b.json").layers
    assert [layer.window for layer in layers] == [128, None] * (len(layers) // 2)
    assert all(layer.sinks for layer in layers)


def test_a_match_drowns_in_a_long_text(page):
    for n, share in ((5, "93.2%"), (100, "35.5%"), (8192, "0.7%")):
        weights = reference.masked_softmax(4.0 * (np.arange(n) == 2)[None])[0]
        assert f"{weights[2]:.1%}" == share
        assert f"{n:4} tokens: bites has {share}" in page.printed


def test_eq_group_mean():
    r"""$$ \left| \frac{1}{m} \sum_{t=0}^{m-1} e^{\mathrm{i} \omega t} \right| = \left| \frac{\sin(m\omega/2)}{m \sin(\omega/2)} \right| . $$"""
    for m, omega in ((4, 1.0), (16, 0.1), (128, 0.01)):
        same, frequencies = np.tile([0.6, 0.8], (m, 1)), np.array([omega])
        mean = reference.rotate(same, np.arange(m) + 7, frequencies=frequencies).mean(0)
        assert np.linalg.norm(mean) == pytest.approx(
            abs(np.sin(m * omega / 2) / (m * np.sin(omega / 2)))
        )


@pytest.mark.parametrize("count", [4, 8, 13])
def test_nothing_differs_before_a_key_is_left_out(page, count):
    sizes = ((16, 40, 8), (40, 8), (40, 16), (40, 4), (40, 4), (40, 4))
    right, first = page.torch, []
    for _ in range(20):
        index_q, index_k, w, q, k, v = (torch.from_numpy(RNG.normal(size=s)) for s in sizes)
        outputs = [
            right.read_torch(q, k, v, right.chosen_torch(queries, index_k, w, count))
            for queries in (index_q, index_q.flip(-1))
        ]
        wrong = abs(outputs[0] - outputs[1]).amax(-1) > 1e-9
        first.append(int(wrong.nonzero()[0]))
    assert min(first) == count
    assert "the first at token 8" in page.printed


def test_eq_sink_gate():
    r"""$$ \frac{\sum_j e^{s_j}\, \mathbf{v}_j}{e^a + \sum_j e^{s_j}} = \frac{1}{1 + e^{-(\ell - a)}}\; \mathbf{y} . $$"""
    s, v, a = RNG.normal(size=6), RNG.normal(size=(6, 3)), 0.7
    with_sink = reference.masked_softmax(np.append(s, a)[None])[0, :-1] @ v
    y = reference.masked_softmax(s[None])[0] @ v
    gate = 1 / (1 + np.exp(a - np.log(np.exp(s).sum())))
    assert np.allclose(with_sink, gate * y)


def test_eq_temperature_length():
    r"""$$ \tau = \sqrt{1 + \frac{2}{\sigma^2} \ln\frac{n}{L}} . $$"""
    for sigma, L, n in ((1.0, 2048, 65536), (2.0, 8192, 65536)):
        tau = np.sqrt(1 + 2 / sigma**2 * np.log(n / L))
        short, plain, held = (
            entropy(factor * RNG.normal(scale=sigma, size=(20, size)))
            for factor, size in ((1, L), (1, n), (tau, n))
        )
        assert abs(held - short) < 0.1 * (plain - short)
        assert (tau**2 * sigma**2 < 2 * np.log(n)) == (sigma**2 < 2 * np.log(L))


def test_slopes_of_the_forms_that_ship():
    r = np.log(1.01)  # of n / L
    tau, yarn = np.sqrt(1 + 2 * r / 10), (1 + 0.1 * r) ** 2
    assert tau == pytest.approx(1 + 0.1 * r, abs=1e-4)
    assert yarn == pytest.approx(np.sqrt(1 + 2 * r / 5), abs=1e-4)
    largest = RNG.normal(size=(50, 10**5)).max(1).mean()
    assert largest == pytest.approx(np.sqrt(2 * np.log(10**5)), rel=0.1)


def test_the_best_keys_of_each_head_hold_most(page):
    found = page.torch.measured
    ways = ("blocks by mean", "blocks by largest", "one list", "a list a group")
    for some, more in zip(ways, (*ways[1:], "a list a head"), strict=True):
        assert np.all(np.array(found[some]) <= found[more]), some
    assert all(np.all(np.diff(found[way]) > 0) for way in ways)
