"""Masking."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn.reference import (
    causal_mask,
    masked_softmax,
    window_mask,
)
from posattn.torch import scaled_dot_product_attention as attend

SCORES = np.random.default_rng(2).normal(size=(5, 7))
MASK = np.random.default_rng(1).random((5, 7)) < 0.5
MASK[0] = False  # a row that sees nothing
Q, K, V = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 1, 5, 4)))


def test_eq_masked_softmax():
    r"""$$ \alpha_{ij} = \frac{m_{ij} \exp(s_{ij})}{\sum_l m_{il} \exp(s_{il})}, \qquad \text{where } 0/0 = 0. $$"""
    top = MASK * np.exp(SCORES)
    bottom = top.sum(1, keepdims=True)
    shares = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    assert np.allclose(masked_softmax(SCORES, MASK), shares)


def test_eq_masked_loss():
    r"""$$ L = \frac{\sum_i m_i\, \ell_i}{\sum_i m_i} . $$"""
    logits = torch.from_numpy(np.random.default_rng(5).normal(size=(6, 4)))
    targets = torch.tensor([1, -100, 3, 0, -100, 2])
    m = (targets != -100).numpy()
    log_p = torch.log_softmax(logits, -1).numpy()
    losses = -log_p[np.arange(6), np.where(m, targets, 0)]
    L = (m * losses).sum() / m.sum()
    assert np.isclose(torch.nn.functional.cross_entropy(logits, targets), L)
    nothing = torch.nn.functional.cross_entropy(logits, torch.full_like(targets, -100))
    assert nothing.isnan()


def test_a_stack_of_windows_sees_further():
    for w, layers in [(4, 3), (2, 5), (5, 2)]:
        layer = (causal_mask(16) & window_mask(16, 16, w)).astype(int)
        seen = np.flatnonzero(np.linalg.matrix_power(layer, layers)[-1])
        assert np.array_equal(seen, np.arange(15 - layers * (w - 1), 16))


def test_a_single_new_query_is_the_last():
    whole = attend(Q, K, V, causal=True)
    assert torch.allclose(attend(Q[:, 4:], K, V, causal=True), whole[:, 4:])
    first = torch.nn.functional.scaled_dot_product_attention(Q[:, 4:], K, V, is_causal=True)
    assert torch.allclose(first, V[:, :1])  # the framework takes it for the first


def test_a_large_negative_number_fails_in_empty_rows():
    right = masked_softmax(SCORES, MASK)
    replaced = masked_softmax(np.where(MASK, SCORES, -1e6))
    assert np.allclose(replaced[1:], right[1:])
    assert np.allclose(replaced[0], 1 / 7)
    added = masked_softmax(SCORES + np.where(MASK, 0, -1e6))
    assert np.allclose(added[0], masked_softmax(SCORES)[0])


def test_half_precision_has_no_such_number():
    assert jnp.isneginf(jnp.where(False, jnp.float16(0), -1e6))
    refusal = "^value cannot be converted to type c10::Half without overflow$"
    with pytest.raises(RuntimeError, match=refusal):
        torch.zeros(2, dtype=torch.float16).masked_fill(torch.tensor([True, False]), -1e6)


def test_true_hides_in_the_layer_of_torch():
    mask = torch.eye(5, dtype=torch.bool)
    layer = torch.nn.MultiheadAttention(4, 1, batch_first=True)
    _, weights = layer(Q.float(), K.float(), V.float(), attn_mask=mask)
    assert torch.equal(weights[0] == 0, mask)


def test_frameworks_disagree_about_empty_rows(page):
    answers = [page.glued[f"masked_row_{number}"] for number in range(5)]
    assert answers[1] != answers[2] == "NaN"
    assert answers[0] != answers[3]


def test_by_hand():
    scores = np.log([[1.0, 2.0, 5.0]])
    assert np.allclose(masked_softmax(scores), [[1 / 8, 2 / 8, 5 / 8]])
    hidden = masked_softmax(scores, np.array([[True, True, False]]))
    assert np.allclose(hidden, [[1 / 3, 2 / 3, 0]])
    losses = np.array([1, 1, 1, 0, 0, 3, 3, 3, 3, 3.0])  # 0 for padding
    assert losses.sum() / 8 == 2.25
    assert losses.mean() == 1.80
    assert np.mean([losses[:5].sum() / 3, losses[5:].mean()]) == 2.00
    assert np.spacing(np.float32(10**6)) == 1 / 16
    assert np.finfo(np.float16).max == 65504
