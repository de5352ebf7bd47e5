"""Relative position: what a shift does to the sinusoid, and what leaks."""

import numpy as np

from posattn import reference
from posattn.reference import attention_weights, frequencies, shift_matrix
from posattn.reference import sinusoidal_encoding as sinusoid

OMEGA = frequencies(32)
P = sinusoid(60, 32)


def rotation(offset):
    """The rotation of the rotary page, of which the library's matrix is the transpose."""
    rotated = reference.rotate(np.eye(32)[:, None], np.array([offset]))[:, 0].T
    assert np.allclose(rotated, shift_matrix(offset, 32).T)
    return rotated


def softmax(scores):
    """The softmax of each row."""
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True)


def test_eq_shift_all():
    r"""$$ \mathbf{p}_{i+\delta} = \mathbf{R}_\delta^\top\,\mathbf{p}_i \qquad \text{for every } i \in \mathbb{R}. $$"""
    for delta in (7, -3, 0.5):
        for i in (0, 3, 41.5):
            here, there = sinusoid(np.array([i, i + delta]), 32)
            assert np.allclose(there, rotation(delta).T @ here)


def test_eq_shift():
    r"""$$ \begin{aligned} &\begin{bmatrix} \cos(\delta\omega_c) & \sin(\delta\omega_c) \\ -\sin(\delta\omega_c) & \cos(\delta\omega_c) \end{bmatrix} \begin{bmatrix} p_{i,2c} \\ p_{i,2c+1} \end{bmatrix} \\
    &= \begin{bmatrix} \cos(\delta\omega_c)\sin(i\omega_c) + \sin(\delta\omega_c)\cos(i\omega_c) \\ -\sin(\delta\omega_c)\sin(i\omega_c) + \cos(\delta\omega_c)\cos(i\omega_c) \end{bmatrix} \\
    &= \begin{bmatrix} \sin\left((i+\delta)\,\omega_c\right) \\ \cos\left((i+\delta)\,\omega_c\right) \end{bmatrix} = \begin{bmatrix} p_{i+\delta,2c} \\ p_{i+\delta,2c+1} \end{bmatrix}. \end{aligned} $$
    """
    i, delta = 5, 7
    for c, omega in enumerate(OMEGA):
        pair = slice(2 * c, 2 * c + 2)
        block = rotation(delta)[pair, pair].T
        cos, sin = np.cos(delta * omega), np.sin(delta * omega)
        added = [
            cos * np.sin(i * omega) + sin * np.cos(i * omega),
            -sin * np.sin(i * omega) + cos * np.cos(i * omega),
        ]
        moved = [np.sin((i + delta) * omega), np.cos((i + delta) * omega)]
        assert np.allclose(block, [[cos, sin], [-sin, cos]])
        assert np.allclose(block @ P[i, pair], added)
        assert np.allclose(added, moved)
        assert np.allclose(moved, P[i + delta, pair])


def test_eq_gram():
    r"""$$ \begin{aligned} \mathbf{p}_i^\top \mathbf{p}_j &= \mathbf{p}_0^\top \mathbf{R}_{i-j}\,\mathbf{p}_0 \\ &= \sum_{c=0}^{d/2-1} \cos\left((i - j)\,\omega_c\right) =: g(i - j) . \end{aligned} $$"""
    for i, j in ((0, 5), (7, 2), (40, 40)):
        assert np.isclose(P[i] @ P[j], P[0] @ rotation(i - j) @ P[0])
        assert np.isclose(P[i] @ P[j], np.cos((i - j) * OMEGA).sum())


def test_eq_four_terms():
    r"""$$ \begin{aligned} &(\mathbf{x}_i + \mathbf{p}_i)^\top \mathbf{C}\,(\mathbf{x}_j + \mathbf{p}_j) \\ &\quad = \underbrace{\mathbf{x}_i^\top \mathbf{C}\,\mathbf{x}_j}_{\text{content}}
    + \underbrace{\mathbf{x}_i^\top \mathbf{C}\,\mathbf{p}_j + \mathbf{p}_i^\top \mathbf{C}\,\mathbf{x}_j}_{\text{content and absolute position}} \\ &\qquad + \underbrace{\mathbf{p}_i^\top \mathbf{C}\,\mathbf{p}_j}_{\text{position}} . \end{aligned} $$
    """
    x, p = np.random.default_rng(0).normal(size=(6, 32)), P[:6]
    W_q, W_k = np.random.default_rng(2).normal(size=(2, 32, 4)) / 4
    tokens = reference.PositionalEncoding(32)(x)
    weights = attention_weights(tokens @ W_q, tokens @ W_k)
    C = W_q @ W_k.T
    terms = x @ C @ x.T + x @ C @ p.T + p @ C @ x.T + p @ C @ p.T
    assert np.allclose(weights, softmax(terms / np.sqrt(4)))


def test_a_rotated_query_looks_two_places_back():
    rows = P[:12]
    for scale in (None, 4.0):
        weights = attention_weights(rows @ shift_matrix(-2, 32).T, rows, scale=scale)
        assert weights[2:].argmax(1).tolist() == [*range(10)]
        assert weights[0].argmax() == 0


def test_middle_terms_change_when_the_text_moves():
    x = np.random.default_rng(0).normal(size=(12, 32))
    here, there = P[:12], sinusoid(100 + np.arange(12), 32)
    shift = shift_matrix(-2, 32).T
    random = np.random.default_rng(0).normal(size=(32, 32))
    for C, same in ((shift, True), (random, False)):
        assert np.allclose(there @ C @ there.T, here @ C @ here.T) == same
        assert abs(x @ C @ (there - here).T).max() > 1
        assert abs((there - here) @ C @ x.T).max() > 1


def test_by_hand(page):
    points = sinusoid(103, 2)[:, ::-1]  # cosine first
    two_ahead = page.torch.rotation
    assert points[[1, 3]].round(2).tolist() == [[0.54, 0.84], [-0.99, 0.14]]
    assert np.allclose(points[[1, 100]] @ two_ahead.T, points[[3, 102]])
    angles = OMEGA[3] * np.array([0, 9, 18])
    marks = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert np.allclose(page.torch.before, marks, atol=1e-3)
    products = P @ P[0]
    assert products[:2].round(2).tolist() == [16, 15.31]
    for scale, weight in ((None, 0.13), (4.0, 0.89)):
        weights = attention_weights(P[:12] @ shift_matrix(-2, 32).T, P[:12], scale=scale)
        assert weights[6, 4].round(2) == weight
    starts = np.array([page.torch.two_back(start) for start in range(173)])
    assert starts[0].min() > 0.5  # every query looks two places back
    assert starts[172, 5] == starts[:, 5].min() < 0.1
