"""Rotary position embedding."""

import json

import jax
import numpy as np
import pytest
import torch

from posattn import jax as column
from posattn import reference
from posattn.reference import frequencies, rotate
from tests.pages.reading import DOCS

Q, K = np.random.default_rng(0).normal(size=(2, 64))
HANDS = rotate(np.array([[1.0, 0.0]] * 3), np.array([2, 0, 3]))  # bites, the, the


def at(x, position):
    """One vector, turned to its position."""
    return rotate(x[None], np.array([position]))[0]


def test_the_words_of_the_example(page):
    """the word the stands twice

    one the is still two places before the verb, and the other one
    place after it
    """
    words = ["the", "dog", "bites", "the", "man"]
    places = [i - words.index("bites") for i, word in enumerate(words) if word == "the"]
    assert places == [-2, 1]


def test_hands_turn_by_57_degrees_and_keep_their_angles(page):
    """hands that turn by one radian, about 57 degrees, for each position

    every hand has moved, and no angle has
    """
    assert round(np.degrees(1)) == 57
    here, there = page.torch.hands
    assert np.allclose(here, HANDS)
    assert np.allclose(here, [(np.cos(p), np.sin(p)) for p in (2, 0, 3)])
    assert abs(there - here).max(-1).min() > 0.5
    assert np.allclose(here @ here.T, there @ there.T)


def test_eq_rotary_by_hand(page):
    r"""$$ \begin{aligned} (-0.42) \cdot 1 + 0.91 \cdot 0 &= -0.42 = \cos 2, \\
    (-0.42) \cdot (-0.99) + 0.91 \cdot 0.14 &= 0.54 = \cos 1. \end{aligned} $$

    asks with $(-0.42, 0.91)$, and the keys of the, at 0 and 3, are $(1, 0)$ and $(-0.99, 0.14)$
    """
    bites, *thes = HANDS
    assert np.allclose([bites @ the for the in thes], np.cos([2, 1]))
    assert np.allclose(HANDS, [(-0.42, 0.91), (1, 0), (-0.99, 0.14)], atol=0.005)
    assert np.allclose(np.cos([2, 1]), [-0.42, 0.54], atol=0.005)


def test_eq_rotary_wish(page):
    r"""$$ (\mathbf{R}_i\,\mathbf{q})^\top \mathbf{R}_j\,\mathbf{k} = \mathbf{q}^\top \mathbf{R}_{j-i}\,\mathbf{k} . $$"""
    i, j = 7, 3
    assert np.isclose(at(Q, i) @ at(K, j), Q @ at(K, j - i))
    assert not np.isclose(at(Q, i) @ at(K, j), Q @ at(K, i - j))


