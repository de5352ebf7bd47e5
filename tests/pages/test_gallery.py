"""A gallery of faults."""

import math
import re

import numpy as np
import pytest

from posattn import reference
from posattn.conformance import check, gallery
from posattn.conformance.faults import FAULTS, angles, layouts, masks, scaling
from posattn.reference import Window, frequencies, rotate


def printed(page, start):
    """The printed lines that begin so."""
    return [line for line in page.printed.splitlines() if line.startswith(start)]


def test_each_exhibit_says_four_things(page):
    """There are nineteen exhibits, and each is a puzzle of a few lines.

    After the cause come the fix and the thread in which the fault was found. One exhibit has no
    thread, because we found that fault in the code of a library.

    Where it is short, it is shown between the symptom and the cause.
    """
    exhibits = page.text.partition("## What they have in common")[0].split("\n### ")[1:]
    assert len(exhibits) == 19
    assert "Nineteen faults" in page.text
    for exhibit in exhibits:
        assert exhibit.count("```{code-cell}") == 1
        told = re.findall(r"^\*\*(\w+)\.\*\*", exhibit, re.M)
        assert told == ["Symptom", "Cause", "Fix", "Thread"], exhibit
        before, _, after = exhibit.partition("**Symptom.**")
        assert "literalinclude" not in before + after.partition("**Cause.**")[2]
    without = [
        exhibit for exhibit in exhibits if "**Thread.** None that we know of." in exhibit
    ]
    assert len(without) == 1
    assert "https://github.com/patrick-kidger/equinox" in without[0]


def test_the_table_names_every_exhibit(page):
    """Every exhibit is in this table at least once."""
    before, _, rest = page.text.partition("## Rotated the wrong way")
    named = set(re.findall(r"\{ref\}`(gallery_\w+)`", before))
    labels = re.findall(r"^\((gallery_\w+)\)=\n### ", rest, re.M)
    assert len(labels) == 19
    assert named == set(labels)


@pytest.mark.parametrize(
    ("wrong", "scheme"),
    [
        (gallery.rotary_by_halves, "rotary"),
        (gallery.rotary_of_mixed_layouts, "rotary"),
        (gallery.rotary_back_in_halves, "rotary"),
        (gallery.rotary_from_zero, "rotary"),
        (gallery.CacheByLength(), "rotary"),
        (gallery.CacheByWidth(), "rotary"),
        (gallery.rotary_in_bfloat16, "rotary"),
        (gallery.alibi_by_the_formula, "alibi_slopes"),
        (gallery.t5_of_the_query, "t5_bucket"),
        (gallery.attention_from_the_start, "attention"),
        (gallery.attention_of_nan, "attention"),
        (gallery.attention_of_the_mean, "attention"),
    ],
)
def test_the_checker_knows_it(wrong, scheme):
    """it does what the thread describes, and the checker <conformance> is tested against it."""
    report = check(wrong, scheme, framework="numpy")
    assert report.causes


def test_threads_are_those_of_the_checker(page):
    """The wrong code is our own: it does what the thread describes"""
    known = " ".join(fault.seen for fault in FAULTS)
    links = re.findall(
        r"\[([\w.-]+/[\w.-]+ #\d+)\]\(https://github\.com/(\S+)\)", page.text
    )
    named = {
        name
        for name, address in links
        if name.split(" #") == [*address.rsplit("/", 2)[::2]]
    }
    assert len(named) == len(set(links)) == 23
    others = {
        name for name in named if name not in known and name.split("#")[1] not in known
    }
    assert others == {"sgl-project/sglang #33558"}


