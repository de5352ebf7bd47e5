"""Rotary position embedding: its equations, and what a rotation can and cannot do."""

import jax
import numpy as np
import pytest

from posattn import jax as column
from posattn import reference
from posattn.reference import frequencies, rotate

Q, K = np.random.default_rng(0).normal(size=(2, 64))


def at(x, position):
    """One vector, rotated to its position."""
    return rotate(x[None], np.array([position]))[0]


def matrix(position, d):
    """The matrix that rotates a vector of width d to its position."""
    return rotate(np.eye(d)[:, None], np.array([position]))[:, 0].T


def test_eq_rotary():
    r"""$$ \begin{bmatrix} x_{2c} \\ x_{2c+1} \end{bmatrix} \mapsto \begin{bmatrix} \cos(p\,\omega_c) & -\sin(p\,\omega_c) \\ \sin(p\,\omega_c) & \cos(p\,\omega_c) \end{bmatrix}
    \begin{bmatrix} x_{2c} \\ x_{2c+1} \end{bmatrix}, \qquad \omega_c = b^{-2c/d} . $$
    """
    p, d, b = 7, 64, 10000.0
    for c in range(d // 2):
        angle = p * b ** (-2 * c / d)
        rotation = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        pair = slice(2 * c, 2 * c + 2)
        assert np.allclose(at(Q, p)[pair], rotation @ Q[pair])


def test_eq_rotary_goal():
    r"""$$ \mathbf{R}_i^\top \mathbf{R}_j = \mathbf{R}_{j-i} . $$"""
    i, j = 7, 3
    assert np.allclose(matrix(i, 64).T @ matrix(j, 64), matrix(j - i, 64))
    assert not np.allclose(matrix(i, 64).T @ matrix(j, 64), matrix(i - j, 64))


def test_eq_rotary_wish():
    r"""$$ (\mathbf{R}_i\,\mathbf{q})^\top \mathbf{R}_j\,\mathbf{k} = \mathbf{q}^\top \mathbf{R}_{j-i}\,\mathbf{k} , $$"""
    i, j = 7, 3
    assert np.isclose(at(Q, i) @ at(K, j), Q @ at(K, j - i))
    assert not np.isclose(at(Q, i) @ at(K, j), Q @ at(K, i - j))


def test_eq_rotary_by_hand():
    r"""$$ \begin{aligned} (-0.42) \cdot 1 + 0.91 \cdot 0 &= -0.42, \\
    (-0.42) \cdot (-0.99) + 0.91 \cdot 0.14 &= 0.54. \end{aligned} $$
    """
    word = np.array([1.0, 0.0])
    bites, first, second = (at(word, position) for position in (2, 0, 3))
    assert bites.round(2).tolist() == [-0.42, 0.91]
    assert second.round(2).tolist() == [-0.99, 0.14]
    assert (bites @ first).round(2) == -0.42
    assert (bites @ second).round(2) == 0.54
    assert np.allclose([-0.42, 0.42 * 0.99 + 0.91 * 0.14], [-0.42, 0.54], atol=0.005)


def test_eq_rotary_score():
    r"""$$ (\mathbf{R}_i\,\mathbf{q})^\top \mathbf{R}_j\,\mathbf{k} = \sum_{c=0}^{d/2-1} |\mathbf{q}_c|\,|\mathbf{k}_c| \cos\left((i - j)\,\omega_c + \varphi_c\right) . $$"""
    i, j = 7, 3
    q, k = Q[::2] + 1j * Q[1::2], K[::2] + 1j * K[1::2]
    omega = 10000.0 ** (-np.arange(0, 64, 2) / 64)
    waves = abs(q) * abs(k) * np.cos((i - j) * omega + np.angle(q / k))
    assert np.isclose(at(Q, i) @ at(K, j), waves.sum())


def test_the_layer_sees_only_offsets():
    rng = np.random.default_rng(0)
    layer = reference.MultiHeadAttention.init(rng, 64, 4, rotate=rotate)
    x, far = rng.normal(size=(10, 64)), 1000 + np.arange(10)
    assert np.allclose(layer(x, x, x, key_positions=far), layer(x, x, x))
    apart = layer(x, x, x, query_positions=np.arange(10), key_positions=far)
    assert not np.allclose(apart, layer(x, x, x))
    alike = layer(*[np.ones((5, 64))] * 3)  # values carry no position
    assert np.allclose(alike, alike[0])


def test_a_sum_does_not_rotate():
    word = np.random.default_rng(0).normal(size=(5, 64))
    here, there = (
        word + reference.sinusoidal_encoding(np.arange(5) + start, 64)
        for start in (0, 1000)
    )
    lengths = np.linalg.norm(here, axis=1), np.linalg.norm(there, axis=1)
    assert not np.isclose(*lengths).any()
    assert abs(here @ here.T - there @ there.T).max() > 1
    rotated = np.linalg.norm(rotate(word, 1000 + np.arange(5)), axis=1)
    assert np.allclose(rotated, np.linalg.norm(word, axis=1))


def test_a_score_falls_on_average_and_rises_at_some_steps(page):
    one, back = np.ones((1, 128)), -np.arange(400)
    scores, slower = (
        rotate(one.repeat(400, 0), back, frequencies=frequencies(128, base=base)) @ one[0]
        for base in (1e4, 5e5)
    )
    assert (np.diff(scores) > 0).sum() == page.glued["rises"] > 0
    means = scores.reshape(4, 100).mean(1), slower.reshape(4, 100).mean(1)
    assert (np.diff(means) < 0).all()
    assert (means[0] < means[1]).all()


def test_a_key_can_be_aimed_at_any_distance():
    query, back = np.ones((1, 64)), -np.arange(400)
    for aim in (0, 150, 350):
        key = rotate(query, np.array([aim])).repeat(400, 0)
        assert (rotate(key, back) @ query[0]).argmax() == aim


def test_a_wrong_sign_sees_the_sum_of_positions():
    scores = [at(Q, -i) @ at(K, j) for i, j in ((7, 3), (8, 2), (107, 103))]
    assert np.isclose(scores[0], scores[1])
    assert not np.isclose(scores[0], scores[2])


def test_angles_far_out_need_more_than_float32(page):
    x, far = jax.numpy.linspace(-1, 1, 320).reshape(5, 64), np.arange(100000, 100005)
    exact = page.jax.rope_jax(x, far)
    assert abs(page.jax.rope_jax(x, jax.numpy.asarray(far)) - exact).max() > 1e-3
    assert abs(column.rotate(x, jax.numpy.asarray(far)) - exact).max() < 5e-7


def test_powers_of_an_orthogonal_matrix_see_only_offsets():
    step, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(8, 8)))
    power = np.linalg.matrix_power
    for factor, same in ((1, True), (1.1, False)):
        R = {p: power(factor * step, p) for p in (3, 7, 103, 107)}
        assert np.allclose(R[7].T @ R[3], R[107].T @ R[103]) == same
    assert np.allclose(matrix(7, 8), power(matrix(1, 8), 7))


def test_by_hand():
    assert np.degrees([1, 2]).round().tolist() == [57, 115]
    omega = frequencies(8)
    assert np.allclose(omega, [1, 0.1, 0.01, 0.001])
    periods = 2 * np.pi / omega
    assert periods[0].round(1) == 6.3
    assert periods[1:].round().tolist() == [63, 628, 6283]
    assert round(100 / periods[1], 1) == 1.6
    assert 15.9 < 100 / periods[0] < 16
    assert (360 * 100 / periods[2:]).round().tolist() == [57, 6]
    x = np.random.default_rng(0).normal(size=(50, 64)).astype(np.float32)
    places = np.arange(50)
    assert places[-1] == 49
    here, there = rotate(x, places), rotate(x, 1000 + places)
    assert abs(here @ here.T - there @ there.T).max() / 8 < 0.00001
    for i, j, factor in ((2, 0, 1.21), (7, 5, 3.14)):
        assert 1.1 ** (i + j) == pytest.approx(factor, abs=0.005)
