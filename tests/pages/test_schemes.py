"""The atlas of all schemes."""

import numpy as np

from posattn import atlas, reference
from posattn.schemes import PROPERTIES, SCHEMES, properties

NAMES = ("none", "sinusoidal", "rotary", "ALiBi")
HERE = np.array([2, 0, 3])  # where bites and both the stand
TOKENS = np.array([[1.0, 0.0]] * 3)


def scores_by_hand(at):
    """The scores of bites with both the, for each of the three places where a scheme can act."""
    added = TOKENS + np.stack([np.sin(at), np.cos(at)], axis=1)
    turned = reference.rotate(TOKENS, at)
    return {
        "input": added[1:] @ added[0] / np.sqrt(2),
        "turned": turned[1:] @ turned[0] / np.sqrt(2),
        "penalty": np.sqrt(0.5) - abs(at[1:] - at[0]) / 2,
    }


def changes():
    """By scheme: how much dog differs between the sentences, and outputs when words stand in front."""
    rng = np.random.default_rng(0)
    words, weights = rng.normal(size=(4, 16)), rng.normal(size=(4, 16, 16)) / 4
    options = {
        "rotary": {"rotate": reference.rotate},
        "ALiBi": {"bias": reference.alibi_bias(2)},
    }
    found = {}
    for name in NAMES:
        layer = reference.MultiHeadAttention(*weights, num_heads=2, **options.get(name, {}))
        outputs = []
        for order, start in (
            ([0, 1, 2, 0, 3], 0),
            ([0, 3, 2, 0, 1], 0),
            ([0, 1, 2, 0, 3], 1000),
        ):
            x, at = words[order], np.arange(start, start + 5)
            x = x + reference.sinusoidal_encoding(at, 16) if name == "sinusoidal" else x
            outputs.append(layer(x, x, x, key_positions=at))
        first, other, later = outputs
        found[name] = abs(first[1] - other[4]).max(), abs(later - first).max()
    return found


def test_without_positions_both_scores_are_equal(page):
    r"""Without positions both scores are equal, because the two words are

    Without positions, both scores are $1 \cdot 1 / \sqrt{2} = 0.71$.
    """
    assert np.allclose(TOKENS[1:] @ TOKENS[0] / np.sqrt(2), 0.71, atol=0.005)
    assert np.array_equal(page.torch.tokens, TOKENS)


def test_a_clock_is_added(page):
    r"""Add the hand of a clock, $\mathbf{p}_i = (\sin i, \cos i)$, to each token. The query becomes
    $(1.91, -0.42)$ and the keys become $(1, 1)$ and $(1.14, -0.99)$, so the scores are 1.06 and 1.83.
    """
    added = TOKENS + reference.sinusoidal_encoding(4, 2)[HERE]
    assert np.allclose(added, [(1.91, -0.42), (1, 1), (1.14, -0.99)], atol=0.005)
    assert np.allclose(scores_by_hand(HERE)["input"], (1.06, 1.83), atol=0.005)


def test_vectors_are_turned(page):
    r"""Rotate each vector by one radian per position. Then there are 2 radians between the query and
    the first key and 1 radian between the query and the second, so the scores are
    $\cos 2 / \sqrt{2} = -0.29$ and $\cos 1 / \sqrt{2} = 0.38$.
    """
    turned = scores_by_hand(HERE)["turned"]
    assert np.allclose(turned, (-0.29, 0.38), atol=0.005)
    assert np.allclose(turned * np.sqrt(2), np.cos([2, 1]))


def test_a_penalty_is_subtracted(page):
    """Subtract one half for each step of distance. The first the is two steps away and the second is
    one, so the scores are $0.71 - 1 = -0.29$ and $0.71 - 0.5 = 0.21$.
    """
    assert np.allclose(scores_by_hand(HERE)["penalty"], (-0.29, 0.21), atol=0.005)


def test_only_the_first_notices_five_words_in_front(page):
    """In every line the two numbers differ, so all three schemes tell the two the apart. But only
    the first scheme notices the five words in front: its scores went from 1.06 and 1.83 to 0.2 and
    2.25, while the other four scores stayed as they were.
    """
    here, there = scores_by_hand(HERE), scores_by_hand(HERE + 5)
    for name in here:
        assert abs(np.diff([here[name], there[name]])).min() > 0.05
        assert np.allclose(here[name], there[name]) == (name != "input")
    assert here["input"].round(2).tolist() == [1.06, 1.83]
    assert there["input"].round(2).tolist() == [0.2, 2.25]
    lines = page.printed.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith("scores of bites")]
    assert len(heads) == 2
    printed = [line.split(":")[1] for i in heads for line in lines[i + 1 : i + 4]]
    assert [np.fromstring(line.strip(" []"), sep=" ").tolist() for line in printed] == [
        scores.round(2).tolist() for at in (here, there) for scores in at.values()
    ]