def test_two_pairs_of_a_head_of_four(page):
    r"""From one position to the next the first pair rotates by 1 radian and the second by
    $10000^{-2/4} = 0.01$.

    Both results hold $\cos 1 = 0.54$ and $\sin 1 = 0.84$, so the angle is right in both.
    """
    assert np.allclose(frequencies(4), [1, 0.01])
    cos, sin = np.cos(1), np.sin(1)
    assert (f"{cos:.2f}", f"{sin:.2f}") == ("0.54", "0.84")
    x, at = np.array([[1.0, 0, 0, 0]]), np.array([1])
    assert np.allclose(rotate(x, at), [[cos, sin, 0, 0]])
    assert np.allclose(gallery.rotary_by_halves(x, at), [[cos, 0, sin, 0]])


def test_either_layout_is_rotary(page):
    """The first token attends only to itself, with weight 1, and no rotation changes that, so a
    one-token prompt comes out right.

    Either function is a perfectly good rotary embedding, whose scores depend only on the offset
    between query and key.
    """
    q, k = np.random.default_rng(0).normal(size=(2, 3, 8))
    halves, near, far = gallery.rotary_by_halves, np.arange(3), np.arange(3) + 50
    assert np.allclose(halves(q[:1], near[:1]), rotate(q[:1], near[:1]))
    for rope in (halves, rotate):
        assert np.allclose(rope(q, near) @ rope(k, near).T, rope(q, far) @ rope(k, far).T)
    assert not np.allclose(halves(q, near) @ halves(k, near).T, rotate(q) @ rotate(k).T)


def test_the_lengths_change(page):
    r"""the lengths of vectors change, and a score no longer depends only on the offset.

    so the two entries of a pair are rotated by different angles. Here entries 0 and 2 hold 1
    and 3, and become $1 \cos 1 - 3 \sin 1 = -1.98$ and $3 \cos 0.01 + 1 \sin 0.01 = 3.01$.
    Their length was $\sqrt{1^2 + 3^2} = 3.16$, and now it is $\sqrt{1.98^2 + 3.01^2} = 3.60$.
    """
    one = gallery.rotary_of_mixed_layouts(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([1]))
    by_hand = [np.cos(1) - 3 * np.sin(1), 3 * np.cos(0.01) + np.sin(0.01)]
    assert np.allclose(one[0, [0, 2]], by_hand)
    assert [f"{number:.2f}" for number in by_hand] == ["-1.98", "3.01"]
    assert (f"{10**0.5:.2f}", f"{np.hypot(*by_hand):.2f}") == ("3.16", "3.60")
    assert "length before: 5.48\nright: 5.48\nwrong: 5.86\n" in page.printed
    y, at = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([1])
    rotated = gallery.rotary_of_mixed_layouts(y, at)
    assert abs(np.linalg.norm(rotated) - np.linalg.norm(y)) > 0.1
    wrong = gallery.rotary_of_mixed_layouts
    scores = [
        (wrong(y, np.array([p])) @ wrong(y[:, ::-1], np.array([p + 1])).T).item()
        for p in (1, 6)
    ]
    assert abs(scores[0] - scores[1]) > 0.1


def test_products_hide_the_order(page):
    """None, as long as queries and keys both come from this function, because a dot product
    doesn't depend on the order of the entries if both vectors have the same order. The fault
    shows as soon as one of them comes from another kernel.

    test position 0, where a rotation must change nothing
    """
    q, k = np.random.default_rng(0).normal(size=(2, 5, 8))
    where, wrong = np.arange(5), gallery.rotary_back_in_halves
    assert np.allclose(wrong(q, where) @ wrong(k, where).T, rotate(q) @ rotate(k).T)
    assert not np.allclose(wrong(q, where) @ rotate(k).T, rotate(q) @ rotate(k).T)


