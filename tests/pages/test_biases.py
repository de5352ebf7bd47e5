"""Biases on the scores: each scheme by its formula, and what a bias can and cannot do."""

import warnings

import numpy as np
import torch
from torch.nn.attention.flex_attention import flex_attention

from posattn import reference
from posattn.reference import ALiBi, attention_weights, t5_bucket
from posattn.torch import T5Bias, scaled_dot_product_attention
from posattn.torch import t5_bucket as t5_bucket_torch

PLACES = np.arange(6)
DELTA = PLACES - PLACES[:, None]  # key minus query
LINE = (np.ones(1), np.zeros(1), np.ones((1, 1)), np.zeros(1))  # FIRE with f(x) = x


def softmax(scores):
    """The softmax of each row."""
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True)


def attend(bias, causal=False):
    """Attention of six tokens whose products are all equal."""
    return attention_weights(np.zeros((6, 1)), np.zeros((6, 1)), bias=bias, causal=causal)


def test_eq_score_bias():
    r"""$$ s_{ij} = \frac{\mathbf{q}_i^\top\mathbf{k}_j}{\sqrt{d_h}} + t(j - i) . $$"""
    q, k = np.random.default_rng(0).normal(size=(2, 6, 4))
    t5 = reference.T5Bias(np.random.default_rng(1).normal(size=(32, 1)))
    t = t5(np.array([0]), np.arange(-5, 6))[0, 0]  # at the offsets -5 to 5
    weights = attention_weights(q, k, bias=t5(PLACES, PLACES)[0])
    assert np.allclose(weights, softmax(q @ k.T / np.sqrt(4) + t[DELTA + 5]))


def test_eq_alibi():
    r"""$$ t_h(\delta) = -\lambda_h\,|\delta| . $$"""
    for bias, slope in zip(ALiBi(4)(PLACES, PLACES), (4, 16, 64, 256), strict=True):
        assert np.allclose(bias, -abs(DELTA) / slope)


def test_eq_alibi_slopes():
    r"""$$ \lambda_h = 2^{-8h/H}, \qquad h = 1, \ldots, H . $$"""
    for heads in (1, 8, 16):
        slopes = [2 ** (-8 * h / heads) for h in range(1, heads + 1)]
        assert np.allclose(reference.alibi_slopes(heads), slopes)


def test_eq_t5():
    r"""$$ t(\delta) = t_{\operatorname{bucket}(\delta)} . $$"""
    table = np.random.default_rng(0).normal(size=(32, 2))
    bias = reference.T5Bias(table)(PLACES, PLACES)
    for i in PLACES:
        for j in PLACES:
            bucket = i - j if j <= i else 16 + j - i
            assert np.allclose(bias[:, i, j], table[bucket])


def test_eq_t5_bucket():
    r"""$$ \operatorname{bucket} = \min\left(15,\; 8 + \left\lfloor 8\,\frac{\ln(a/8)}{\ln(128/8)} \right\rfloor\right) . $$"""
    a = np.setdiff1d(np.arange(8, 300), (16, 32, 64, 128))  # where rounding decides
    bucket = np.minimum(15, 8 + np.floor(8 * np.log(a / 8) / np.log(128 / 8)))
    assert np.array_equal(t5_bucket(-a), bucket)
    assert t5_bucket(-np.array([16, 32, 64, 128])).tolist() == [10, 12, 14, 15]


def test_eq_kerple():
    r"""$$ t(\delta) = -r_1 \ln(1 + r_2\,|\delta|) . $$"""
    bias = reference.KerpleLog(np.array([0.7]), np.array([1.9]))(PLACES, PLACES)[0]
    assert np.allclose(bias, -0.7 * np.log(1 + 1.9 * abs(DELTA)))


def test_eq_fire():
    r"""$$ t(i, j) = f\left(\frac{\psi(|j - i|)}{\psi(\max(L, i))}\right), \qquad \psi(x) = \ln(1 + c\,x) . $$"""
    fire = reference.FIRE(np.array(0.1), np.array(1.0), *LINE)  # L is 512
    for i in (60, 500, 1000, 10**6):
        far = np.array([1, 10, 50, i])
        ratio = np.log(1 + 0.1 * far) / np.log(1 + 0.1 * max(512, i))
        assert np.allclose(fire(np.array([i]), i - far)[0, 0], ratio, atol=1e-6)


