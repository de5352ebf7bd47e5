"""Self-attention."""

import warnings

import numpy as np
import pytest
import torch

import posattn.torch
from posattn import reference
from posattn.reference import (
    MultiHeadAttention,
    attention_weights,
    scaled_dot_product_attention,
)

# dog, bites, man, and what they give
X = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1.0]])
W_Q = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
Q, K, V = X @ W_Q, X * [2, 2, 1, 1], X * [1, 1, 2, 2]
FIVE = np.random.default_rng(2).normal(size=(5, 3))  # tokens of width 3


def test_eq_self_attention():
    r"""$$ \mathbf{y}_i = f\big(\mathbf{x}_i, (\mathbf{x}_0, \mathbf{x}_0), \ldots, (\mathbf{x}_{n-1}, \mathbf{x}_{n-1})\big) \in \mathbb{R}^d, $$"""

    def f(query, *pairs):
        terms = [np.exp(sum(query * k) / 3**0.5) for k, _ in pairs]
        return sum(e * v for e, (_, v) in zip(terms, pairs, strict=True)) / sum(terms)

    outputs = [f(x, *[(token, token) for token in FIVE]) for x in FIVE]
    assert np.allclose(scaled_dot_product_attention(FIVE, FIVE, FIVE), outputs)


def test_eq_self_attention_projections():
    r"""$$ \mathbf{Q} = \mathbf{X}\mathbf{W}^{(q)}, \;\; \mathbf{K} = \mathbf{X}\mathbf{W}^{(k)}, \;\; \mathbf{V} = \mathbf{X}\mathbf{W}^{(v)}. $$"""
    matrices = np.random.default_rng(1).normal(size=(3, 3, 3))
    q, k, v = (
        np.array([[sum(x[a] * w[a, c] for a in range(3)) for c in range(3)] for x in FIVE])
        for w in matrices
    )
    layer = MultiHeadAttention(*matrices, np.eye(3), num_heads=1)
    assert np.allclose(layer(FIVE, FIVE, FIVE), scaled_dot_product_attention(q, k, v))


def test_eq_transformer_block():
    r"""$$ \begin{aligned} \mathbf{Z} &= \mathbf{X} + a(\operatorname{norm}(\mathbf{X})), \\ \text{output} &= \mathbf{Z} + g(\operatorname{norm}(\mathbf{Z})) . \end{aligned} $$"""
    block = torch.nn.TransformerEncoderLayer(
        4, 1, 16, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    p = {name: value.detach().numpy() for name, value in block.named_parameters()}
    projections = p["self_attn.in_proj_weight"].reshape(3, 4, 4).mT
    a = MultiHeadAttention(*projections, p["self_attn.out_proj.weight"].T, num_heads=1)

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def g(x):
        wide = np.maximum(x @ p["linear1.weight"].T + p["linear1.bias"], 0)
        return wide @ p["linear2.weight"].T + p["linear2.bias"]

    Z = X + a(norm(X))
    assert np.allclose(block(torch.from_numpy(X)).detach().numpy(), Z + g(norm(Z)))


def test_training_finds_the_product_of_two_matrices(page):
    p, W_K = page.torch, np.diag([2.0, 2, 1, 1])
    assert (p.error**2).mean() < 1e-8
    assert np.allclose(p.new_v, np.diag([1, 1, 2, 2]), atol=1e-3)
    assert np.allclose(p.new_q @ p.new_k.T, W_Q @ W_K, atol=1e-3)
    assert np.corrcoef(X[1] @ p.new_q, Q[1])[0, 1] < 0.5
    mixed = np.random.default_rng(0).normal(size=(4, 4))
    queries, keys = Q @ mixed, K @ np.linalg.inv(mixed).T
    assert np.allclose(attention_weights(queries, keys), attention_weights(Q, K))


def test_a_rotation_makes_distance_count():
    q, k = np.repeat(Q[1:2], 6, axis=0), np.repeat(K[:1], 6, axis=0)  # at six positions
    places = np.arange(6)
    scores = reference.rotate(q, places) @ reference.rotate(k, places).T
    assert np.allclose(scores.diagonal(), Q[1] @ K[0])
    assert np.allclose(scores[1:, 1:], scores[:-1, :-1])
    assert not np.allclose(scores, scores[0, 0])


def test_the_mask_hides_padding_from_queries():
    rng = np.random.default_rng(0)
    layer = MultiHeadAttention.init(rng, 10, 5)
    padding = np.arange(4) >= np.array([[3], [2]])
    mask = reference.length_mask(np.array([3, 2]), 4)
    x, noise = rng.normal(size=(2, 2, 4, 10))
    z = np.where(padding[..., None], noise, x)
    masked = layer(x, x, x, mask=mask)
    assert np.allclose(layer(x, z, z, mask=mask), masked)
    changed = ~np.isclose(layer(z, z, z, mask=mask), masked).all(-1)
    assert np.array_equal(changed, padding)  # they ask as well
    assert not np.isclose(layer(x, z, z), layer(x, x, x)).all(-1).any()
    ones = np.ones_like(x)
    assert np.allclose(layer(ones, mask=mask), layer(ones))  # a test that sees no mask


def test_dropout_needs_rng_whatever_the_mode():
    layer = posattn.torch.MultiHeadAttention(10, 5, dropout_rate=0.5)
    x = torch.randn(1, 4, 10, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="drops nothing without rng"):
        trained = layer.train()(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluated = layer.eval()(x)
    assert torch.equal(trained, evaluated)
    assert not torch.allclose(layer(x, rng=0), evaluated)


def test_each_word_keeps_its_output_in_any_order():
    y = scaled_dot_product_attention(Q, K, V)
    backward = scaled_dot_product_attention(Q[::-1], K[::-1], V[::-1])
    assert np.allclose(backward[::-1], y)
    sentence = np.insert(X, [0, 2], 0, axis=0)  # with two the
    weights = attention_weights(sentence @ W_Q, sentence * [2, 2, 1, 1])
    assert np.allclose(weights[[0, 3]], 0.20)
    assert np.allclose(weights[:, 0], weights[:, 3])


def test_a_masked_diagonal_leaves_one_token_nothing():
    one = np.ones((1, 4))
    assert not scaled_dot_product_attention(
        one, one, one, mask=~np.eye(1, dtype=bool)
    ).any()


def test_by_hand():
    assert Q.tolist() == [[0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    output = scaled_dot_product_attention(Q, K, V)[1]
    assert output[2] > output[3]  # an animal more than a human
    frost = np.vstack([[1, 0, 0, 0], X[1:]])
    y = scaled_dot_product_attention(
        frost @ W_Q, frost * [2, 2, 1, 1], frost * [1, 1, 2, 2]
    )
    assert y[1, 2] == 0
    assert y[1, 3] > output[3]