def test_frequencies_start_at_1_and_fall(page):
    r"""The right frequencies start at 1 and fall to 0.001, while the wrong ones start at 1 and
    rise to 1000. Each is the reciprocal of the one that it should be.

    The pair that should be the slowest now makes $1000 / 2\pi \approx 159$ turns per token

    Print the angles at position 1, as the kernel computes them: they must start at 1 and fall.
    """
    speeds = frequencies(8)
    assert (
        f"right: {np.array2string(speeds, precision=3, floatmode='fixed')}" in page.printed
    )
    inverted = angles.frequencies_inverted(np.array([7]), speeds, 10000.0)[0]
    assert np.allclose(inverted, 7 / speeds)
    assert f"{1000 / (2 * np.pi):.0f}" == "159"
    assert speeds[0] == 1
    assert (np.diff(speeds) < 0).all()
    wrong = angles.frequencies_inverted(np.array([1]), speeds, 10000.0)
    assert wrong.max() == pytest.approx(1000)


def test_two_meanings_of_a_part(page):
    """In most models the first part of each head is rotated, as if it were a small head of its
    own. In Gemma 4's global layers the pairs lie across the whole head, and the slow pairs
    aren't rotated at all. The frequencies differ, too: the second pair has $10000^{-2/4} =
    0.01$ in the first case and $10000^{-2/6} = 0.046$ in the second. At position 1 the cell already
    shows different partners

    In the first line the partner is entry 2, which is half of the *rotated part* away. In the
    second it is entry 3, half of the *head* away.
    """
    assert "first part:  [0.54 0.00 0.84 0.00 0.00 0.00]\n" in page.printed
    assert "whole head:  [0.54 0.00 0.00 0.84 0.00 0.00]\n" in page.printed
    one = np.array([[0, 1.0, 0, 0, 0, 0]])  # in the second pair of both
    for convention, speed in (
        (lambda x, at: rotate(x, at, frequencies=frequencies(4), layout="half"), 0.01),
        (
            lambda x, at: layouts.across_the_whole_head(x, at, rotary_dim=4, layout="half"),
            0.046,
        ),
    ):
        assert convention(one, np.array([1]))[0, 1] == pytest.approx(
            np.cos(speed), abs=1e-4
        )
        assert np.array_equal(convention(one, np.array([0])), one)
    y, at = np.random.default_rng(0).normal(size=(2, 8)), np.array([3, 5])
    part = rotate(y, at, frequencies=frequencies(4), layout="half")
    assert np.allclose(part[:, :4], rotate(y[:, :4], at, layout="half"))
    assert np.array_equal(part[:, 4:], y[:, 4:])
    whole = layouts.across_the_whole_head(y, at, rotary_dim=4, layout="half")
    still = np.array([2, 3, 6, 7])
    assert np.allclose(whole[:, still], y[:, still])
    assert not np.isclose(whole[:, [0, 1, 4, 5]], y[:, [0, 1, 4, 5]]).all()


def test_counted_from_zero(page):
    r"""A prompt that is read in one call is fine, because there it is right to count from 0.
    Decoding isn't: each new token is a call of its own, so every one of them is rotated to
    position 0.

    as long as queries and keys are moved by the same number of positions, no score changes.

    The right result has $\cos 5 = 0.28$ and $\sin 5 = -0.96$.
    """
    assert (f"{np.cos(5):.2f}", f"{np.sin(5):.2f}") == ("0.28", "-0.96")
    q, k = np.random.default_rng(0).normal(size=(2, 6, 8))
    wrong, where = gallery.rotary_from_zero, np.arange(6)
    assert np.allclose(wrong(q, where), rotate(q))
    for n in range(1, 6):  # the new token of a later call
        assert np.allclose(wrong(q[n:][:1], where[n:][:1]), q[n])
        assert not np.allclose(rotate(q[n:][:1], where[n:][:1]), q[n])
    padded_q, padded_k = (np.concatenate([np.ones((3, 8)), x]) for x in (q, k))
    counted = wrong(padded_q) @ wrong(padded_k).T
    assert np.allclose(counted[3:, 3:], rotate(q) @ rotate(k).T)