def test_eq_sandwich():
    r"""$$ t_h(\delta) = \frac{H}{8h} \sum_{c=0}^{d/2-1} \cos(\delta\,\omega_c) . $$"""
    H, d = 4, 32
    omega = 10000.0 ** (-np.arange(0, d, 2) / d)
    bias = reference.sandwich_bias(H, dim=d)(PLACES, PLACES)
    for h in range(1, H + 1):
        t = H / (8 * h) * np.cos(DELTA[..., None] * omega).sum(-1)
        assert np.allclose(bias[h - 1], t)


def test_slopes_of_twelve_heads_follow_the_program():
    exponents = np.log2(reference.alibi_slopes(12))
    assert np.allclose(exponents, [*range(-1, -9, -1), -0.5, -1.5, -2.5, -3.5])
    assert not np.isclose(exponents, -8 * np.arange(1, 13) / 12).any()


def test_only_fire_sees_a_shift(page):
    for name, scheme in page.torch.schemes.items():
        near, far = (scheme(PLACES + start, PLACES + start) for start in (0, 1000))
        assert np.allclose(near, far) == (name != "FIRE")


def test_a_wrong_sign_favors_the_first_token():
    for wrong in (0.5 * abs(DELTA), -0.5 * DELTA):
        assert (attend(wrong, causal=True).argmax(1) == 0).all()
    bias = ALiBi(8)(PLACES, PLACES)
    assert bias.max() == 0
    for each in bias:
        assert (attend(each).argmax(1) == PLACES).all()


def test_only_t5_tells_before_from_after(page):
    for name, scheme in page.torch.schemes.items():
        before, _, after = scheme(PLACES[:3], PLACES[:3])[0, 1]
        assert name == "T5" or np.isclose(before, after)
    sides = reference.T5Bias(np.arange(32.0)[:, None])(PLACES[:3], PLACES[:3])[0, 1]
    assert sides.tolist() == [1, 0, 17]
    later = t5_bucket(np.arange(200), bidirectional=False)
    assert (later == 0).all()


def test_a_table_learns_a_spike_and_leaves_far_buckets_at_0(page):
    for learned in (page.torch.learned, page.jax.learned):
        others = np.delete(learned[:27], 3)
        assert learned.argmax() == 3
        assert learned[3] > 8
        assert others.max() < 0
        assert others.mean().round(1) == -0.3
        assert (learned[27:] == 0).all()
    assert t5_bucket(np.array([-66, -67]), bidirectional=False).tolist() == [26, 27]


def test_flex_attention_takes_the_score_mod(page):
    rng = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 32, 16, generator=rng)
    layer = T5Bias(4, rng=rng)
    buckets = t5_bucket_torch(torch.arange(-31, 32))
    score_mod = page.torch.t5_score_mod(layer.table.detach(), buckets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is slow without a compiler
        ours = flex_attention(q, k, v, score_mod=score_mod)
    expected = scaled_dot_product_attention(q, k, v, bias=layer)
    assert torch.allclose(ours, expected, atol=1e-5)


def test_by_hand():
    e = np.exp([-1, -0.5, 0])
    assert [*e.round(2), e.sum().round(2)] == [0.37, 0.61, 1, 1.97]
    bias = np.array([[-1, -0.5, 0]])
    weights = attention_weights(np.zeros((1, 1)), np.zeros((3, 1)), bias=bias)[0]
    assert weights.round(2).tolist() == [0.19, 0.31, 0.51]
    assert softmax(bias[0] + [2, 0, 0])[0].round(2) == 0.63
    logs = np.log(20 / 8), np.log(128 / 8)
    assert np.round(logs, 2).tolist() == [0.92, 2.77]
    assert round(8 * logs[0] / logs[1], 2) == 2.64
    assert t5_bucket(-np.array([90, 91, 9000])).tolist() == [14, 15, 15]
    assert f"{np.exp(-1000 / 16):.0e}" == "7e-28"
    fire = reference.FIRE(np.array(0.1), np.array(1.0), *LINE)
    ratios = fire(np.array([1000]), np.array([990, 900, 0]))[0, 0]
    assert ratios.round(2).tolist() == [0.15, 0.52, 1]
