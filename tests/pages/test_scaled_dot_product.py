"""Scaled dot-product attention."""

import numpy as np
import torch

import posattn.torch
from posattn.reference import (
    attention_weights,
    masked_softmax,
    scaled_dot_product_attention,
)

# dog, bites, man
Q = np.array([[0, 1, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1.0]])
K = np.array([[2, 0, 1, 0], [0, 2, 0, 0], [2, 0, 0, 1.0]])
V = np.array([[1, 0, 2, 0], [0, 1, 0, 0], [1, 0, 0, 2.0]])
SCORES = Q @ K.T / 2
WEIGHTS = np.exp(SCORES) / np.exp(SCORES).sum(1, keepdims=True)
STEP = 1e-30  # of complex differentiation, which is exact


def test_eq_softmax_QK_V():
    r"""$$ \operatorname{softmax}\left(\frac{\mathbf{Q}\mathbf{K}^\top}{\sqrt{d}}\right)\mathbf{V} \in \mathbb{R}^{n_q \times d_v} . $$"""
    scores = [[sum(q * k) / 4**0.5 for k in K] for q in Q[:2]]
    alpha = [[np.exp(s) / sum(np.exp(row)) for s in row] for row in scores]
    rows = [sum(alpha[i][j] * V[j, :3] for j in range(3)) for i in range(2)]
    assert np.allclose(scaled_dot_product_attention(Q[:2], K, V[:, :3]), rows)


def test_eq_softmax_jacobian():
    r"""$$ \frac{\partial \alpha_{ij}}{\partial s_{il}} = \alpha_{ij}\,\big([j = l] - \alpha_{il}\big), $$"""
    alpha = WEIGHTS[1]
    formula = [[alpha[j] * ((j == r) - alpha[r]) for j in range(3)] for r in range(3)]
    raised = SCORES[1] + 1j * STEP * np.eye(3)  # row l raises the score of key l
    assert np.allclose(masked_softmax(raised).imag / STEP, formula)


def test_eq_output_by_score():
    r"""$$ \begin{aligned}
    \frac{\partial \mathbf{y}_i}{\partial s_{il}}
    &= \sum_j \alpha_{ij}\,\big([j = l] - \alpha_{il}\big)\,\mathbf{v}_j \\
    &= \alpha_{il}\,\mathbf{v}_l - \alpha_{il}\,\mathbf{y}_i = \alpha_{il}\,(\mathbf{v}_l - \mathbf{y}_i) .
    \end{aligned} $$
    """
    alpha = WEIGHTS[1]
    raised = SCORES[1] + 1j * STEP * np.eye(3)
    slopes = (masked_softmax(raised) @ V).imag / STEP
    sums = [
        sum(alpha[j] * ((j == r) - alpha[r]) * V[j] for j in range(3)) for r in range(3)
    ]
    assert np.allclose(slopes, sums)
    assert np.allclose(slopes, alpha[:, None] * (V - alpha @ V))


def test_eq_attention_gradient():
    r"""$$ \frac{\partial y_i}{\partial \mathbf{q}_i} = \frac{1}{\sqrt{d}} \sum_{l} \alpha_{il}\,(v_l - y_i)\,\mathbf{k}_l . $$"""
    v, alpha = V[:, 2], WEIGHTS[1]
    y = alpha @ v
    formula = sum(alpha[r] * (v[r] - y) * K[r] for r in range(3)) / np.sqrt(4)
    nudged = Q[1] + 1j * STEP * np.eye(4)  # row c nudges entry c
    outputs = scaled_dot_product_attention(nudged, K + 0j, v[:, None] + 0j)
    assert np.allclose(outputs.imag[:, 0] / STEP, formula)


def test_the_division_keeps_the_variance_at_1(page):
    assert np.allclose(page.torch.variances["not divided"], page.torch.widths, rtol=0.1)
    assert np.allclose(page.torch.variances["divided"], 1, rtol=0.1)


def test_typical_gradients_vanish_and_a_few_are_steep(page):
    lengths = page.torch.lengths["not divided"][-1]
    divided = np.array(page.torch.lengths["divided"])
    assert abs(np.median(divided, axis=(1, 2)) - 0.17).max() < 0.06
    assert abs(divided.mean((1, 2)) - 0.17).max() < 0.06
    assert np.median(lengths) < np.median(divided[-1]) / 10
    at_64 = page.torch.lengths["not divided"][2]
    assert np.median(at_64) > 3 * np.median(divided[2])
    assert lengths.mean() > 5 * divided[-1].mean()
    steep = lengths.ravel().argsort()[-100:]
    two = np.sort(page.torch.A.reshape(1024, 64)[steep])[:, -2:]  # they hesitate
    assert (two.mean(0) > 0.2).all()
    assert two.sum(1).mean() > 0.95


def test_temperature_changes_the_contrast_only():
    temperatures = np.geomspace(0.1, 100, 9)
    rows = [attention_weights(Q[1:2], K, scale=1 / t)[0] for t in temperatures]
    dog, bites, man = np.transpose(rows)
    assert (dog > man).all()
    assert (man > bites).all()
    assert (np.diff(dog) < 0).all()
    assert np.allclose(rows[-1], 1 / 3, atol=0.01)


def test_scores_of_half_precision_are_float32():
    q, k = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 64, 64))).bfloat16()
    exact = attention_weights(q.double().numpy(), k.double().numpy())
    once = posattn.torch.attention_weights(q, k).double().numpy()
    often = torch.softmax(q @ k.mT / 8, -1).double().numpy()
    error_once, error_often = abs(np.stack([once, often]) / exact - 1).max((1, 2))
    assert error_once <= 1.001 * 2**-8
    assert error_often > 2 * error_once


def test_the_wrong_axis_mixes_queries():
    wrong = torch.softmax(torch.tensor(SCORES), dim=-2)
    fewer = torch.softmax(torch.tensor(SCORES[:2]), dim=-2)
    assert not np.allclose(wrong[:2], fewer)


def test_by_hand():
    assert (Q[1] @ K.T).tolist() == [3, 0, 2]
    exponentials = np.exp([1.5, 0.0, 1.0])
    assert exponentials.round(3).tolist() == [4.482, 1.000, 2.718]
    assert round(exponentials.sum(), 3) == 8.200
    weights = attention_weights(Q, K)
    assert weights[1].round(3).tolist() == [0.547, 0.122, 0.331]
    assert (weights[1] @ V).round(2).tolist() == [0.88, 0.12, 1.09, 0.66]
    assert weights.round(2)[[0, 2], 1].tolist() == [0.51, 0.51]
    assert weights.round(2)[1].tolist() == [0.55, 0.12, 0.33]
    sure = np.array([0.998, 0.001, 0.001])
    assert abs(sure[:, None] * (np.eye(3) - sure)).max() < 0.002
    assert round(np.exp(32) / 1e12, -1) == 80
    assert 1024**0.5 == 32 == 16 * 4**0.5
    told = attention_weights(Q[1:2], K, bias=np.log([[1, 1, 2]]))
    assert round(told.max(), 3) == 0.498