def test_the_product_of_two_clocks(page):
    r"""The product of $(1 + \sin i, \cos i)$ and $(1 + \sin j, \cos j)$ is

    $$ 1 + \sin i + \sin j + \cos(i - j). $$

    For the first the the product was $1 + 0.91 + 0 - 0.42 = 1.49$, and five positions later it is
    $1 + 0.66 - 0.96 - 0.42 = 0.28$.
    """
    expected = {0: [1, 0.91, 0, -0.42, 1.49], 5: [1, 0.66, -0.96, -0.42, 0.28]}
    for start, shown in expected.items():
        i, j = start + 2, start
        terms = [1, np.sin(i), np.sin(j), np.cos(i - j)]
        assert np.allclose([*terms, sum(terms)], shown, atol=0.005)
        assert np.isclose(sum(shown[:-1]), shown[-1])
        scores = scores_by_hand(HERE + start)["input"]
        assert np.isclose(scores[0], sum(terms) / np.sqrt(2))


def test_eq_three_places(page):
    r"""
    \begin{gathered} s_{ij} = \frac{r(\mathbf{q}_i, i)^\top r(\mathbf{k}_j, j)}{\sqrt{d_h}} + \beta(i, j, \mathbf{q}_i, \mathbf{k}_j), \\
    \mathbf{q}_i = \mathbf{W}^{(q)\top} e(\mathbf{x}_i, i), \qquad \mathbf{k}_j = \mathbf{W}^{(k)\top} e(\mathbf{x}_j, j). \end{gathered}

    In code, $e$ is x + encoding(positions), and MultiHeadAttention takes the other two as rotate=
    and bias=.
    """
    x, W_q, W_k, W_v = np.random.default_rng(0).normal(size=(4, 8, 8))
    layer = reference.MultiHeadAttention(
        W_q,
        W_k,
        W_v,
        np.eye(8),
        num_heads=1,
        rotate=reference.rotate,
        bias=reference.alibi_bias(1),
    )
    e = x + reference.sinusoidal_encoding(8, 8)
    q, k = (W_q.T @ e.T).T, (W_k.T @ e.T).T

    def r(vector, position):
        return reference.rotate(vector[None], np.array([position]))[0]

    s = np.array(
        [
            [r(q[i], i) @ r(k[j], j) / np.sqrt(8) - abs(i - j) / 256 for j in range(8)]
            for i in range(8)
        ]
    )
    assert np.allclose(layer(e, e, e), reference.masked_softmax(s) @ e @ W_v)
    assert not np.allclose(layer(x, x, x), layer(e, e, e), atol=0.1)


def test_dozens_of_schemes_and_eight_checks(page):
    """Dozens of schemes have been proposed

    The build makes a small instance of each of the … schemes and runs eight checks on it.
    """
    assert page.glued["how_many"] == len(SCHEMES) > 24
    assert len(PROPERTIES) == 8
    shown = [mark for mark in PROPERTIES if f"- **{mark}**: " in page.text]
    assert shown == list(PROPERTIES)


def test_each_card_has_its_picture(page):
    """Click a name to get to its card."""
    pictures = {atlas.anchor(name) for name in SCHEMES}
    assert pictures <= page.glued.keys()
    drawn = "".join(atlas.cards(place) for place in atlas.PLACES)
    for name in SCHEMES:
        assert f"{{glue:figure}} {atlas.anchor(name)}\n" in drawn


def test_the_picture_of_rotary_has_stripes(page):
    """Along every diagonal the shade stays the same, so the score depends only on the offset.

    A square of 64 by 64 shades.
    """
    scores = atlas.scores("rotary")
    assert scores.shape == (64, 64)
    assert np.allclose(scores[1:, 1:], scores[:-1, :-1])


def test_only_the_sinusoid_notices_what_stands_in_front(page):
    """Without a scheme, the dog that bites and the dog that is bitten look the same, because the layer
    sees the same five words in both sentences. All the other schemes tell them apart. With ALiBi the
    difference is small, 0.01, because its slopes here are at most one sixteenth, so a word that is four
    positions away loses at most one quarter from its score. Only the sinusoid notices the words in
    front. They change its outputs by up to 1.55, more than four times the difference that it makes
    between the two dogs.
    """
    found = changes()
    assert 4 * max(reference.alibi_slopes(2)) == 1 / 4
    assert round(found["ALiBi"][0], 2) == 0.01
    assert max(reference.alibi_slopes(2)) == 1 / 16
    dog, moved = found["sinusoidal"]
    assert round(moved, 2) == 1.55
    assert moved > 4 * dog
    assert [name for name in NAMES if found[name][0] > 0.005] == [
        "sinusoidal",
        "rotary",
        "ALiBi",
    ]
    assert [name for name in NAMES if found[name][1] > 0.005] == ["sinusoidal"]
    for name, (dog, moved) in found.items():
        line = f"{name:11} dog differs by {dog:.2f}, words in front change {moved:.2f}\n"
        assert page.printed.count(line) == 2  # once for each framework


