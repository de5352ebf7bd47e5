"""Exercises with solutions."""

import numpy as np
import pytest

from posattn import reference
from posattn.__main__ import main
from posattn.exercises import EXERCISES
from posattn.reference import attention_weights, frequencies, sinusoidal_encoding


def test_eq_shaw_scores(page):
    r"""$$
    s_{ij} = \frac{\mathbf{q}_i^\top \left(\mathbf{k}_j + \mathbf{a}_{\operatorname{clip}(j - i,\, -m,\, m)}\right)}{\sqrt{d}}.
    $$
    """
    q, k, a = (np.float64(getattr(page.torch, name)) for name in "qka")
    n, d, m = *q.shape, len(a) // 2
    scores = np.array(
        [
            [q[i] @ (k[j] + a[np.clip(j - i, -m, m) + m]) / d**0.5 for j in range(n)]
            for i in range(n)
        ]
    )
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    places = np.arange(n)
    bias = reference.ShawRelative(a).scores(q[None], k[None], places, places)[0]
    assert np.allclose(attention_weights(q, k, bias=bias), weights)
    for names in (page.torch, page.jax):
        assert np.allclose(names.weights, weights, atol=1e-5)


def test_attention_alone_makes_tokens_parallel(page):
    alike = page.torch.alike
    assert alike["only attention"][2] > 0.99
    for name in ("with residual", "with norm too"):
        assert alike[name][2] < 0.6 < 0.99 < alike[name][12]
    assert max(alike["P at each layer"]) < 0.9


def test_positions_fade_unless_they_come_again(page):
    found = page.torch.found
    assert found["only attention"][2] < 2 / 32
    residual, normed, again = (
        found[name][12] for name in ("with residual", "with norm too", "P at each layer")
    )
    assert residual < 2 / 32 < 0.15 < normed < again == 1
    P = sinusoidal_encoding(32, 64)  # a probe reads it where nothing else is added
    probe = np.linalg.lstsq(P, np.eye(32))[0]
    assert np.array_equal(np.argmax(P @ probe, axis=-1), np.arange(32))


def test_scores_are_largest_one_place_before():
    query, key = sinusoidal_encoding(np.arange(64) - 1, 16), sinusoidal_encoding(64, 16)
    scores = (query @ key.T)[1:]
    assert np.array_equal(np.argmax(scores, axis=-1), np.arange(63))
    assert np.allclose(np.max(scores, axis=-1), 16 / 2)


def test_distant_tokens_compete_after_training(page):
    assert np.cos(frequencies(16)).sum() > 7
    for names in (page.torch, page.jax):
        assert np.all(np.less(names.after, np.divide(names.before, 5)))
        omega = np.asarray(names.omega, float)
        assert np.min(omega) > 100 * np.min(frequencies(16))
        by_distance = np.cos(np.arange(1, 64)[:, None] * omega).sum(axis=-1)
        assert by_distance[0] < 5
        assert 1 + np.argmax(by_distance) > 16
        assert names.after[1] > names.after[0]


def test_memory_of_gather_and_skew_by_hand(page):
    n, dim = 4096, 64
    gather = n * n * dim
    skew, wide = (2 * n - 1) * dim, n * 2 * n
    assert round(gather / (skew + wide), -1) == 30
    assert wide > 0.95 * (skew + wide)
    assert page.torch.gather_bytes == 4 * gather
    assert page.torch.moved[:, :3].tolist() == [[j - i for j in range(3)] for i in range(3)]


def test_the_grade_is_what_the_page_shows(page, tmp_path, capsys):
    assert len(EXERCISES) == 10
    (cell,) = (cell.code for cell in page.cells if "def alibi_slopes" in cell.code)
    path = tmp_path / "alibi_slopes.py"
    path.write_text(cell, encoding="utf-8")
    assert main(["grade", str(path)]) == 1
    assert capsys.readouterr().out in page.text


def test_doubling_a_text_by_hand():
    d, projections, products = 512, 4, 2
    short, long = (reference.self_attention_operations(n, d) for n in (4096, 8192))
    by_hand = 2 * (projections * d + products * 8192) / (projections * d + products * 4096)
    assert 2 < long / short < 4
    assert long / short == pytest.approx(by_hand)