def test_eq_rotary(page):
    r"""$$ \begin{bmatrix} x_{2c} \\ x_{2c+1} \end{bmatrix} \mapsto \begin{bmatrix} \cos(p\,\omega_c) & -\sin(p\,\omega_c) \\ \sin(p\,\omega_c) & \cos(p\,\omega_c) \end{bmatrix}
    \begin{bmatrix} x_{2c} \\ x_{2c+1} \end{bmatrix}, \quad \omega_c = b^{-2c/d} . $$
    """
    p, d, b = 7, 64, 10000.0
    angle = p * b ** (-2 * np.arange(d // 2) / d)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    assert np.allclose(np.einsum("xyc,cy->cx", turn, Q.reshape(-1, 2)).ravel(), at(Q, p))


def test_eq_rotary_score(page):
    r"""$$ (\mathbf{R}_i\,\mathbf{q})^\top \mathbf{R}_j\,\mathbf{k} = \sum_{c=0}^{d/2-1} |\mathbf{q}_c|\,|\mathbf{k}_c| \cos\left((i - j)\,\omega_c + \varphi_c\right) . $$"""
    i, j = 7, 3
    q, k = Q[::2] + 1j * Q[1::2], K[::2] + 1j * K[1::2]
    waves = abs(q) * abs(k) * np.cos((i - j) * frequencies(64) + np.angle(q / k))
    assert np.isclose(at(Q, i) @ at(K, j), waves.sum())


def test_angles_need_float64(page):
    """Angles need more digits than float32 has

    rope_jax needs NumPy positions for that, the library does not
    """
    x, far = jax.numpy.linspace(-1, 1, 320).reshape(5, 64), np.arange(100000, 100005)
    exact = page.jax.rope_jax(x, far)
    assert abs(page.jax.rope_jax(x, jax.numpy.asarray(far)) - exact).max() > 1e-3
    assert abs(column.rotate(x, jax.numpy.asarray(far)) - exact).max() < 5e-7


def test_what_is_shifted_stays(page):
    """The cell below moves 50 tokens by 1000 positions."""
    changes = [
        line.split()[-1] for line in page.printed.splitlines() if "changes by" in line
    ]
    assert len(changes) == 8  # four lines for each framework
    assert changes[0] == changes[4]
    assert float(changes[0]) > 2
    assert {*changes[1:4], *changes[5:8]} == {"0.0000"}


def test_most_models_pair_halves(page):
    """the Llama of Hugging Face and most models since pair entry $c$ with entry $c + d/2$"""
    models = json.loads((DOCS / "_records" / "models.json").read_text("utf-8"))["rotary"]
    layouts = [model["layout"] for model in models]
    assert layouts.count("half") > len(layouts) / 2
    for name in ("Llama", "Mistral", "Qwen"):
        assert any(model["family"].startswith(name) for model in models)


def test_fewer_frequencies_turn_a_part(page):
    """turns the first 16 entries, at the angles of width 16"""
    x, far = np.random.default_rng(1).normal(size=(5, 64)), np.arange(100000, 100005)
    part = rotate(x, far, frequencies=frequencies(16))
    assert np.allclose(part[:, :16], rotate(x[:, :16], far))
    assert np.array_equal(part[:, 16:], x[:, 16:])


def test_a_larger_base_leaves_more_pairs_unturned(page):
    """the slowest pair turns once in … positions with $b = 10000$

    Of 64 pairs, … and … then make less than one turn in 8192 tokens
    """
    small, large = (2 * np.pi / frequencies(128, base=b) for b in (1e4, 5e5))
    assert len(small) == 64
    assert [page.glued[f"wave_{size}"] for size in ("small", "large")] == [
        small[-1],
        large[-1],
    ]
    assert page.glued["unturned_small"] == (small > 8192).sum()
    assert page.glued["unturned_large"] == (large > 8192).sum() > (small > 8192).sum()


def test_the_score_rises_at_some_steps(page):
    """the score rises at … of the first … steps"""
    distances = np.arange(400)
    scores = np.array(
        [np.ones(128) @ at(np.ones(128), -distance) for distance in distances]
    )
    assert page.glued["rises"] == (np.diff(scores) > 0).sum() > 0
    assert page.glued["rises"] < page.glued["steps"] == 399


def test_a_key_can_be_aimed(page):
    r"""The key $\mathbf{k} = \mathbf{R}_r\,\mathbf{q}$ has its largest score at the distance $r$

    that of the aimed key has its peak at 150
    """
    query, before = np.ones((1, 64)), -np.arange(400)
    for r in range(0, 400, 50):
        key = rotate(query, np.array([r])).repeat(400, 0)
        assert (query @ rotate(key, before).T).argmax() == r
    assert page.torch.curves["aimed at 150"].argmax() == 150


def test_operations(page):
    """Turning takes $3d$ operations for each query and key, against $2nd$ for the scores of a query
    with $n$ keys
    """
    n, d = 5, 64
    x = np.ones((n, d), np.float32)
    turn = jax.jit(lambda x, c, s: (x[::2] * c - x[1::2] * s, x[::2] * s + x[1::2] * c))
    turned = turn.lower(x[0], *x[:2, : d // 2]).cost_analysis()["flops"]
    scored = jax.jit(lambda q, k: k @ q).lower(x[0], x).cost_analysis()["flops"]
    assert (turned, scored) == (3 * d, 2 * n * d)


def test_only_scores_see_positions(page):
    """of five copies of one word the values are equal, so every average of them is the same

    an odd width is an error
    """
    rng = np.random.default_rng(0)
    layer = reference.MultiHeadAttention.init(rng, 16, 2, rotate=rotate)
    alike = layer(*[np.ones((5, 16))] * 3)
    assert np.allclose(alike, alike[0])
    with pytest.raises(ValueError, match="even"):
        rotate(np.ones((5, 7)))


def test_mistakes_move_scores(page):
    """The cell makes each mistake on eight tokens, and prints how far the scores move."""
    moved = [float(line.split()[-1]) for line in page.cells[-5].printed.splitlines()]
    spread = page.torch.scores.std()
    converted, as_they_were, base, backwards, cached, at_0 = moved
    assert converted == cached == 0
    assert min(as_they_were, base, backwards, at_0) > spread / 2


def test_angles_in_half_precision(page):
    """angles off by up to … radians at position 4095, and … different positions out of 4096"""
    assert page.glued["places_kept"] == 769
    exact = frequencies(128)
    rounded = torch.from_numpy(exact).bfloat16().double().numpy()
    assert page.glued["radians_lost"] == pytest.approx(4095 * abs(rounded - exact).max())


def test_a_query_alone_stands_at_0(page):
    """rotate(q) for one new query, which then stands at 0"""
    assert np.array_equal(rotate(Q[None]), Q[None])


def test_turned_values_depend_on_where_the_text_starts(page):
    """outputs that depend on where the text starts"""
    x, far = np.eye(8), np.arange(8) + 1000
    weights = reference.attention_weights(x, x)
    assert not np.allclose(weights @ rotate(x), weights @ rotate(x, far), atol=0.1)


def test_look_back(page):
    r"""the key is $(\cos 2, \sin 2)$. One place after, $i - j = -1$, it scores $\cos(-3)$"""
    query, key = np.array([1.0, 0.0]), np.array([np.cos(2), np.sin(2)])
    assert np.allclose(
        [at(query, 2) @ at(key, 0), at(query, 2) @ at(key, 3)], [1, np.cos(3)]
    )
    assert at(query, 2) @ at(key, 0) > at(query, 2) @ at(key, 4) + 1


def test_one_full_turn(page):
    r"""From $2\pi\,b^{(d-2)/d} = 100000$ follows $b = (100000 / 2\pi)^{d/(d-2)}$."""
    assert np.isclose(2 * np.pi / frequencies(128, base=page.torch.base)[-1], 100000)


def test_a_loophole(page):
    """The score is multiplied by $1.1^{j-i}$

    lengths no longer stay, and overflow far away
    """
    here, later = page.torch.here, page.torch.later
    q, k = page.torch.q[0], page.torch.k[0]
    assert np.isclose(here, at(q, 5) @ at(k, 2) * 1.1 ** (2 - 5))
    assert np.isclose(here, later)
    assert float(np.finfo(np.float32).max) < 1.1**1000
