"""Conventions of rotary embedding, and caches."""

from functools import partial

import jax
import numpy as np
import pytest
import torch

from posattn import reference
from posattn.reference import frequencies, rotate, weight_to_half
from tests.records import PLANS, ROTARY, ropes

Q, K, V = np.random.default_rng(0).normal(size=(3, 12, 16))


def letters(turn, width=8):
    """Which entries share a pair, from the fastest pair on: letters, and dots for those that stay."""
    turned = turn(np.eye(width)[:, None], np.array([1]))[:, 0]
    pairs = {}
    for a in range(width):
        speed = np.arccos(np.clip(turned[a, a], -1, 1))
        if speed > 1e-9:
            pairs.setdefault(round(float(speed), 9), []).append(a)
    named = ["·"] * width
    for letter, speed in zip("ABCD", sorted(pairs, reverse=True), strict=False):
        for a in pairs[speed]:
            named[a] = letter
        first, second = pairs[speed]
        assert np.isclose(turned[first, second], np.sin(speed))
    return named, sorted(pairs, reverse=True)


def row(page, name):
    """The cells of a table's row."""
    line = next(line for line in page.text.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_mistakes_move_scores(page):
    """Pair halves instead of neighbors, and some score is off by 1.90, when a typical score is 1.10. Rotate
    the queries backward, and the error is three times a typical score. Even the mildest mistake here,
    one query at the wrong position, moves some score by half of a typical score.
    """
    size, *moved = [float(line.split()[-1]) for line in page.cells[0].printed.splitlines()]
    halves, _, _, backward, last = moved
    assert (size, halves) == (1.10, 1.90)
    assert 3 < backward / size < 3.5
    assert min(moved) == last >= size / 2


def test_where_a_symptom_points(page):
    """short texts are fine, long ones get worse

    the output changes when the whole text moves

    all is well until the cache is full
    """
    # Unscaled speeds: near keys score as they did, far ones do not. Angles in bfloat16 the same.
    scaled, plain = reference.llama3(128, base=5e5), frequencies(128, base=5e5)
    rounded = torch.from_numpy(plain).bfloat16().double().numpy()
    for right, wrong in ((scaled, plain), (plain, rounded)):
        near, far = (abs(np.cos(p * right) - np.cos(p * wrong)).max() for p in (10, 8000))
        assert near < 0.1 < 1 < far
    # A wrong sign: moving the text moves the scores.
    here, there = (
        rotate(Q, -p) @ rotate(K, p).T for p in (np.arange(12), np.arange(12) + 9)
    )
    assert abs(here - there).max() > 1
    # Without a shift, keys are only wrong once something has been dropped.
    kept = np.r_[:2, 5:12]
    assert np.allclose(rotate(K)[:2], rotate(K[kept])[:2])
    assert not np.allclose(rotate(K)[kept][2:], rotate(K[kept])[2:])


def test_three_lines_for_a_configuration(page):
    """This is the configuration of Qwen3-Next, where only a quarter of each head is rotated"""
    layer, config = PLANS["Qwen3-Next"].layers[3], page.torch.config
    assert (layer.head_dim, layer.rope.base) == (config["head_dim"], config["rope_theta"])
    assert layer.rope.rotary_dim == page.torch.rotary_dim == 256 / 4
    assert layer.rope.layout == "half"
    assert "64 of 256 entries of a head are rotated" in page.printed
    told = reference.Rotary(layout="half", frequencies=layer.rope.frequencies)
    x, far = np.random.default_rng(1).normal(size=(5, 256)), np.arange(100, 105)
    made = page.torch.rope(torch.from_numpy(x), torch.from_numpy(far))
    assert np.allclose(made.numpy(), told(x, far))
    made = page.jax.rope(jax.numpy.float32(x), jax.numpy.asarray(far))
    assert np.allclose(made, told(x, far), atol=1e-5)


def test_a_rotation_as_a_value(page):
    """If the layer will be saved, replace the partial by Rotary(frequencies=speeds, layout="half"). It
    computes the same and, unlike a partial, it can be compared and printed
    """
    x, far = np.random.default_rng(1).normal(size=(5, 16)), np.arange(100, 105)
    options = {"frequencies": frequencies(4, base=1e7), "layout": "half"}
    value = reference.Rotary(**options)
    assert value == reference.Rotary(**options)
    assert partial(rotate, **options) != partial(rotate, **options)
    assert "layout='half'" in repr(value)
    assert np.array_equal(value(x, far), rotate(x, far, **options))


def test_the_two_layouts(page):
    """entries 0 and 1, then 2 and 3, and so on

    There entry $c$ forms a pair with entry $c + d/2$.

    A is the fastest pair and D the slowest.
    """
    for layout in ("interleaved", "half"):
        named, _ = letters(partial(rotate, layout=layout))
        assert named == row(page, f"`{layout}`")


def test_most_models_pair_halves(page):
    """Most code today follows GPT-NeoX"""
    layouts = [next(iter(ropes(family))).layout for family in ROTARY]
    assert layouts.count("half") > len(layouts) / 2
    assert {rope.layout for rope in ropes("GPT-NeoX-20B")} == {"half"}


def test_rotate_half(page):
    r"""In rotate_half they swap places, and the one that lands in front changes its sign. With an
    angle $\theta$, entry $c$ becomes $x_c \cos\theta - x_{c + d/2} \sin\theta$, and its partner becomes
    $x_{c + d/2} \cos\theta + x_c \sin\theta$.
    """
    x, angle = Q[0, :8], 0.7
    own = page.torch.apply_rotary(x, np.cos(angle), np.sin(angle))
    for c in range(4):
        a, b = x[c], x[c + 4]
        assert np.isclose(own[c], a * np.cos(angle) - b * np.sin(angle))
        assert np.isclose(own[c + 4], b * np.cos(angle) + a * np.sin(angle))


def test_the_order_of_converted_weights(page):
    """For a head of width 8 the new order is 0, 2, 4, 6, 1, 3, 5, 7"""
    assert weight_to_half(np.arange(8.0), 1).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]


