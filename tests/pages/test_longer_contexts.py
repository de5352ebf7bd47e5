"""Longer contexts than those of training: each repair by its formula, and what it does to a pair."""

import numpy as np
import pytest

from posattn import reference
from posattn.reference import frequencies, rotate

L, N, S = 8192, 32768, 4.0
PAIRS = np.arange(64)
OMEGA = 10000.0 ** (-2 * PAIRS / 128)
UNFINISHED = OMEGA * L / (2 * np.pi) < 1


def repairs():
    """The frequencies of each method for a text four times as long as those of training."""
    return {
        "interpolation": reference.position_interpolation(128, factor=S),
        "NTK-aware": reference.ntk_aware(128, factor=S),
        "dynamic NTK": reference.dynamic_ntk(128, factor=S, length=N, trained_length=L),
        "YaRN": reference.yarn(128, factor=S, trained_length=L)[0],
        "llama3": reference.llama3(128, base=1e4, factor=S, trained_length=L),
        "base 500000": frequencies(128, base=5e5),
    }


def new_angles(slowed, length=N):
    """How many pairs reach an angle that training did not show."""
    return (UNFINISHED & (length * slowed > L * OMEGA * (1 + 1e-9))).sum()


def test_eq_frequency_of_a_pair():
    r"""$$ \omega_j = b^{-2j/d}, \qquad j = 0, \ldots, d/2 - 1. $$"""
    for b, d in ((10000.0, 128), (500000.0, 64)):
        omega = [b ** (-2 * j / d) for j in range(d // 2)]
        assert np.allclose(frequencies(d, base=b), omega, rtol=1e-12)


def test_eq_slowing():
    r"""$$ \lambda_j = \frac{\omega_j}{\omega'_j}. $$"""
    x = np.tile([1.0, 0.0], 64)[None]  # every pair starts at the angle 0
    y = rotate(x, np.array([1]), frequencies=repairs()["NTK-aware"])
    rotated = np.arctan2(y[0, 1::2], y[0, ::2])
    slowing = 4 ** (PAIRS / 63)
    assert np.allclose(slowing, OMEGA / rotated)


def test_eq_position_interpolation():
    r"""$$ \omega'_j = \frac{\omega_j}{s} $$"""
    assert np.allclose(repairs()["interpolation"], OMEGA / S)
    x = np.random.default_rng(0).normal(size=(6, 128))
    positions = 1000.0 * np.arange(6)
    slowed = rotate(x, positions, frequencies=repairs()["interpolation"])
    assert np.allclose(slowed, rotate(x, positions / S))


def test_eq_ntk_aware():
    r"""$$ \omega'_j = (b')^{-2j/d}, \qquad b' = b\,s^{d/(d-2)}, \qquad \text{so that} \quad
    \lambda_j = s^{j/(d/2 - 1)}. $$
    """
    base = 1e4 * S ** (128 / 126)
    assert np.allclose(repairs()["NTK-aware"], base ** (-2 * PAIRS / 128))
    assert np.allclose(repairs()["NTK-aware"], OMEGA / S ** (PAIRS / 63))


def test_eq_pair_with_turns():
    r"""$$ j(\beta) = \frac{d}{2 \ln b} \ln \frac{L}{2\pi\beta}. $$"""
    for beta, about in ((1, 49.8), (32, 25.8)):
        j = 128 / (2 * np.log(1e4)) * np.log(L / (2 * np.pi * beta))
        assert round(j, 1) == about
        assert L * 1e4 ** (-2 * j / 128) / (2 * np.pi) == pytest.approx(beta)


def test_eq_yarn():
    r"""$$ \omega'_j = \gamma_j \frac{\omega_j}{s} + (1 - \gamma_j)\,\omega_j, \qquad
    \gamma_j = \operatorname{clip}\Bigl(\frac{j - j_f}{j_s - j_f}, 0, 1\Bigr). $$
    """
    gamma = np.clip((PAIRS - 25) / (50 - 25), 0, 1)
    assert np.allclose(repairs()["YaRN"], gamma * OMEGA / S + (1 - gamma) * OMEGA)


def test_eq_yarn_by_hand():
    r"""$$ \omega'_{45} = 0.8 \cdot \frac{\omega_{45}}{4} + 0.2 \cdot \omega_{45} = 0.4\,\omega_{45},
    \qquad \lambda_{45} = \frac{1}{0.4} = 2.5. $$
    """
    slowed = repairs()["YaRN"][45]
    assert slowed == pytest.approx(0.8 * OMEGA[45] / 4 + 0.2 * OMEGA[45])
    assert slowed == pytest.approx(0.4 * OMEGA[45])
    assert OMEGA[45] / slowed == pytest.approx(2.5)


def test_eq_llama3():
    r"""$$ \omega'_j = (1 - \gamma_j) \frac{\omega_j}{s} + \gamma_j\,\omega_j, \qquad
    \gamma_j = \operatorname{clip}\Bigl(\frac{r_j - 1}{4 - 1}, 0, 1\Bigr), \qquad
    r_j = \frac{L\,\omega_j}{2\pi}. $$
    """
    gamma = np.clip((L * OMEGA / (2 * np.pi) - 1) / 3, 0, 1)
    assert np.allclose(repairs()["llama3"], (1 - gamma) * OMEGA / S + gamma * OMEGA)


def test_eq_entropy_of_weights():
    r"""$$ H \approx \ln n - \frac{\sigma^2}{2}. $$"""
    rng = np.random.default_rng(1)
    for n, sigma in ((8192, 0.5), (32768, 1.0)):
        weights = np.exp(rng.normal(scale=sigma, size=(20, n)))
        weights /= weights.sum(-1, keepdims=True)
        entropy = -(weights * np.log(weights)).sum(-1).mean()
        assert entropy == pytest.approx(np.log(n) - sigma**2 / 2, abs=0.02)


def test_eq_attention_factor():
    r"""$$ c = 0.1 \ln s + 1. $$"""
    slowed, c = reference.yarn(128, factor=S, trained_length=L)
    assert c == pytest.approx(0.1 * np.log(4) + 1)
    x = np.random.default_rng(0).normal(size=(6, 128))
    plain = rotate(x, frequencies=slowed)
    sharp = rotate(x, frequencies=slowed, attention_factor=c)
    assert np.allclose(sharp @ sharp.T, c**2 * plain @ plain.T)


def test_only_ntk_aware_scaling_leaves_new_angles():
    assert new_angles(OMEGA) == UNFINISHED.sum() == 14
    for name, slowed in repairs().items():
        assert new_angles(slowed) == (13 if name == "NTK-aware" else 0)
        assert (slowed[0] < 1 - 1e-9) == (name == "interpolation")
    enough = 4 ** (63 / 50)
    assert new_angles(reference.ntk_aware(128, factor=enough)) == 0
    assert new_angles(reference.ntk_aware(128, factor=enough - 0.1)) > 0


def test_fast_pairs_keep_their_frequency():
    for name, last in (("YaRN", 25), ("llama3", 40)):
        slowing = OMEGA / repairs()[name]
        assert np.allclose(slowing[: last + 1], 1, atol=0.001)
        assert slowing[last + 1] > 1.001
        assert np.allclose(slowing[UNFINISHED], 4)


def test_angles_by_hand():
    assert np.degrees(OMEGA[63] * np.array([L, N])).round().tolist() == [54, 217]
    cosine = np.cos(np.arange(N + 1) * OMEGA[63])
    assert cosine.argmin() == 27205
    assert cosine[:L].min() > 0.58
    assert round(cosine[-1], 2) == -0.80
    assert N - 100 > 32000
    assert L - 1 == 8191
    assert np.flatnonzero(UNFINISHED)[0] == 49 + 1 == 100 / 2
    assert OMEGA[0] / S == 0.25
    assert np.cos([1, 0.25]).round(2).tolist() == [0.54, 0.97]
    assert round(1e4 * S ** (128 / 126)) == 40890
    slowing = OMEGA / repairs()["NTK-aware"]
    assert round(slowing[45], 2) == 2.69
    assert np.flatnonzero(UNFINISHED & (slowing < S - 1e-9))[-1] == 62
