"""The atlas of all schemes: where each acts, and what its marks say."""

from base64 import b64decode
from zlib import decompress

import numpy as np

from posattn import atlas, reference
from posattn.schemes import PROPERTIES, SCHEMES


def scores_by_hand():
    """The scores of bites with both the, for each of the three places where a scheme can act."""
    at = np.array([2, 0, 3])  # where bites and both the stand
    tokens = np.array([[1.0, 0.0]] * 3)
    added = tokens + reference.sinusoidal_encoding(at, 2)
    rotated = reference.rotate(tokens, at)
    bias = reference.ALiBi(8)(at[:1], at[1:])[0, 0]  # the slope is one half
    return {
        "input": added[1:] @ added[0] / np.sqrt(2),
        "rotation": rotated[1:] @ rotated[0] / np.sqrt(2),
        "bias": tokens[1:] @ tokens[0] / np.sqrt(2) + bias,
    }


def test_eq_three_places():
    r"""
    \begin{gathered} s_{ij} = \frac{r(\mathbf{q}_i, i)^\top r(\mathbf{k}_j, j)}{\sqrt{d_h}} + \beta(i, j, \mathbf{q}_i, \mathbf{k}_j), \\
    \mathbf{q}_i = \mathbf{W}^{(q)\top} e(\mathbf{x}_i, i), \qquad \mathbf{k}_j = \mathbf{W}^{(k)\top} e(\mathbf{x}_j, j). \end{gathered}
    """
    weights = np.random.default_rng(0).normal(size=(4, 8, 8)) / 2
    layer = reference.MultiHeadAttention(
        *weights, num_heads=1, rotate=reference.rotate, bias=reference.ALiBi(1)
    )
    x = np.random.default_rng(1).normal(size=(8, 8))
    e = x + reference.sinusoidal_encoding(8, 8)
    W_q, W_k, W_v, W_o = weights
    i = np.arange(8)
    scores = np.empty((8, 8))
    for query in i:
        for key in i:
            q = reference.rotate((W_q.T @ e[query])[None], i[query : query + 1])[0]
            k = reference.rotate((W_k.T @ e[key])[None], i[key : key + 1])[0]
            scores[query, key] = q @ k / np.sqrt(8) - abs(key - query) / 256
    alpha = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.allclose(layer(e, e, e), alpha @ e @ W_v @ W_o)


def test_eq_one_group():
    r"""
    \tilde{\mathbf{q}}_i^\top \mathbf{A}_i \cdots \mathbf{A}_{j+1} \tilde{\mathbf{k}}_j = \mathbf{q}_i^\top \mathbf{R}\, \mathbf{k}_j + \sum_{l=j+1}^{i} g_l ,
    """
    rng = np.random.default_rng(2)
    q, k = rng.normal(size=(2, 5, 4))
    theta, g = rng.uniform(size=(1, 5, 2)), -rng.uniform(size=5)

    def between(theta, g, i, j):
        product = np.eye(6)
        for token in range(j + 1, i + 1):
            A = np.eye(6)
            back = reference.rotate(np.eye(4), np.full(4, -1), frequencies=theta[0, token])
            A[:4, :4] = back.T
            A[5, 4] = g[token]
            product = A @ product
        return np.append(q[i], [0, 1]) @ product @ np.append(k[j], [1, 0])

    same = np.broadcast_to(reference.frequencies(4), (1, 5, 2))
    turned = [reference.selective_rotation(x[None], theta)[0][0] for x in (q, k)]
    forgets = reference.forgetting_bias(g[None])[0]
    slope = reference.ALiBi(8)(np.arange(5), np.arange(5))[0]
    for i in range(5):
        for j in range(i + 1):
            chosen = turned[0][i] @ turned[1][j] + forgets[i, j]
            assert np.isclose(between(theta, g, i, j), chosen)
            rotary = reference.rotate(q)[i] @ reference.rotate(k)[j]
            assert np.isclose(between(same, 0 * g, i, j), rotary)
            alibi = between(0 * theta, np.full(5, -1 / 2), i, j)
            assert np.isclose(alibi, q[i] @ k[j] + slope[i, j])


def test_each_scheme_has_a_card_and_each_mark_a_line(page):
    drawn = "".join(atlas.cards(place) for place in atlas.PLACES)
    for name in SCHEMES:
        assert atlas.anchor(name) in page.glued
        assert f"{{glue:figure}} {atlas.anchor(name)}\n" in drawn
    assert all(f"- **{mark}**: " in page.text for mark in PROPERTIES)
    assert page.glued["how_many"] == len(SCHEMES)


def test_the_wall_has_the_map_of_each_scheme(page):
    wall = page.glued["wall"]
    assert {about["name"] for about in wall["schemes"]} == set(SCHEMES)
    maps = np.frombuffer(decompress(b64decode(wall["maps"])), "u1").reshape(-1, 64, 64)
    near = abs(np.subtract.outer(range(64), range(64))) < 24
    for about, shades in zip(wall["schemes"], maps, strict=True):
        scores = atlas.scores(about["name"])
        heights = (scores - scores.min()) / max(np.ptp(scores), 1e-9)
        assert abs(shades / 11 - heights)[near].max() < 1 / 12 + 1e-6


def test_a_signed_offset_tells_sides_apart(page):
    mine = page.torch.mine
    assert PROPERTIES["shift"](lambda n: mine)
    assert PROPERTIES["side"](lambda n: mine)
    bias = mine.bias(np.array([5]), np.arange(11))
    assert (bias[..., :5] < 0).all()
    assert (bias[..., 6:] > 0).all()


def test_by_hand():
    found = {name: scores.round(2).tolist() for name, scores in scores_by_hand().items()}
    assert found == {
        "input": [1.06, 1.83],
        "rotation": [-0.29, 0.38],
        "bias": [-0.29, 0.21],
    }
    assert atlas.scores("rotary").shape == (64, 64)