def test_weights_can_be_converted(page):
    """Reorder the outputs of the query and key projections, and the other layout computes the same
    scores.

    With grouped heads, keys have their own, smaller num_heads.
    """
    x = np.random.default_rng(1).normal(size=(5, 32))
    queries, keys = np.random.default_rng(2).normal(size=(2, 32, 32))
    keys = keys[:, :16]  # two heads of keys, four of queries
    heads = [
        (x @ w).reshape(5, n, 8).swapaxes(0, 1)
        for w, n in (
            (queries, 4),
            (keys, 2),
            (weight_to_half(queries, 4), 4),
            (weight_to_half(keys, 2), 2),
        )
    ]
    q, k, q_half, k_half = heads
    wanted = rotate(q)[::2] @ rotate(k).swapaxes(-1, -2)
    turn = partial(rotate, layout="half")
    assert np.allclose(turn(q_half)[::2] @ turn(k_half).swapaxes(-1, -2), wanted)
    assert not np.allclose(turn(q)[::2] @ turn(k).swapaxes(-1, -2), wanted)
    assert "error with converted weights: 0.00" in page.printed


def test_two_meanings_of_a_part(page):
    """Take a head of width 8 and the factor 0.5, so 4 entries are rotated. A dot is an entry that stays
    as it is.

    the speeds are those of width 4, $b^0 = 1$ and $b^{-2/4} = 0.01$

    Pairs are formed across the whole head, with the speeds of width 8, $b^0 = 1$ and $b^{-2/8} = 0.1$.
    """
    turns = {
        "first part": page.torch.first_part,
        "part of pairs": page.torch.proportional,
    }
    for name, turn in turns.items():
        named, speeds = letters(turn)
        assert named == row(page, name)
        assert np.allclose(speeds, [1, 0.01] if name == "first part" else [1, 0.1])
    assert np.allclose(frequencies(4), [1, 0.01])
    assert np.allclose(frequencies(8)[:2], [1, 0.1])


