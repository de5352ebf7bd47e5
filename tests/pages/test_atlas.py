"""The atlas of all schemes: where each acts, and what its marks say."""

import numpy as np

from posattn import atlas, reference
from posattn.schemes import PROPERTIES, SCHEMES, properties

NAMES = ("none", "sinusoidal", "rotary", "ALiBi")


def scores_by_hand(start):
    """The scores of bites with both the, for each of the three places where a scheme can act."""
    at = np.array([2, 0, 3]) + start  # where bites and both the stand
    tokens = np.array([[1.0, 0.0]] * 3)
    added = tokens + reference.sinusoidal_encoding(at, 2)
    rotated = reference.rotate(tokens, at)
    bias = reference.ALiBi(8)(at[:1], at[1:])[0, 0]  # the slope is one half
    return {
        "input": added[1:] @ added[0] / np.sqrt(2),
        "rotation": rotated[1:] @ rotated[0] / np.sqrt(2),
        "bias": tokens[1:] @ tokens[0] / np.sqrt(2) + bias,
    }


def changes(name):
    """How much dog differs between the sentences, and outputs when words stand in front."""
    rng = np.random.default_rng(0)
    words, weights = rng.normal(size=(4, 16)), rng.normal(size=(4, 16, 16)) / 4
    options = {
        "rotary": {"rotate": reference.rotate},
        "ALiBi": {"bias": reference.ALiBi(2)},
    }
    layer = reference.MultiHeadAttention(*weights, num_heads=2, **options.get(name, {}))

    def read(order, start):
        x, at = words[order], np.arange(start, start + 5)
        x = x + reference.sinusoidal_encoding(at, 16) if name == "sinusoidal" else x
        return layer(x, x, x, key_positions=at)

    first, other = read([0, 1, 2, 0, 3], 0), read([0, 3, 2, 0, 1], 0)
    later = read([0, 1, 2, 0, 3], 1000)
    return abs(first[1] - other[4]).max(), abs(later - first).max()


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


def test_only_the_sinusoid_notices_what_stands_in_front():
    found = {name: changes(name) for name in NAMES}
    differs = {name: dog > 0.005 for name, (dog, _) in found.items()}
    moves = {name: moved > 0.005 for name, (_, moved) in found.items()}
    assert differs == {"none": False, "sinusoidal": True, "rotary": True, "ALiBi": True}
    assert [name for name in NAMES if moves[name]] == ["sinusoidal"]
    dog, moved = found["sinusoidal"]
    assert moved > 4 * dog


def test_stripes_on_a_card_mean_the_mark_shift():
    for name in ("rotary", "sinusoidal", "ALiBi"):
        scores = atlas.scores(name)
        stripes = np.allclose(scores[1:, 1:], scores[:-1, :-1])
        assert stripes == properties(name)["shift"] == (name != "sinusoidal")


def test_exceptions_that_the_text_explains():
    assert not properties("TUPE")["shift"]
    assert SCHEMES["TUPE"](6).place == "scores"
    assert not any(properties(name)["side"] for name in ("PoPE", "DAPE", "stick-breaking"))
    yarn, rotary = properties("YaRN"), properties("rotary")
    assert [mark for mark in PROPERTIES if yarn[mark] != rotary[mark]] == ["norm"]


def test_each_scheme_has_a_card_and_each_mark_a_line(page):
    drawn = "".join(atlas.cards(place) for place in atlas.PLACES)
    for name in SCHEMES:
        assert atlas.anchor(name) in page.glued
        assert f"{{glue:figure}} {atlas.anchor(name)}\n" in drawn
    assert all(f"- **{mark}**: " in page.text for mark in PROPERTIES)
    assert page.glued["how_many"] == len(SCHEMES)


def test_schemes_with_all_wanted_marks_are_rotations():
    wanted = {"shift": True, "side": True, "far": True, "cache": True, "learns": False}
    remain = {name for name in SCHEMES if wanted.items() <= properties(name).items()}
    assert "rotary" in remain
    assert remain <= {*atlas.acting("query and key")}


def test_a_signed_offset_tells_sides_apart(page):
    mine = page.torch.mine
    assert PROPERTIES["shift"](lambda n: mine)
    assert PROPERTIES["side"](lambda n: mine)
    bias = mine.bias(np.array([5]), np.arange(11))
    assert (bias[..., :5] < 0).all()
    assert (bias[..., 6:] > 0).all()


def test_by_hand():
    here, there = scores_by_hand(0), scores_by_hand(5)
    assert here["input"].round(2).tolist() == [1.06, 1.83]
    assert there["input"].round(2).tolist() == [0.2, 2.25]
    for name, scores in (("rotation", [-0.29, 0.38]), ("bias", [-0.29, 0.21])):
        assert here[name].round(2).tolist() == scores
        assert np.allclose(there[name], here[name])
    assert atlas.scores("rotary").shape == (64, 64)
    assert round(changes("ALiBi")[0], 2) == 0.01
    assert round(changes("sinusoidal")[1], 2) == 1.55
    stale = [
        reference.dynamic_ntk(8, factor=2.0, length=n, trained_length=8)[-1]
        for n in (7, 8, 9, 10)
    ]
    assert stale[0] == stale[1] > stale[2] > stale[3]