def test_caches_remember(page):
    r"""if you leave out the earlier call, the result is right

    With base 10000 the second pair rotates by 0.01 radians per token, so at position 5 it
    should have reached $\cos 0.05 = 1.00$ and $\sin 0.05 = 0.05$. It is at $\cos 0.5 = 0.88$
    and $\sin 0.5 = 0.48$ instead, ten times as far, which is right for base 100.
    """
    x, y, later = np.eye(4)[:1], np.eye(4)[2:3], np.array([5])
    assert np.allclose(gallery.CacheByLength()(x, later), rotate(x, later))
    assert np.allclose(rotate(y, later), [[0, 0, np.cos(0.05), np.sin(0.05)]])
    rope = gallery.CacheByWidth()
    rope(y, later, base=100.0)
    assert np.allclose(rope(y, later), [[0, 0, np.cos(0.5), np.sin(0.5)]])
    assert np.allclose(rope(y, later), rotate(y, later, base=100.0))
    assert "right: [0.00 0.00 1.00 0.05]\nwrong: [0.00 0.00 0.88 0.48]\n" in page.printed


def test_coarse_angles(page):
    """In bfloat16 this pair is exact up to position 256. From there to 512, each odd position has the same
    angle as an even neighbor, and farther out whole groups of positions share theirs.

    They hold every whole number up to $2^8 = 256$ and from there to 512 only the even ones, so
    257 is rounded to 256.

    where an angle of 1044.27 radians became 1045 in float16

    Yet no number was rounded by more than 0.4 percent.

    The second one should be 0.8660 and became 0.8672, which is 0.0012 too much.

    the error grows with the position and has no sharp beginning
    """
    whole = np.arange(1001)
    kept = gallery.to_bfloat16(whole)
    assert np.array_equal(kept[:257], whole[:257])
    assert np.array_equal(kept[256:513:2], whole[256:513:2])
    assert not (kept[257:] % 2).any()
    coarse = np.float16(1857) * np.float16(10000 ** (-2 / 32))
    assert (f"{1857 * 10000 ** (-2 / 32):.2f}", f"{coarse:.0f}") == ("1044.27", "1045")
    speeds = frequencies(128)
    rounded = gallery.to_bfloat16(speeds)
    assert 0.003 < (abs(rounded - speeds) / speeds).max() < 0.004
    assert abs(rounded - speeds).argmax() == 1
    assert f"{rounded[1] - speeds[1]:.4f}" == "0.0012"
    exact = frequencies(128)
    off = [
        abs(angles.frequencies_in_bfloat16(np.array([n]), exact, 1e4) - n * exact).max()
        for n in (1, 16, 256, 4096)
    ]
    assert np.allclose(np.diff(np.log(off)), np.log(16))
    assert "off by up to 5.0 radians\n" in page.printed
    near = "position 256\n  right: [-0.04 -1.00]\n  wrong: [-0.04 -1.00]\n"
    assert near in page.printed


def test_it_does_not_reset(page):
    r"""The second is smaller by a factor of $1 + 4\,(16000 / 2048 - 1) = 28.25$, which is how
    much a text of 16000 tokens slows this pair down.
    """
    numbers = {"factor": 4.0, "trained_length": 2048}
    short, long = (reference.dynamic_ntk(128, length=n, **numbers) for n in (1000, 16000))
    assert np.allclose(short, frequencies(128))
    assert short[-1] / long[-1] == pytest.approx(28.25)
    assert 1 + 4 * (16000 / 2048 - 1) == 28.25
    assert (
        f"at first:  {short[-1]:.6f}\nafter a long text:       {long[-1]:.6f}"
        in page.printed
    )


def test_the_logarithm_twice(page):
    r"""The right factor is $0.1 \ln 32 + 1 = 1.3466$.

    So the scores are $(1.4667 / 1.3466)^2 = 1.19$ times as large as they should be.

    from that it computed a factor once more: $0.1 \cdot 1.3466 \cdot \ln 32 + 1 = 1.4667$
    """
    right = 0.1 * np.log(32) + 1
    wrong = 0.1 * right * np.log(32) + 1
    assert f"right: {right:.4f}\nwrong: {wrong:.4f}\n" in page.printed
    assert (f"{right:.4f}", f"{wrong:.4f}") == ("1.3466", "1.4667")
    assert f"{(wrong / right) ** 2:.2f}" == "1.19"