def test_a_token_of_ones(page):
    r"""A pair $(1, 1)$ that turns by 1 radian becomes $(\cos 1 - \sin 1,\ \sin 1 + \cos 1) = (-0.30, 1.38)$.
    In the first scheme these two numbers are at entries 0 and 2. In the second they are at entries 0 and 4.

    The last four entries stay 1 in the first row. In the second row the entries that stay are 2, 3, 6
    and 7.
    """
    pair = [np.cos(1) - np.sin(1), np.sin(1) + np.cos(1)]
    assert np.allclose(pair, (-0.30, 1.38), atol=0.005)
    ones, one = np.ones((1, 8)), np.array([1])
    assert np.allclose(page.torch.first_part(ones, one)[0, [0, 2]], pair)
    assert np.allclose(page.torch.proportional(ones, one)[0, [0, 4]], pair)
    stays = [
        np.flatnonzero(turn(ones, one)[0] == 1).tolist()
        for turn in (page.torch.first_part, page.torch.proportional)
    ]
    assert stays == [[4, 5, 6, 7], [2, 3, 6, 7]]


def test_the_right_frequencies_in_wrong_pairs(page):
    """used the frequencies of the second meaning for Gemma 4, but formed the pairs inside the
    first part. All 64 frequencies matched the original exactly, and the pairs were wrong.
    """
    original = frequencies(512, base=1e6)
    original[64:] = 0
    x, at = np.random.default_rng(1).normal(size=(1, 512)), np.array([1])
    right = rotate(x, at, frequencies=original, layout="half")
    wrong = rotate(x, at, frequencies=original[:64], layout="half")
    assert np.flatnonzero(right != x).tolist() == [*range(64), *range(256, 320)]
    assert np.flatnonzero(wrong != x).tolist() == [*range(128)]


def test_the_part_leaves_the_rest(page):
    """rotate the first part, here 4 entries, as a small head of width 4"""
    x, far = np.random.default_rng(1).normal(size=(5, 8)), np.arange(100000, 100005)
    turn = page.torch.first_part
    assert np.allclose(turn(x, far)[:, :4], rotate(x[:, :4], far, layout="half"))
    assert np.array_equal(turn(x, far)[:, 4:], x[:, 4:])


def test_a_larger_base_leaves_more_pairs_unturned(page):
    """At $d = 128$ and $b = 10000$ the slowest pair needs … positions for one full turn. With the 500000
    of Llama 3 grattafiori2024llama it needs ….

    In a text of 8192 tokens, … of the 64 pairs complete less than one turn with the small base, and …
    with the large one.

    Pair 0 always turns by one radian per position
    """
    small, large = (2 * np.pi / frequencies(128, base=b) for b in (1e4, 5e5))
    assert len(small) == 64
    assert small[0] == large[0] == 2 * np.pi
    assert [page.glued[f"wave_{size}"] for size in ("small", "large")] == [
        small[-1],
        large[-1],
    ]
    assert page.glued["unturned_small"] == (small > 8192).sum()
    assert page.glued["unturned_large"] == (large > 8192).sum() > (small > 8192).sum()


