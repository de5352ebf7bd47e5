"""A gallery of faults."""

import re

import numpy as np
import pytest

from posattn import reference
from posattn.conformance import gallery
from posattn.conformance.faults import FAULTS, angles, scaling
from posattn.reference import Window, frequencies, rotate

WHERE = np.arange(6)
Q, K = np.random.default_rng(0).normal(size=(2, 6, 8))


def scores(rope, at=WHERE, **settings):
    """The scores of queries and keys that a function rotates."""
    return rope(Q, at, **settings) @ rope(K, at, **settings).T


def test_nineteen_exhibits_have_symptom_cause_fix_and_thread(page):
    start, *exhibits = page.text.partition("## What they have")[0].split("\n### ")
    assert len(exhibits) == 19
    for exhibit in exhibits:
        told = re.findall(r"^\*\*(\w+)\.\*\*", exhibit, re.MULTILINE)
        assert told == ["Symptom", "Cause", "Fix", "Thread"]
        assert exhibit.partition("\n## ")[0].count("```{code-cell}") == 1
    labels = set(re.findall(r"^\((gallery_\w+)\)=\n### ", page.text, re.MULTILINE))
    assert labels == set(re.findall(r"\{ref\}`(gallery_\w+)`", start))


def test_threads_are_those_of_the_checker(page):
    known = " ".join(fault.seen for fault in FAULTS)
    links = re.findall(r"\[[\w.-]+/[\w.-]+ #(\d+)\]\(https://github\.com/", page.text)
    assert len(links) > 20
    assert {number for number in links if f"#{number}" not in known} == {"33558"}


def test_rotations_by_hand():
    mixed = gallery.rotary_of_mixed_layouts(np.array([[1.0, 2, 3, 4]]), np.array([1]))
    assert np.allclose(mixed[0, [0, 2]], [-1.98, 3.01], atol=0.005)
    assert np.hypot(*mixed[0, [0, 2]]) == pytest.approx(3.60, abs=0.005)
    inverted = angles.frequencies_inverted(np.array([1]), frequencies(8), 1e4)
    assert np.max(inverted) / (2 * np.pi) == pytest.approx(159, abs=0.5)
    assert round(10000 ** (-2 / 6), 3) == 0.046
    assert np.allclose([np.cos(0.5), np.sin(0.5)], [0.88, 0.48], atol=0.005)


def test_coarse_numbers_by_hand():
    whole = np.arange(513)
    kept = gallery.to_bfloat16(whole)
    assert np.array_equal(kept[:257], whole[:257])
    assert np.all(kept[257:] % 2 == 0)
    assert kept[512] == 512
    frequency = frequencies(32)[1]
    assert 1857 * frequency == pytest.approx(1044.27, abs=0.005)
    assert np.float16(1857) * np.float16(frequency) == 1045


def test_factors_of_extensions_by_hand():
    assert 1 + 4 * (16000 / 2048 - 1) == 28.25
    numbers = {"factor": 4.0, "trained_length": 2048}
    short, long = (reference.dynamic_ntk(128, length=n, **numbers) for n in (1000, 16000))
    assert short[-1] / long[-1] == pytest.approx(28.25)
    assert 0.1 * np.log(32) + 1 == pytest.approx(1.3466, abs=5e-5)
    assert round((1.4667 / 1.3466) ** 2, 2) == 1.19
    factor = reference.yarn(64, factor=128.0, trained_length=8192)[1]
    assert factor == pytest.approx(1.4852, abs=5e-5)
    assert (factor**4, factor**2) == pytest.approx((4.87, 2.21), abs=0.005)


def test_either_layout_is_a_rotation_and_a_mixture_is_not():
    for rope in (rotate, gallery.rotary_by_halves):
        assert np.allclose(scores(rope), scores(rope, WHERE + 50))
    mixed = gallery.rotary_of_mixed_layouts
    assert not np.allclose(scores(mixed), scores(mixed, WHERE + 50), atol=0.1)


def test_an_order_of_its_own_cancels_in_scores():
    wrong = gallery.rotary_back_in_halves
    assert np.allclose(scores(wrong), scores(rotate))
    assert not np.allclose(wrong(Q, WHERE) @ rotate(K).T, scores(rotate))


def test_one_short_text_finds_some_faults_only():
    for wrong in (gallery.rotary_by_halves, gallery.rotary_of_mixed_layouts):
        assert not np.allclose(scores(wrong), scores(rotate))
    for wrong in (
        gallery.CacheByLength(),
        gallery.CacheByWidth(),
        gallery.rotary_from_zero,
    ):
        assert np.allclose(scores(wrong), scores(rotate))
    numbers = {"factor": 4.0, "trained_length": 2048, "length": 6}
    slower = scaling.NeverReset()(8, **numbers)
    assert np.allclose(slower, reference.dynamic_ntk(8, **numbers))
    assert np.allclose(gallery.alibi_by_the_formula(8), reference.alibi_slopes(8))
    whole = reference.scaled_dot_product_attention(Q, K, K, causal=True)
    assert np.allclose(gallery.attention_from_the_start(Q, K, K, causal=True), whole)


def test_errors_of_coarse_frequencies_grow_with_the_position():
    exact = frequencies(128)
    off = [
        abs(n * gallery.to_bfloat16(exact) - n * exact).max() for n in (1, 16, 256, 4096)
    ]
    assert np.allclose(np.divide(off[1:], off[:-1]), 16)
    assert max(abs(gallery.to_bfloat16(exact) / exact - 1)) < 0.004


def test_the_past_of_a_flipped_decoder_shares_a_bucket():
    past = -np.arange(300)
    assert not gallery.t5_of_the_query(past, bidirectional=False).any()
    assert reference.t5_bucket(past, bidirectional=False).max() == 31
    assert reference.t5_bucket(np.array([-1, 1])).tolist() == [1, 17]


def test_windows_differ_in_longer_texts_only():
    for n, more in ((4, 0), (5, 2), (6, 4)):
        right, wrong = (Window(size)(WHERE[:n], WHERE[:n]) for size in (4, 5))
        assert wrong.sum() == right.sum() + more
