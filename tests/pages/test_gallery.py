"""A gallery of faults."""

import re

import numpy as np
import pytest

from posattn import reference
from posattn.conformance import check, gallery
from posattn.conformance.faults import FAULTS, angles, layouts, scaling
from posattn.reference import Window, frequencies, rotate


def printed(page, start):
    """The printed lines that begin so."""
    return [line for line in page.printed.splitlines() if line.startswith(start)]


def test_each_exhibit_says_four_things(page):
    """Then come the symptom, the cause, the fix and the thread."""
    exhibits = page.text.partition("## What they have in common")[0].split("\n### ")[1:]
    assert len(exhibits) == 19
    assert "Nineteen faults" in page.text
    for exhibit in exhibits:
        assert exhibit.count("```{code-cell}") == 1
        told = re.findall(r"^\*\*(\w+)\.\*\*", exhibit, re.M)
        assert told == ["Symptom", "Cause", "Fix", "Thread"], exhibit


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
    """it does what the thread describes, and the checker <conformance> knows it"""
    report = check(wrong, scheme, framework="numpy")
    assert report.causes


def test_threads_are_those_of_the_checker(page):
    """It is ours: it does what the thread describes"""
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


def test_the_lengths_change(page):
    """The lengths of vectors change, and a score no longer depends only on the offset.

    The two numbers of a pair turn by different angles, so it is no rotation.
    """
    y, at = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([1])
    turned = gallery.rotary_of_mixed_layouts(y, at)
    assert abs(np.linalg.norm(turned) - np.linalg.norm(y)) > 0.1
    wrong = gallery.rotary_of_mixed_layouts
    scores = [
        (wrong(y, np.array([p])) @ wrong(y[:, ::-1], np.array([p + 1])).T).item()
        for p in (1, 6)
    ]
    assert abs(scores[0] - scores[1]) > 0.1


def test_products_hide_the_order(page):
    """their products don't depend on the order of the entries

    test position 0, where a rotation must change nothing
    """
    q, k = np.random.default_rng(0).normal(size=(2, 5, 8))
    where, wrong = np.arange(5), gallery.rotary_back_in_halves
    assert np.allclose(wrong(q, where) @ wrong(k, where).T, rotate(q) @ rotate(k).T)
    assert not np.allclose(wrong(q, where) @ rotate(k).T, rotate(q) @ rotate(k).T)


def test_frequencies_start_at_1_and_fall(page):
    """The slowest pair turns by a thousand radians per word, so distant positions might as well be
    random.

    They start at 1 and fall.
    """
    speeds = frequencies(8)
    assert speeds[0] == 1
    assert (np.diff(speeds) < 0).all()
    wrong = angles.frequencies_inverted(np.array([1]), speeds, 10000.0)
    assert wrong.max() == pytest.approx(1000)


def test_two_meanings_of_a_part(page):
    """the first part of each head turns, as if it were a small head

    the pairs lie across the whole head, and the slow ones stand still
    """
    y, at = np.random.default_rng(0).normal(size=(2, 8)), np.array([3, 5])
    part = rotate(y, at, frequencies=frequencies(4), layout="half")
    assert np.allclose(part[:, :4], rotate(y[:, :4], at, layout="half"))
    assert np.array_equal(part[:, 4:], y[:, 4:])
    whole = layouts.across_the_whole_head(y, at, rotary_dim=4, layout="half")
    still = np.array([2, 3, 6, 7])
    assert np.allclose(whole[:, still], y[:, still])
    assert not np.isclose(whole[:, [0, 1, 4, 5]], y[:, [0, 1, 4, 5]]).all()


def test_coarse_angles(page):
    """in bfloat16 fine up to 256

    the error grows with the position and has no sharp beginning
    """
    exact = frequencies(128)
    off = [
        abs(angles.frequencies_in_bfloat16(np.array([n]), exact, 1e4) - n * exact).max()
        for n in (1, 16, 256, 4096)
    ]
    assert np.allclose(np.diff(np.log(off)), np.log(16))
    assert "off by up to 5.0 radians\n" in page.printed
    near = "position 256\n  right: [-0.04 -1.00]\n  wrong: [-0.04 -1.00]\n"
    assert near in page.printed


def test_the_fourth_power(page):
    """So queries and keys got it squared, and the scores its fourth power."""
    factor = reference.yarn(64, factor=128.0, trained_length=8192)[1]
    assert f"right: {factor:.4f}\nwrong: {factor**2:.4f}\n" in page.printed
    q, k = np.random.default_rng(0).normal(size=(2, 4, 8))
    plain, squared = (
        rotate(q, attention_factor=f) @ rotate(k, attention_factor=f).T
        for f in (1.0, factor**2)
    )
    assert np.allclose(squared, factor**4 * plain)


def test_a_mask_of_one_query(page):
    """A causal mask that starts in the top left corner says that it's the first, so it sees one key."""
    assert "right: 2.00, the mean of 0 to 4\n" in page.printed
    assert "wrong: 0.00, the first value only\n" in page.printed


def test_rows_that_see_nothing(page):
    """The softmax of nothing but minus infinities is $0/0$, which is NaN.

    all scores are equal, and the weights are too

    A hidden key has the weight 0, and 0 times NaN is NaN.
    """
    assert "right: 0.0, wrong: nan, also wrong: 2.0\n" in page.printed
    assert "right: 1.5, wrong: nan\n" in page.printed
    assert np.isnan(0 * np.nan)


def test_windows(page):
    """a configuration counts the query too"""
    assert printed(page, "right: [6 7 8 9]")
    assert printed(page, "wrong: [5 6 7 8 9]")
    assert Window(4)(np.array([9]), np.arange(10)).sum() == 4


def test_what_one_short_text_finds(page):
    """Suppose you compare with an original on one short text, in one call, with 8 heads and a fresh object.
    That finds the wrong layouts. It finds no stale cache and no missing reset, no slopes for 12 heads, and no
    mask that is wrong only in decoding.

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


def test_slopes_of_twelve_heads(page):
    """Four, but each belongs to a different head. The formula gives $2^{-2h/3}$, and every
    third of these exponents is a whole number. The rule has these slopes too, but for its own heads 2, 4,
    6 and 8.
    """
    formula, rule = gallery.alibi_by_the_formula(12), reference.alibi_slopes(12)
    assert np.allclose(formula, 2.0 ** (-2 * np.arange(1, 13) / 3))
    shared = [(h, np.flatnonzero(np.isclose(rule, s))) for h, s in enumerate(formula)]
    found = {h + 1: at[0] + 1 for h, at in shared if at.size}
    assert found == {3: 2, 6: 4, 9: 6, 12: 8}
    told = {int(line.split()[1]): int(line.split()[-1]) for line in printed(page, "head ")}
    assert told == found


def test_three_caches(page):
    """The first: two calls with other positions. The second: two calls with other bases. The third: two
    calls of equal length that begin at the same position but go on differently, as packed texts do.
    """
    found = [line.split()[-1] for line in page.printed.splitlines()[-11:]]
    assert [found[k : k + 3] for k in (0, 4, 8)] == [
        ["False", "True", "False"],
        ["True", "False", "True"],
        ["True", "True", "False"],
    ]
