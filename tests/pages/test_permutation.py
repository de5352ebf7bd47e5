"""Self-attention does not see order, and what makes it see one."""

from itertools import permutations

import numpy as np
import torch

from posattn import reference
from posattn.reference import causal_mask, length_mask, window_mask
from posattn.reference import scaled_dot_product_attention as attend
from posattn.torch import PositionalEncoding

ORDERS = [list(order) for order in permutations(range(5))]
SWAP = [0, 4, 2, 3, 1]
TOKENS, W_Q, W_K, W_V = np.random.default_rng(1).normal(size=(4, 5, 5))
SCORES = (TOKENS @ W_Q) @ (TOKENS @ W_K).T / np.sqrt(5)


def f(X, **mask):
    """Self-attention as the library has it."""
    return attend(X @ W_Q, X @ W_K, X @ W_V, **mask)


def softmax(S):
    """The softmax of each row."""
    return np.exp(S) / np.exp(S).sum(1, keepdims=True)


def matrix(order):
    """The permutation matrix, whose row i has its 1 in column order[i]."""
    return np.eye(5)[order]


def keeping(mask):
    """The permutations that leave a mask as it is."""
    return [order for order in ORDERS if np.array_equal(mask[order][:, order], mask)]


def test_eq_self_attention_map():
    r"""$$ f(\mathbf{X}) = \operatorname{softmax}\left(\mathbf{S}(\mathbf{X})\right)\,\mathbf{X}\mathbf{W}^{(v)}, \qquad \mathbf{S}(\mathbf{X}) = \frac{\mathbf{X}\mathbf{W}^{(q)}\,\big(\mathbf{X}\mathbf{W}^{(k)}\big)^\top}{\sqrt{d_h}}, $$"""
    assert np.allclose(f(TOKENS), softmax(SCORES) @ TOKENS @ W_V)


def test_eq_equivariance():
    r"""$$ f(\boldsymbol{\Pi}\mathbf{X}) = \boldsymbol{\Pi} f(\mathbf{X}). $$"""
    y = f(TOKENS)
    for order in ORDERS[1:]:
        Pi = matrix(order)
        assert np.allclose(f(Pi @ TOKENS), Pi @ y)
        assert not np.allclose(f(Pi @ TOKENS), y, atol=0.01)


def test_eq_softmax_permutes():
    r"""$$ \frac{\exp s_{\pi(i)\pi(j)}}{\sum_{l=0}^{n-1} \exp s_{\pi(i)\pi(l)}}
    = \frac{\exp s_{\pi(i)\pi(j)}}{\sum_{l=0}^{n-1} \exp s_{\pi(i)l}}, $$
    """
    order = [2, 0, 4, 1, 3]
    x = TOKENS[order]
    weights = reference.attention_weights(x @ W_Q, x @ W_K)
    for i in range(5):
        for j in range(5):
            above = np.exp(SCORES[order[i], order[j]])
            assert np.isclose(weights[i, j], above / np.exp(SCORES[order[i]]).sum())


def test_eq_mask_symmetry():
    r"""$$ \boldsymbol{\Pi}\mathbf{M}\boldsymbol{\Pi}^\top = \mathbf{M}. $$"""
    for mask in (causal_mask(5), window_mask(5, 5, 2), np.tile(np.arange(5) < 3, (5, 1))):
        y = f(TOKENS, mask=mask)
        for order in ORDERS:
            Pi = matrix(order)
            equivariant = np.allclose(f(Pi @ TOKENS, mask=mask), Pi @ y)
            assert equivariant == np.array_equal(Pi @ mask @ Pi.T, mask)


def test_symmetries_of_masks_are_counted():
    length = length_mask(np.full((1, 5), 3), 5)[0]
    assert len(ORDERS) == 120
    assert len(keeping(length)) == 12
    assert keeping(causal_mask(5)) == [[0, 1, 2, 3, 4]]
    assert window_mask(5, 5, 2).sum(1).tolist() == [2, 3, 3, 3, 2]
    assert keeping(window_mask(5, 5, 2)) == [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]


def test_several_heads_are_equivariant_until_positions_are_added():
    rng = np.random.default_rng(0)
    layer, x = reference.MultiHeadAttention.init(rng, 8, 2), rng.normal(size=(5, 8))
    assert np.allclose(layer(*[x[SWAP]] * 3), layer(*[x] * 3)[SWAP])
    encoded = reference.PositionalEncoding(8)
    here, there = (layer(*[encoded(y)] * 3) for y in (x, x[SWAP]))
    assert not np.allclose(there, here[SWAP], atol=0.01)
    assert not np.allclose(there.mean(0), here.mean(0), atol=0.001)


def test_only_positions_tell_who_bites(page):
    words, positions = page.torch.learned.values()
    assert np.allclose(words, np.log(2), atol=0.003)
    assert positions[-1] < 0.1
    answers = dict(zip(page.torch.pairs, page.torch.answers.tolist(), strict=True))
    assert all(answers[a, b] != answers[b, a] for a, b in answers)


def test_a_causal_mask_tells_positions_from_a_marked_token():
    zeros, marked = np.zeros((6, 1)), np.eye(6)[:, :1]
    outputs = attend(zeros, zeros, marked, causal=True)[:, 0]
    assert np.allclose(outputs, 1 / np.arange(1, 7))
    assert np.allclose(attend(zeros, zeros, zeros + 3, causal=True), 3)


def test_the_last_output_sees_a_shuffle_after_two_causal_layers():
    x, y = TOKENS, TOKENS[[2, 0, 3, 1, 4]]
    changes = []
    for _ in range(2):
        x, y = attend(x, x, x, causal=True), attend(y, y, y, causal=True)
        changes.append(abs(x - y)[-1].max())
    assert changes[0] < 1e-12
    assert changes[1] > 0.01


def test_a_transformer_of_pytorch_has_no_positions():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model(x[:, SWAP]), model(x)[:, SWAP], atol=1e-4)
    encoded = torch.nn.Sequential(PositionalEncoding(8), model)
    assert not torch.allclose(encoded(x[:, SWAP]), encoded(x)[:, SWAP], atol=0.01)


def test_neighbors_far_out_share_a_float16():
    outputs = (1 / np.arange(1, 4097)).astype(np.float16)
    assert 2**10.5 < np.flatnonzero(np.diff(outputs) == 0)[0] + 1 < 1500


def test_by_hand(page):
    numbers = np.array([[2.0], [1.0], [0.0]])  # dog, bites, man
    assert np.exp(numbers[1] @ numbers.T).round(2).tolist() == [7.39, 2.72, 1]
    for order in ([0, 1, 2], [2, 1, 0]):
        x = numbers[order]
        y = attend(x, x, x)[np.argsort(order), 0]
        assert y.round(2).tolist() == [1.85, 1.58, 1.00]
    assert len(page.torch.answers) == 6 * 5 == 30
    assert page.torch.answers.mean() == 1 / 2
    X = page.torch.X
    mask = np.arange(5) < 3
    assert X.shape == (5, 8)
    here, there = (attend(x, x, x, mask=mask[None]) for x in (X, X[SWAP]))
    assert abs(there - here[SWAP]).max().round(2) == 1.86
    assert 1 / 1000 - 1 / 1001 < 1e-6