def test_read_two_pictures(page):
    """With rotary the shade stays the same too, while with the sinusoid it changes. That is the mark
    shift, which rotary has and the sinusoid doesn't.
    """
    change = {}
    for name in ("rotary", "sinusoidal"):
        scores = atlas.scores(name)
        change[name] = abs(scores[1:, 1:] - scores[:-1, :-1]).max()
        assert (
            f"{name:11} largest change along a diagonal: {change[name]:.2f}" in page.printed
        )
        assert properties(name)["shift"] == (change[name] < 1e-9)
    assert change["rotary"] < 1e-9 < 0.1 < change["sinusoidal"]


def test_yarn_and_rotary(page):
    """They differ in norm. A rotation keeps lengths, but YaRN passes an attention_factor above 1, which
    makes queries and keys longer.
    """
    ours, plain = properties("YaRN"), properties("rotary")
    assert [mark for mark in PROPERTIES if ours[mark] != plain[mark]] == ["norm"]
    slowed, factor = reference.yarn(8, factor=4.0, trained_length=16)
    assert factor > 1
    x = np.ones((3, 8))
    turned = reference.rotate(x, frequencies=slowed, attention_factor=factor)
    assert (np.linalg.norm(turned, axis=1) > np.linalg.norm(x, axis=1)).all()


def test_what_would_you_need(page):
    """What remains are rotations."""
    wanted = {"shift": True, "side": True, "far": True, "cache": True, "learns": False}
    remain = [name for name in SCHEMES if wanted.items() <= properties(name).items()]
    assert f"remaining: {' · '.join(remain)}\n" in page.printed
    assert {*remain} <= {*atlas.acting("query and key")}
    assert "rotary" in remain


def test_when_a_cache_goes_stale(page):
    """From 9 tokens on. Up to $L$ the frequencies are those of training, and after that each new token
    changes them, so every key that is already in the cache has been rotated with the wrong ones.
    """
    at = [
        reference.dynamic_ntk(8, factor=2.0, length=n, trained_length=8)
        for n in range(7, 12)
    ]
    assert np.array_equal(at[0], reference.frequencies(8))
    assert np.array_equal(at[1], reference.frequencies(8))
    slowest = [frequencies[-1] for frequencies in at[1:]]
    assert (np.diff(slowest) < 0).all()


def test_make_one(page):
    """A bias that grows with the signed offset, and not with the distance, is enough, because a key
    before the query then gets a penalty where a key after it gets a bonus.
    """
    mine = page.torch.mine
    marks = {mark: check(lambda n: mine) for mark, check in PROPERTIES.items()}
    assert marks["shift"]
    assert marks["side"]
    assert not marks["learns"]
    assert mine.rotate is None
    bias = mine.bias(np.array([5]), np.arange(11))
    assert (bias[..., :5] < 0).all()
    assert (bias[..., 6:] > 0).all()


def test_no_scheme_at_all(page):
    """Let all scores be equal. Then the token at $i$ averages $i + 1$ values, and one of them belongs to the first word. The share of
    the first word, $1/(i+1)$, reveals the position
    """
    assert np.allclose(page.torch.share[:, 0], 1 / np.arange(1, 7))


def test_the_exceptions_that_the_text_explains(page):
    """because its bias is made from two positions and not from their offset.

    PoPE fails too, because its learned angles start at zero, and so does DAPE, because the bias that it
    corrects here is ALiBi's.

    TUPE acts on the scores and still fails

    Stick-breaking also fails side

    Dynamic NTK and LongRoPE change the frequencies when a text outgrows the length of training.
    Randomized positions are drawn anew for each length.
    """
    assert not properties("TUPE")["shift"]
    assert SCHEMES["TUPE"](6).place == "scores"
    assert not any(properties(name)["side"] for name in ("PoPE", "DAPE", "stick-breaking"))
    stale = [name for name in SCHEMES if not PROPERTIES["cache"](SCHEMES[name])]
    assert {*stale} == {"dynamic NTK", "LongRoPE", "randomized"}