def test_angles_in_half_precision(page):
    """A bfloat16 number has 8 significant bits. It holds every integer up to 256, but 257 becomes 256, and
    three words in a row end up at 260.

    Of the positions 0 to 4095, only … different ones are left.

    Each is off by a fraction of a percent

    At position 4095 the angle is off by up to … radians, and a half turn is 3.14.

    In float32 an angle at position 100000 is still good to 0.01 radians.

    If you compare a float64 rotation with such code far into a text, expect differences in the third
    decimal.
    """
    speeds = np.float32(10000.0) ** -(np.arange(0, 128, 2, dtype=np.float32) / 128)
    difference = abs(np.float32(100000) * speeds - 100000 * frequencies(128)).max()
    assert 0.001 < difference < 0.01
    integers = torch.arange(258)
    kept = integers.bfloat16().long()
    assert torch.equal(kept[:257], integers[:257])
    assert kept[257] == 256
    for names in (page.torch, page.jax):
        assert [int(p) for p in names.stored] == [254, 255, 256, 256, 258, 260, 260, 260]
    assert torch.finfo(torch.bfloat16).eps == 2.0 ** (1 - 8)
    assert page.glued["places_kept"] == 769
    exact = frequencies(128)
    rounded = torch.from_numpy(exact).bfloat16().double().numpy()
    assert page.glued["radians_lost"] == pytest.approx(4095 * abs(rounded - exact).max())
    assert 1e-3 < abs(rounded / exact - 1).max() < 1e-2
    assert page.glued["radians_lost"] > np.pi == pytest.approx(3.14, abs=0.005)


def test_half_precision_is_refused(page):
    """raises an error if you pass frequencies or positions in half precision"""
    x = torch.ones(2, 4)
    turn = page.torch.rope.func
    with pytest.raises(TypeError, match="16"):
        turn(x, torch.arange(2).bfloat16())
    with pytest.raises(TypeError, match="16"):
        turn(x, frequencies=torch.ones(2).bfloat16())


def test_a_query_without_positions_is_at_0(page):
    """From the second token on, every query is at position 0."""
    assert np.array_equal(rotate(Q[7:8]), Q[7:8])
    assert "error with the query at 7: 0.00" in page.printed
    assert (
        "error with the last query at 0: 0.59" in page.printed
    )  # At position 0 it was off by 0.59


def test_padding_that_both_share(page):
    """If padding on the left shifts queries and keys of an example by the same amount, no score
    changes

    If it shifts only the keys, all scores are wrong.
    """
    here, there = np.arange(12), np.arange(12) + 3
    scores = rotate(Q, here) @ rotate(K, here).T
    assert np.allclose(rotate(Q, there) @ rotate(K, there).T, scores)
    assert not np.isclose(rotate(Q, here) @ rotate(K, there).T, scores).any()


def test_packing(page):
    """Whether positions restart at 0 for each text makes no difference to a rotary score

    Resetting the positions does not replace the mask.
    """
    running, restarted = np.arange(12), np.r_[:5, :7]
    text = np.r_[[0] * 5, [1] * 7]
    mask = text[:, None] == text
    scores = [rotate(Q, p) @ rotate(K, p).T for p in (running, restarted)]
    assert np.allclose(scores[0][mask], scores[1][mask])
    one = reference.attention_weights(rotate(Q, restarted), rotate(K, restarted))
    assert (one[~mask] > 0).all()


def test_the_last_entries(page):
    """DeepSeek-V4 deepseek2026v4 rotates the last 64 of 512 entries, paired as neighbors. With the
    library, that is a slice: np.concatenate([x[..., :448], rotate(x[..., 448:], positions)], axis=-1).
    """
    x, positions = np.random.default_rng(1).normal(size=(5, 512)), np.arange(100, 105)
    line = page.text.split("that is a slice: `")[1].split("`")[0]
    turned = eval(line, {"np": np, "x": x, "rotate": rotate, "positions": positions})
    assert np.array_equal(turned[:, :-64], x[:, :-64])
    assert np.allclose(turned[:, -64:], rotate(x[:, -64:], positions))


def test_counting_on(page):
    """If you drop them and number the new tokens as before, no key has to be rotated again, because
    the offsets among the others stay the same.
    """
    kept, here = slice(5, 12), np.arange(12)
    scores = rotate(Q, here)[kept] @ rotate(K, here)[kept].T
    assert np.allclose(scores, rotate(Q[kept], here[:7]) @ rotate(K[kept], here[:7]).T)


