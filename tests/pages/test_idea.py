"""The idea in twenty minutes."""

import numpy as np
import pytest

from posattn import reference


def test_matches_become_the_weight_in_the_corner():
    tokens = np.array([[1.0, 0], [0, 1], [1, 0]])
    out = reference.scaled_dot_product_attention(tokens, tokens, tokens)
    assert out[0, 0] == pytest.approx(0.802, abs=5e-4)
    asked = np.exp(np.array([1, 0, 1]) / np.sqrt(2))
    assert np.allclose(
        [*asked, asked.sum(), 2 * asked[0]], [2.03, 1, 2.03, 5.06, 4.06], atol=0.006
    )
    assert 2 * asked[0] / asked.sum() == pytest.approx(out[0, 0])


def test_rotation_keeps_the_angles(page):
    here, there = page.torch.rotated
    assert np.allclose(here, [(np.cos(p), np.sin(p)) for p in (2, 0, 3)])
    assert abs(there - here).max(-1).min() > 0.5
    assert np.allclose(here @ here.T, there @ there.T)


def test_a_matching_pair_becomes_a_mismatch(page):
    slowest = page.torch.omega[63]
    assert slowest == pytest.approx(reference.frequencies(128)[63])
    assert np.cos(4096 * slowest) > 0.85
    assert np.cos(32768 * slowest) < -0.75


def test_pairs_below_one_circle_meet_new_angles(page):
    short, long = (page.torch.circles[f"in {n} tokens"] for n in (4096, 32768))
    assert [(turns < 1).argmax() for turns in (short, long)] == [46, 60]
    assert short[0] > 100


def test_yarn_slows_only_what_needs_it(page):
    ratio = page.torch.omega / page.torch.yarn
    unfinished = page.torch.circles["in 4096 tokens"] < 1
    assert np.allclose(ratio[unfinished], 8)
    assert np.allclose(ratio[page.torch.circles["in 4096 tokens"] > 32], 1)
    assert ((ratio >= 1 - 1e-9) & (ratio <= 8 + 1e-9)).all()
