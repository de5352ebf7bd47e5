"""Attention in tiles."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from posattn import reference
from posattn.jax import scaled_dot_product_attention as jax_attention
from posattn.torch import scaled_dot_product_attention as torch_attention

RNG = np.random.default_rng(3)
SCORES, VALUES = 5 * RNG.normal(size=9), RNG.normal(size=(9, 2))
DOG_BITES_MAN = np.log([1.0, 2.0, 5.0]), np.array([8.0, 16.0, 24.0])


def state(s, v):
    """The maximum, the sum and the weighted sum of some keys, term by term."""
    mu = max(s)
    Z = sum(np.exp(s_j - mu) for s_j in s)
    a = sum(np.exp(s_j - mu) * v_j for s_j, v_j in zip(s, v, strict=True))
    return mu, Z, a


def gradients(q, k, v, g):
    """What autograd finds for queries, keys, values and, by a bias of zeros, scores."""
    leaves = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    bias = torch.zeros(1, len(q), len(k), dtype=torch.float64, requires_grad=True)
    y = torch_attention(*(x[None] for x in leaves), bias=bias)
    y.backward(torch.tensor(g)[None])
    return [*(leaf.grad.numpy() for leaf in leaves), bias.grad[0].numpy()]


def test_eq_roofline(page):
    r"""$$ \text{time} \ge \max\left( \frac{\text{operations}}{F}, \; \frac{\text{bytes}}{B} \right) . $$"""
    operations_a_second, bytes_a_second = 312e12, 2e12
    jobs = [(10.0**9, 10.0**9 / intensity) for intensity in page.torch.per_byte]
    times = [max(work / operations_a_second, size / bytes_a_second) for work, size in jobs]
    (drawn,) = page.torch.roof.values()
    assert np.allclose(10**9 / (drawn * 1e12), times)


def test_eq_intensity():
    r"""$$ \frac{4n^2d}{b\,(4n^2 + 4nd)} = \frac{d}{b} \cdot \frac{n}{n + d} . $$"""
    n, d, b = 64, 16, 2
    q, k, v = np.ones((3, n, d), np.float16) / 8
    scores = weights = q @ k.T
    kernels = [(q, k, scores), (scores, weights), (weights, v, weights @ v)]
    moved = sum(x.nbytes for kernel in kernels for x in kernel)
    operations = reference.measure(lambda x: x @ k.T @ v, q).operations
    assert np.isclose(operations / moved, d / b * n / (n + d))


def test_eq_tile_traffic():
    r"""$$ \underbrace{2nd}_{\text{queries and outputs}} + \; \underbrace{\frac{n}{t} \cdot 2nd}_{\text{keys and values}} $$"""
    n, t, d = 64, 16, 4
    q, k, v = RNG.normal(size=(3, n, d))
    moved, rows = 0, []
    for start in range(0, n, t):
        strip = q[start : start + t]
        exps, products = 0, 0
        for first in range(0, n, t):
            keys, values = k[first : first + t], v[first : first + t]
            exp = np.exp(strip @ keys.T / d**0.5)
            exps, products = exps + exp.sum(1, keepdims=True), products + exp @ values
            moved += keys.size + values.size
        rows.append(products / exps)
        moved += strip.size + rows[-1].size
    assert np.allclose(np.vstack(rows), reference.scaled_dot_product_attention(q, k, v))
    assert moved == 2 * n * d + n / t * 2 * n * d


def test_eq_online_state():
    r"""$$ \mu = \max_{j \in T} s_j, \qquad Z = \sum_{j \in T} e^{s_j - \mu}, \qquad \mathbf{a} = \sum_{j \in T} e^{s_j - \mu}\, \mathbf{v}_j . $$"""
    mu, Z, a = state(SCORES, VALUES)
    weights = reference.masked_softmax(SCORES[None])[0]
    assert np.allclose(np.exp(SCORES - mu) / Z, weights)
    assert np.allclose(a / Z, weights @ VALUES)


def test_eq_online_merge():
    r"""$$ \hat\mu = \max(\mu, \mu'), \qquad \hat Z = e^{\mu - \hat\mu}\, Z + e^{\mu' - \hat\mu}\, Z', \qquad \hat{\mathbf{a}} = e^{\mu - \hat\mu}\, \mathbf{a} + e^{\mu' - \hat\mu}\, \mathbf{a}' , $$"""
    chosen = RNG.permutation(9) < 4
    mu1, Z1, a1 = state(SCORES[chosen], VALUES[chosen])
    mu2, Z2, a2 = state(SCORES[~chosen], VALUES[~chosen])
    mu = max(mu1, mu2)
    Z = np.exp(mu1 - mu) * Z1 + np.exp(mu2 - mu) * Z2
    a = np.exp(mu1 - mu) * a1 + np.exp(mu2 - mu) * a2
    for merged, whole in zip((mu, Z, a), state(SCORES, VALUES), strict=True):
        assert np.allclose(merged, whole)
    assert np.allclose(a / Z, reference.masked_softmax(SCORES[None])[0] @ VALUES)