def test_the_fourth_power(page):
    r"""The right factor is $0.1 \ln 128 + 1 = 1.4852$.

    The wrong factor is the square of the right one.

    So queries and keys got it squared, and the scores its fourth power, $1.4852^4 = 4.87$
    instead of $1.4852^2 = 2.21$.
    """
    assert f"{0.1 * np.log(128) + 1:.4f}" == "1.4852"
    assert (f"{1.4852**4:.2f}", f"{1.4852**2:.2f}") == ("4.87", "2.21")
    factor = reference.yarn(64, factor=128.0, trained_length=8192)[1]
    assert f"right: {factor:.4f}\nwrong: {factor**2:.4f}\n" in page.printed
    q, k = np.random.default_rng(0).normal(size=(2, 4, 8))
    plain, squared = (
        rotate(q, attention_factor=f) @ rotate(k, attention_factor=f).T
        for f in (1.0, factor**2)
    )
    assert np.allclose(squared, factor**4 * plain)


def test_a_mask_of_one_query(page):
    """Training and prompts are fine, because there are as many queries as keys.

    A causal mask that starts in the top left corner, such as `np.tri(1, 5)`, takes it for the
    first, and then four of the keys are its future.
    """
    assert np.tri(1, 5).sum() == 1
    assert "right: 2.00, the mean of 0 to 4\n" in page.printed
    assert "wrong: 0.00, the first value only\n" in page.printed


def test_rows_that_see_nothing(page):
    """If all scores of a row are minus infinity, so is the largest, and the softmax, which first subtracts the
    largest, computes $-\\infty - (-\\infty)$, which is NaN. The second uses a large negative number instead, here $-10^{30}$, and then all scores are equal and so are the
    weights.

    The right result, 1.5, is the mean of 0, 1, 2 and 3.

    It gives the hidden key the weight 0, but then the code multiplies all weights and all
    values, `weights @ values`, and 0 times NaN is NaN.
    """
    assert "right: 0.0, wrong: nan, also wrong: 2.0\n" in page.printed
    assert "right: 1.5, wrong: nan\n" in page.printed
    assert np.isnan(0 * np.nan)
    assert np.isnan(-math.inf - -math.inf)
    values, weights = np.array([0, 1, 2, 3, np.nan]), np.array([1, 1, 1, 1, 0]) / 4
    assert np.isnan(weights @ values)
    assert weights[:4] @ values[:4] == 1.5


def test_windows(page):
    """a configuration counts the query among the keys of its window, and FlashAttention's
    `window_size` counts the keys to the *left* of the query.

    No error, no difference in texts that fit into the window
    """
    keys = np.arange(10)

    def sized(*where, window):
        return Window(window)(*where)

    (wide,) = masks.window_one_too_large(sized, np.array([9]), keys, window=4)
    assert np.array_equal(keys[wide], [5, 6, 7, 8, 9])
    assert np.array_equal(Window(4)(keys[:4], keys[:4]), Window(5)(keys[:4], keys[:4]))
    assert printed(page, "right: [6 7 8 9]")
    assert printed(page, "wrong: [5 6 7 8 9]")
    assert Window(4)(np.array([9]), np.arange(10)).sum() == 4