def test_context_shift(page):
    r"""$\mathbf{R}_{-3}\,\mathbf{R}_5 = \mathbf{R}_2$

    We keep tokens 0 and 1, drop 2, 3 and 4, and move the last three tokens into the gap.

    Without the shift, an entry is off by as much as 3.27.
    """
    assert page.printed.count("error without the shift: 3.27") == 2
    assert np.allclose(
        rotate(rotate(K, np.full(12, 5)), np.full(12, -3)), rotate(K, np.full(12, 2))
    )
    for names in (page.torch, page.jax):
        assert np.allclose(names.moved_keys, names.again, atol=1e-6)
        assert np.asarray(names.kept).shape == (5, 64)


def test_what_a_context_shift_needs(page):
    """Use the same layout, part and speeds as the first time.

    The cached keys already contain it, so shift with attention_factor=1.0.
    """
    turn = partial(rotate, frequencies=frequencies(8), layout="half")
    cached, back = turn(K), np.full(12, -3)
    wanted = turn(K, np.arange(12) - 3)
    assert np.allclose(turn(cached, back), wanted)
    for other in (
        partial(rotate, frequencies=frequencies(8)),  # another layout
        partial(rotate, layout="half"),  # the whole head
        partial(turn, frequencies=frequencies(8, base=5e5)),
    ):
        assert not np.allclose(other(cached, back), wanted)
    cached = turn(K, attention_factor=1.2)
    wanted = turn(K, np.arange(12) - 3, attention_factor=1.2)
    assert np.allclose(turn(cached, back), wanted)
    assert not np.allclose(turn(cached, back, attention_factor=1.2), wanted)


def test_a_shifted_cache_is_not_a_shorter_text(page):
    """in every layer after the first, the kept keys were computed from tokens that had already read the
    dropped ones

    Reading the shortened text from the start gives different keys.
    """
    layer = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 16, 2, rotate=rotate
    )
    kept = np.r_[:2, 5:12]
    whole = layer(Q, Q, Q, causal=True)[kept]  # what the next layer makes keys of
    shorter = layer(Q[kept], Q[kept], Q[kept], causal=True)
    assert np.allclose(whole[:2], shorter[:2])
    assert abs(whole[2:] - shorter[2:]).max(-1).min() > 1e-3


def test_a_scale_and_a_quarter_turn(page):
    """Take the pair $(3, 4)$ with the scales 1 and 2, and a quarter turn, which sends $(x, y)$ to
    $(-y, x)$. Scale first, and you get $(3, 8)$ and then $(-8, 3)$. Rotate first, and you get $(-4, 3)$
    and then $(-4, 6)$. With the same scale for both entries of a pair there would be no difference.
    """
    turn = np.array([[0, -1], [1, 0]])
    pair, scales = np.array([3, 4]), np.array([1, 2])
    one = {"positions": np.array([1]), "frequencies": np.array([np.pi / 2])}
    assert np.allclose(rotate(pair[None] * 1.0, **one), turn @ pair)
    assert (scales * pair).tolist() == [3, 8]
    assert (turn @ (scales * pair)).tolist() == [-8, 3]
    assert (turn @ pair).tolist() == [-4, 3]
    assert (scales * (turn @ pair)).tolist() == [-4, 6]
    assert np.array_equal(turn @ (2 * pair), 2 * (turn @ pair))


def test_the_library_normalizes_first(page):
    """MultiHeadAttention(..., query_norm=..., key_norm=...) normalizes first"""
    scale = np.random.default_rng(1).uniform(0.5, 2, size=8)
    layer = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 16, 2, rotate=rotate, query_norm=lambda x: scale * x
    )
    plain = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 16, 2, rotate=lambda x, p: rotate(scale * x, p)
    )
    key_too = reference.MultiHeadAttention.init(
        np.random.default_rng(0),
        16,
        2,
        rotate=rotate,
        query_norm=lambda x: scale * x,
        key_norm=lambda x: scale * x,
    )
    assert np.allclose(key_too(Q, Q, Q), plain(Q, Q, Q))
    assert not np.allclose(layer(Q, Q, Q), plain(Q, Q, Q))


