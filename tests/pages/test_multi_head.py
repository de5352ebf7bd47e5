"""Multi-head attention."""

import jax
import numpy as np
import pytest
import torch

from posattn.reference import (
    MultiHeadAttention,
    scaled_dot_product_attention,
    split_heads,
)

LAYER = MultiHeadAttention.init(np.random.default_rng(0), 12, 3)
W_Q, W_K, W_V, W_O = (
    getattr(LAYER, f"{name}_weight") for name in ("query", "key", "value", "output")
)
X, CONTEXT = np.random.default_rng(1).normal(size=(2, 7, 12))
TARGET = np.linalg.qr(np.random.default_rng(0).normal(size=(4000, 16)))[0]
V_0, V_1 = np.split(TARGET, 2, axis=1)


def columns(x, h):
    """The columns of head h, of width 4."""
    return x[:, h * 4 : (h + 1) * 4]


def lost(*heads):
    """The share of the target that the best matrix does not get from what some heads return."""
    seen = np.hstack(heads)
    estimate = seen @ np.linalg.lstsq(seen, TARGET)[0]
    return ((estimate - TARGET) ** 2).sum() / (TARGET**2).sum()


def test_eq_heads():
    r"""$$ \mathbf{Q}_h = \left[\mathbf{Q}\mathbf{W}^{(q)}\right]_h, \qquad
    \mathbf{K}_h = \left[\mathbf{K}\mathbf{W}^{(k)}\right]_h, \qquad
    \mathbf{V}_h = \left[\mathbf{V}\mathbf{W}^{(v)}\right]_h . $$
    """
    for x, W in ((X, W_Q), (CONTEXT, W_K), (CONTEXT, W_V)):
        own = [x @ columns(W, h) for h in range(3)]  # a matrix for each head
        assert np.allclose(split_heads(x @ W, 3), own)


def test_eq_multi_head():
    r"""$$ \begin{aligned}
    \mathbf{H}_h &= \operatorname{softmax}\left(\frac{\mathbf{Q}_h \mathbf{K}_h^\top}{\sqrt{d_h}}\right) \mathbf{V}_h \in \mathbb{R}^{n_q \times d_h}, \\
    \mathbf{Y} &= \left[\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}\right] \mathbf{W}^{(o)} \in \mathbb{R}^{n_q \times d}.
    \end{aligned} $$
    """
    heads = []
    for h in range(3):
        scores = X @ columns(W_Q, h) @ (CONTEXT @ columns(W_K, h)).T / np.sqrt(4)
        weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        heads.append(weights @ CONTEXT @ columns(W_V, h))
    assert np.allclose(LAYER(X, CONTEXT, CONTEXT), np.hstack(heads) @ W_O)


def test_both_frameworks_give_the_same_layer():
    own = torch.nn.MultiheadAttention(
        12, 3, bias=False, batch_first=True, dtype=torch.float64
    )
    projections = torch.tensor(np.hstack([W_Q, W_K, W_V]).T)
    own.load_state_dict(
        {"in_proj_weight": projections, "out_proj.weight": torch.tensor(W_O.T)}
    )
    expected = LAYER(X, CONTEXT, CONTEXT)
    y, _ = own(*map(torch.tensor, (X, CONTEXT, CONTEXT)))
    assert np.allclose(y.detach(), expected)
    pairs = ((X, W_Q), (CONTEXT, W_K), (CONTEXT, W_V))
    heads = jax.nn.dot_product_attention(*((x @ W).reshape(7, 3, 4) for x, W in pairs))
    assert np.allclose(heads.reshape(7, 12) @ W_O, expected, atol=1e-5)


def test_both_frameworks_group_neighboring_heads():
    rng = np.random.default_rng(0)
    q, (k, v) = rng.normal(size=(8, 6, 4)), rng.normal(size=(2, 2, 6, 4))
    expected = scaled_dot_product_attention(q, k, v)
    by_torch = torch.nn.functional.scaled_dot_product_attention(
        *(torch.tensor(x)[None] for x in (q, k, v)), enable_gqa=True
    )
    assert np.allclose(by_torch[0], expected)
    by_jax = jax.nn.dot_product_attention(*(x.swapaxes(0, 1) for x in (q, k, v)))
    assert np.allclose(by_jax.swapaxes(0, 1), expected, atol=1e-5)


@pytest.mark.parametrize("angle", [0, 0.5, np.pi / 4, 2])
def test_one_head_loses_half(angle):
    assert np.isclose(lost(np.cos(angle) * V_0 + np.sin(angle) * V_1), 1 / 2)


def test_two_different_heads_lose_nothing():
    first, second = 0.9 * V_0 + 0.1 * V_1, 0.1 * V_0 + 0.9 * V_1
    assert lost(first, second) < 1e-20
    assert np.isclose(lost(first, 2 * first), 1 / 2)
    assert lost(first, V_1) < 1e-20  # which a residual connection brings


def test_narrow_heads_have_scores_of_low_rank():
    q, k = split_heads(X @ W_Q, 12), split_heads(X @ W_K, 12)
    order = np.argsort(q @ k.mT * np.sign(q), axis=-1)
    assert (order == order[:, :1]).all()  # all queries rank the keys alike
    q, k = split_heads(X @ W_Q, 3), split_heads(X @ W_K, 3)
    assert np.linalg.matrix_rank(q @ k.mT).tolist() == [4, 4, 4]


def test_the_noun_before_and_the_noun_after(page):
    first, second, single = page.torch.panels[:, 2]
    assert np.allclose([first[1], second[4]], 1, atol=0.001)
    assert np.allclose(single[[1, 4]], 0.5, atol=0.001)
    assert np.allclose(page.torch.panels[0, 0, [1, 4]], 0.5, atol=0.001)  # finds no noun


def test_a_dictionary_aligns_two_sentences(page):
    den, mann, beisst, der, hund = page.torch.alignment
    assert min(mann[4], beisst[2], hund[1]) > 0.95
    assert np.allclose([den[[0, 3]], der[[0, 3]]], 0.5, atol=0.02)


def test_by_hand(page):
    asks_before, asks_after = np.array([2, 1]), np.array([1, 2])  # points of dog and man
    assert (asks_before + asks_after).tolist() == [3, 3]
    layers = (MultiHeadAttention.init(np.random.default_rng(0), 8, H) for H in (1, 8))
    for layer in layers:
        sizes = [x.size for x in vars(layer).values() if hasattr(x, "size")]
        assert sum(sizes) == page.glued["parameters"] == 4 * 8 * 8