def test_what_one_short_text_finds(page):
    """Suppose you compare with an original on one short text, in one call, with 8 heads and a
    fresh object. That finds the wrong layouts, the inverted frequencies and the flipped buckets. It
    finds no stale cache and no missing reset, no
    slopes for 12 heads, and no mask that is wrong only in decoding.

    A test that makes a new object each time never fails.
    """
    y = np.random.default_rng(0).normal(size=(5, 8))
    where = np.arange(5)
    for wrong in (gallery.rotary_by_halves, gallery.rotary_of_mixed_layouts):
        assert not np.allclose(wrong(y, where), rotate(y))
    for wrong in (
        gallery.CacheByLength(),
        gallery.CacheByWidth(),
        gallery.rotary_from_zero,
    ):
        assert np.allclose(wrong(y, where), rotate(y))
    numbers = {"factor": 4.0, "trained_length": 2048, "length": 5}
    right = reference.dynamic_ntk(8, **numbers)
    assert np.allclose(scaling.NeverReset()(8, **numbers), right)
    assert np.allclose(gallery.alibi_by_the_formula(8), reference.alibi_slopes(8))
    whole = reference.scaled_dot_product_attention(y, y, y, causal=True)
    assert np.allclose(gallery.attention_from_the_start(y, y, y, causal=True), whole)


def test_position_0_finds_one(page):
    """Only the one that concatenates what it should interleave. At position 0 all angles are 0"""
    failing = [line for line in page.printed.splitlines() if line.endswith(": fails")]
    assert failing == ["back_in_halves: fails"]


def test_slopes_of_the_authors(page):
    """The wrong ones begin with $2^{-8/12} = 0.63$ and fall more slowly.

    for 12 heads, the 8 slopes of 8 heads and 4 of the 16 slopes of 16 heads

    each is half of the one before, just as in a model with 8 heads
    """
    rule, formula = reference.alibi_slopes, gallery.alibi_by_the_formula(12)
    assert np.allclose(rule(12), [*rule(8), *rule(16)[0:8:2]])
    assert np.allclose(rule(8)[1:] / rule(8)[:-1], 1 / 2)
    assert f"{formula[0]:.2f}" == f"{2 ** (-8 / 12):.2f}" == "0.63"
    assert formula[1] / formula[0] > 1 / 2


def test_buckets_of_the_past(page):
    """The key one place before should be in bucket 1, and the key one place after in bucket $16
    + 1 = 17$. The wrong row is the right one read backwards.

    there all buckets are for the past, and a key in the future counts as distance 0, so with
    the sign flipped the whole past ends up in bucket 0.
    """
    assert reference.t5_bucket(np.array([-1, 1])).tolist() == [1, 17]
    assert "right: [ 3  1  0 17 19]\nwrong: [19 17  0  1  3]\n" in page.printed
    past = -np.arange(300)
    assert not gallery.t5_of_the_query(past, bidirectional=False).any()
    assert reference.t5_bucket(past, bidirectional=False).max() == 31
    assert not reference.t5_bucket(-past, bidirectional=False).any()


def test_slopes_of_twelve_heads(page):
    """No head gets its own slope, but four of the right values turn up. The formula gives $2^{-2h/3}$,
    and every
    third of these exponents is a whole number. The rule has these slopes, too, but for its own
    heads 2, 4, 6 and 8.
    """
    formula, rule = gallery.alibi_by_the_formula(12), reference.alibi_slopes(12)
    assert np.allclose(formula, 2.0 ** (-2 * np.arange(1, 13) / 3))
    shared = [(h, np.flatnonzero(np.isclose(rule, s))) for h, s in enumerate(formula)]
    found = {h + 1: at[0] + 1 for h, at in shared if at.size}
    assert found == {3: 2, 6: 4, 9: 6, 12: 8}
    told = {int(line.split()[1]): int(line.split()[-1]) for line in printed(page, "head ")}
    assert told == found


def test_three_caches(page):
    """The first: two calls with the same number of tokens at different positions.
    The second: two calls with different bases.
    The third: two calls with the same number of tokens that begin at the same position but go
    on differently, as packed texts do.
    """
    found = [line.split()[-1] for line in page.printed.splitlines()[-11:]]
    assert [found[k : k + 3] for k in (0, 4, 8)] == [
        ["False", "True", "False"],
        ["True", "False", "True"],
        ["True", "True", "False"],
    ]
