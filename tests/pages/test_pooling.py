"""Attention pooling."""

import numpy as np
import pytest

from posattn.reference import (
    attention_weights,
    masked_softmax,
    scaled_dot_product_attention,
)

HOURS, DEGREES = np.array([[6, 9, 12], [10, 16, 19.0]])
SIGMA = 0.7
RNG = np.random.default_rng(3)
Q, KEYS, VALUES = RNG.normal(size=3), RNG.normal(size=(5, 3)), RNG.normal(size=(5, 2))
KERNEL = np.array([np.exp(-sum((Q - key) ** 2) / (2 * SIGMA**2)) for key in KEYS])


def mean_of_all(asked, hours=HOURS, degrees=DEGREES):
    """What the soft look-up answers at some hours."""
    scores = -np.log(2) * abs(np.asarray(asked)[:, None] - hours)
    return masked_softmax(scores) @ degrees


def test_eq_pooling_by_hand():
    r"""$$ \tfrac{4}{13} \cdot 10 + \tfrac{8}{13} \cdot 16 + \tfrac{1}{13} \cdot 19 = \tfrac{187}{13} = 14.38 . $$"""
    by_hand = 4 / 13 * 10 + 8 / 13 * 16 + 1 / 13 * 19
    assert np.allclose([by_hand, 187 / 13], mean_of_all([8]))
    assert round(by_hand, 2) == 14.38


def test_eq_attention_pooling():
    r"""$$ \operatorname{Attention}(\mathbf{q}, \mathcal{D}) = \sum_{j=0}^{n-1} \alpha(\mathbf{q}, \mathbf{k}_j)\, \mathbf{v}_j,
    \qquad \alpha(\mathbf{q}, \mathbf{k}_j) \ge 0, \qquad \sum_{j=0}^{n-1} \alpha(\mathbf{q}, \mathbf{k}_j) = 1. $$
    """
    alpha = attention_weights(Q[None], KEYS)[0]
    pooled = scaled_dot_product_attention(Q[None], KEYS, VALUES)[0]
    assert np.allclose(pooled, sum(a * v for a, v in zip(alpha, VALUES, strict=True)))
    assert alpha.min() >= 0
    assert np.isclose(alpha.sum(), 1)


def test_eq_nadaraya_watson():
    r"""$$ \alpha(\mathbf{q}, \mathbf{k}_j) = \frac{K(\mathbf{q}, \mathbf{k}_j)}{\sum_{l=0}^{n-1} K(\mathbf{q}, \mathbf{k}_l)},
    \qquad K(\mathbf{q}, \mathbf{k}) = \exp\left(-\frac{\lVert \mathbf{q} - \mathbf{k} \rVert^2}{2 \sigma^2}\right). $$
    """
    squares = ((Q - KEYS) ** 2).sum(-1)
    alpha = masked_softmax(-squares[None] / (2 * SIGMA**2))[0]
    assert np.allclose(alpha, [K / sum(KERNEL) for K in KERNEL])


def test_eq_softmax_pooling():
    r"""$$ \alpha(\mathbf{q}, \mathbf{k}_j) = \frac{\exp(s_j)}{\sum_{l=0}^{n-1} \exp(s_l)} . $$"""
    s = np.array([[2.0, -1.0, 0.5, -np.inf]])
    assert np.allclose(masked_softmax(s)[0], np.exp(s[0]) / sum(np.exp(s[0])))


def test_eq_products_of_hours():
    r"""$$ 2 \cdot 8 \cdot 6 - 6^2 = 60, \qquad 2 \cdot 8 \cdot 9 - 9^2 = 63, \qquad 2 \cdot 8 \cdot 12 - 12^2 = 48 . $$"""
    scores = -((8 - HOURS) ** 2)
    assert scores.tolist() == [-4, -1, -16]
    products = [2 * 8 * 6 - 6**2, 2 * 8 * 9 - 9**2, 2 * 8 * 12 - 12**2]
    assert products == [60, 63, 48] == (scores + 64).tolist()
    weights = masked_softmax(np.array([products]) + 0.0)
    assert np.allclose(weights, masked_softmax(scores[None]))


def test_eq_square_of_a_difference():
    r"""$$ -\lVert \mathbf{q} - \mathbf{k}_j \rVert^2 = -\lVert \mathbf{q} \rVert^2 + 2\,\mathbf{q}^\top \mathbf{k}_j - \lVert \mathbf{k}_j \rVert^2 . $$"""
    for key in KEYS:
        left = -(np.linalg.norm(Q - key) ** 2)
        assert np.isclose(left, -(Q @ Q) + 2 * Q @ key - key @ key)