def test_eq_turned_values(page):
    r"""$$ \mathbf{R}_i^\top \sum_j \alpha_{ij}\,\mathbf{R}_j\,\mathbf{v}_j = \sum_j \alpha_{ij}\,\mathbf{R}_{j-i}\,\mathbf{v}_j . $$"""
    weights = reference.attention_weights(rotate(Q), rotate(K))
    left = rotate(weights @ rotate(V), -np.arange(12))
    right = [
        sum(weights[i, j] * rotate(V[j : j + 1], np.array([j - i]))[0] for j in range(12))
        for i in range(12)
    ]
    assert np.allclose(left, right)


def test_turned_values(page):
    """Move the text, and the output changes, even if all weights stay the same.

    We can watch that by moving a text of 20 tokens by 1000 positions

    So rotating the values is a mistake only if nobody rotates the outputs back.

    In the second line the values are rotated, and some output moves by 1.55. In the third line each
    output is rotated back, and nothing moves again.
    """
    moved = [
        float(line.split()[-1])
        for line in page.printed.splitlines()
        if "outputs move" in line
    ]
    assert moved == [0, 1.55, 0]
    assert np.allclose(page.torch.moved_weights, page.torch.weights)
    assert len(page.torch.here) == 20
    assert page.torch.there[0] == 1000


def test_turned_values_say_where(page):
    """a value from two words back arrives at a different angle than the same value from nine words
    back
    """
    word = np.ones((1, 16))
    two, nine = (rotate(word, np.array([-offset])) for offset in (2, 9))
    assert abs(two - nine).max() > 0.5


def test_a_wrong_sign(page):
    """With the wrong sign, a score depends on the sum of the positions."""
    score = [
        (rotate(Q[:1], np.array([-i])) @ rotate(K[:1], np.array([j])).T).item()
        for i, j in ((7, 3), (8, 2), (107, 103))
    ]
    assert np.isclose(score[0], score[1])
    assert not np.isclose(score[0], score[2])


def test_one_full_turn(page):
    r"""Setting $2\pi\,b^{(d-2)/d} = 100000$ gives $b = (100000 / 2\pi)^{d/(d-2)}$."""
    assert np.isclose(2 * np.pi / frequencies(128, base=page.torch.base)[-1], 100000)


def test_a_norm_that_commutes(page):
    """It commutes with the rotation of a pair only if both entries of the pair have the same scale. A
    layer norm does not commute either, because a rotation changes the mean of the entries.

    for a layer norm the order matters even without a scale

    For an RMS norm or an L2 norm without a learned scale, either order will do. For anything else,
    follow the checkpoint.

    An RMS norm without a learned scale commutes with rotation, and a layer norm doesn't.
    """
    lines = [line for line in page.printed.splitlines() if "orders differ" in line]
    plain, entry, pair, layer = (float(line.split()[-1]) for line in lines)
    assert plain == pair == 0
    assert min(entry, layer) > 0.5

    def l2(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    def centered(x):
        x = x - x.mean(-1, keepdims=True)
        return x / x.std(-1, keepdims=True)

    assert np.allclose(l2(rotate(Q)), rotate(l2(Q)))
    assert not np.allclose(centered(rotate(Q)), rotate(centered(Q)), atol=0.5)


def test_probing_with_unit_vectors(page):
    r"""At position 1 the unit vector of entry $a$ becomes $\cos \omega$ at entry $a$ and $\sin \omega$ at its
    partner.

    An entry that is not rotated has no partner.
    """
    lines = [line for line in page.printed.splitlines() if "per position" in line]
    assert lines == [
        "entries 0 and 4 turn by 1.00 per position",
        "entries 1 and 5 turn by 0.10 per position",
    ]


def test_a_scale_moves_along(page):
    """The scale belongs to entries, and the entries have moved, so it moves along."""
    lines = [line for line in page.printed.splitlines() if "scores off" in line]
    converted, as_it_was = (float(line.split()[-1]) for line in lines)
    assert converted == 0 < 0.5 < as_it_was