def test_eq_tiled_gradient():
    r"""$$ \begin{aligned} \frac{\partial L}{\partial s_{ij}} &= \alpha_{ij} \Bigl( \mathbf{g}_i^\top \mathbf{v}_j - \sum_l \alpha_{il}\, \mathbf{g}_i^\top \mathbf{v}_l \Bigr) \\ &= \alpha_{ij} \bigl( \mathbf{g}_i^\top \mathbf{v}_j - \mathbf{g}_i^\top \mathbf{y}_i \bigr) . \end{aligned} $$"""
    q, k, v, g = RNG.normal(size=(4, 5, 3))
    *_, of_scores = gradients(q, k, v, g)
    alpha, of_weights = reference.attention_weights(q, k), g @ v.T
    mean = (alpha * of_weights).sum(1, keepdims=True)
    assert np.allclose(of_scores, alpha * (of_weights - mean))
    by_output = (g * (alpha @ v)).sum(1, keepdims=True)
    assert np.allclose(of_scores, alpha * (of_weights - by_output))


def test_eq_tiled_gradient_keys():
    r"""$$ \frac{\partial L}{\partial \mathbf{k}_j} = \frac{1}{\sqrt d} \sum_i \frac{\partial L}{\partial s_{ij}}\, \mathbf{q}_i, \qquad \frac{\partial L}{\partial \mathbf{q}_i} = \frac{1}{\sqrt d} \sum_j \frac{\partial L}{\partial s_{ij}}\, \mathbf{k}_j . $$"""
    q, k, v, g = RNG.normal(size=(4, 5, 3))
    of_query, of_key, of_value, _ = gradients(q, k, v, g)
    alpha = reference.attention_weights(q, k)
    of_scores = alpha * (g @ v.T - (g * (alpha @ v)).sum(1, keepdims=True))
    assert np.allclose(of_key, of_scores.T @ q / 3**0.5)
    assert np.allclose(of_query, of_scores @ k / 3**0.5)
    assert np.allclose(of_value, alpha.T @ g)


def note_queries(lengths, queries, keys):
    """A bias of zeros that notes for how many queries at a time it is called."""
    lengths.append(queries.shape[-1])
    return torch.zeros(8, queries.shape[-1], keys.shape[-1])


def test_tiles_begin_where_the_page_says(page):
    n = page.glued["jax_tiles_from"]
    for length, loops in ((n, False), (n + 1, True)):
        x = np.ones((1, 1, length, 4), np.float32)
        program = str(jax.make_jaxpr(jax_attention)(x, x, x))
        assert ("while" in program or "scan" in program) == loops
    n = page.glued["torch_tiles_from"]
    for length, whole in ((n, True), (n + 1, False)):
        lengths = []
        x = torch.ones(1, 8, length, 4)
        torch_attention(x, x, x, bias=partial(note_queries, lengths))
        assert (max(lengths) == length) == whole


def test_memory_grows_linearly_in_tiles_only(page):
    whole, tiles = np.log2(list(page.torch.lines.values()))
    assert page.glued["square_from"] == page.torch.lengths[2] == 4096
    assert np.allclose(np.diff(whole)[2:], 2, atol=0.05)
    assert max(np.diff(tiles)) < 1.05


def test_no_fused_kernel_of_torch_has_dropout_here():
    x = torch.ones(1, 2, 6, 4)
    attend = torch.nn.functional.scaled_dot_product_attention
    fused = [getattr(SDPBackend, f"{k}_ATTENTION") for k in ("FLASH", "EFFICIENT", "CUDNN")]
    with sdpa_kernel(fused):
        attend(x, x, x)
        refused = pytest.raises(RuntimeError, match="No available kernel")
        with pytest.warns(UserWarning, match="not used because|dropout"), refused:
            attend(x, x, x, dropout_p=0.1)


def test_by_hand(page):
    scores, values = DOG_BITES_MAN
    first, second = state(scores[:2], values[:2]), state(scores[2:], values[2:])
    assert np.allclose(first, [np.log(2), 1.5, 20])
    assert np.allclose(second, [np.log(5), 1, 24])
    assert np.allclose(state(scores, values), [np.log(5), 1.6, 32])
    assert 32 / 1.6 == (1 * 8 + 2 * 16 + 5 * 24) / 8 == 20
    rows, same = page.torch.rows, page.torch.given["values"][:3]
    assert (rows[2], same) == (np.exp(scores).round().tolist(), values.tolist())
    assert [sum(rows[6][:n]) / max(rows[6][:n]) for n in (2, 4)] == [1.5, 1.4]
    assert np.isclose(0.2 * 1.5 + 1.1, 1.4)
    slopes = np.array([1, 2, 5]) / 8 * (values - 20)
    assert slopes.tolist() == [-1.5, -1, 2.5]
    assert 128 * 128 * 4 == 64 * 1024 < 192 * 1024
    assert round(100 * (75.2 / 66.6 - 1)) == 13  # operations, in the paper's table
    assert 5.5 < 41.7 / 7.3 < 6
    F, B, n, d = page.torch.F, page.torch.B, 8192, 64
    assert (F / 1e12, B / 1e12, F / B) == (312, 2, 156)
    numbers = (4 * n**2 + 4 * n * d, 2 * n * d + n // 128 * 2 * n * d)
    times = [max(4 * n**2 * d / F, 2 * moved / B) for moved in numbers]
    assert np.round(np.multiply(times, 1e6), 2).tolist() == [270.53, 68.16]
    whole, tiles = np.array(list(page.torch.lines.values()))
    assert (round(whole[0]), round(whole[-1])) == (12, 65537)
    assert np.allclose(tiles[:3], 4, atol=0.6)
    assert round(tiles[-1]) == 35