def test_eq_gaussian_score():
    r"""$$ s_j = \frac{1}{\sigma^2}\,\mathbf{q}^\top \mathbf{k}_j - \frac{\lVert \mathbf{k}_j \rVert^2}{2 \sigma^2}. $$"""
    bias = -(KEYS**2).sum(-1)[None] / (2 * SIGMA**2)
    alpha = attention_weights(Q[None], KEYS, scale=1 / SIGMA**2, bias=bias)[0]
    assert np.allclose(alpha, KERNEL / KERNEL.sum())
    s = [Q @ key / SIGMA**2 - sum(key**2) / (2 * SIGMA**2) for key in KEYS]
    assert np.allclose(alpha, np.exp(s) / sum(np.exp(s)))


def test_keys_of_one_length_need_no_bias():
    unit = KEYS / np.linalg.norm(KEYS, axis=1, keepdims=True)
    for keys, alike in ((unit, True), (KEYS, False)):
        distances = ((Q - keys) ** 2).sum(-1)[None]
        products = attention_weights(Q[None], keys, scale=1.0)
        assert np.allclose(masked_softmax(-distances / 2), products) == alike


def test_the_answer_never_leaves_the_values():
    answers = mean_of_all(np.linspace(0, 24, 97))
    assert 10 < answers.min() < answers.max() < 19


def test_proportions_count_and_not_multiplicities():
    once, twice, nine_twice = (
        mean_of_all([8], np.repeat(HOURS, times), np.repeat(DEGREES, times))[0]
        for times in (1, 2, [1, 2, 1])
    )
    assert np.isclose(once, twice)
    assert once + 0.5 < nine_twice < 16


@pytest.mark.parametrize(("n", "ones"), [(5, 1), (12, 2)])
def test_equal_keys_give_the_share(n, ones):
    values = (np.arange(n) < ones)[:, None] + 0.0
    output = scaled_dot_product_attention(np.ones((1, 2)), np.ones((n, 2)), values)
    assert np.isclose(output, ones / n)


def test_scale_leads_from_mean_to_look_up():
    squares = (np.array([[0.2], [2.4], [4.9]]) - np.arange(7)) ** 2 / 2
    flat, soft, sharp = (masked_softmax(-scale * squares) for scale in (0, 1, 1000))
    assert np.allclose(flat, 1 / 7)
    assert soft.max() < 0.7
    assert np.allclose(sharp, np.eye(7)[[0, 2, 5]])


def test_a_small_bandwidth_chases_the_noise(page):
    """And a large one flattens the curve; none follows the sine beyond the samples."""
    pooled, wide = page.torch.pooled, page.torch.wide
    inside, beyond = (wide > 0.3) & (wide < 5.7), (wide < -0.5) | (wide > 6.5)
    slopes = {s: np.sign(np.diff(curve[inside])) for s, curve in pooled.items()}
    assert (np.diff(slopes[0.05]) != 0).sum() > 10 > 4 > (np.diff(slopes[0.4]) != 0).sum()
    assert abs(pooled[0.4] - np.sin(wide))[inside].max() < 0.15
    assert np.ptp(pooled[3]) < 1
    for curve in pooled.values():
        assert abs(curve - np.sin(wide))[beyond].mean() > 0.4


def test_leaving_each_sample_out_finds_a_bandwidth(page):
    keys, values, tried = page.torch.keys, page.torch.values, page.torch.tried
    scores = -((keys[:, None] - keys) ** 2) / (2 * tried[:, None, None] ** 2)
    for mask, best in ((~np.eye(60, dtype=bool), 0.2), (None, tried.min())):
        errors = ((masked_softmax(scores, mask) @ values - values) ** 2).mean(-1)
        assert tried[errors.argmin()] == best
        assert mask is None or 0.3**2 < errors.min() < errors[5] < 1.1 * errors.min()


def test_by_hand():
    counts = 0.5 ** abs(8 - HOURS)
    assert counts.tolist() == [1 / 4, 1 / 2, 1 / 16]
    assert (counts / counts.sum()).round(3).tolist() == [0.308, 0.615, 0.077]
    assert np.log(counts).round(2).tolist() == [-1.39, -0.69, -2.77]
    assert (16 * counts).tolist() == [4, 8, 1]
    assert counts.sum() == 13 / 16
    assert mean_of_all([8]).round(1) == 14.4
    bites = 0.5 ** abs(10 - np.array([0, 9, 0, 0, 6]))
    assert bites.tolist() == [1 / 1024, 1 / 2, 1 / 1024, 1 / 1024, 1 / 16]
    assert (bites / bites.sum()).round(2).tolist() == [0.00, 0.88, 0.00, 0.00, 0.11]
    asked, hours = np.array([[8], [9], [20.0]]), HOURS[:, None]
    bias = -(hours.T**2) / 8
    pooled = scaled_dot_product_attention(
        asked, hours, DEGREES[:, None], scale=1 / 4, bias=bias
    )
    assert pooled[:, 0].round(2).tolist() == [14.01, 15.41, 19]
    fourth = mean_of_all([8], [3, 6, 9, 12], [7, 10, 16, 19])[0]
    assert np.isclose(fourth, 381 / 27)
