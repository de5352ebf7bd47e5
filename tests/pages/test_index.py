"""The first page."""

import numpy as np

from posattn import reference
from posattn.schemes import SCHEMES
from tests.pages.reading import DOCS

WORDS, OTHER = ["the", "dog", "bites", "the", "man"], [0, 4, 2, 3, 1]


def test_only_positions_tell_two_orders_apart(page):
    assert [page.torch.words, page.torch.other] == [WORDS, OTHER]
    before, moved = page.torch.outputs["without positions"]
    assert np.allclose(before[OTHER], moved)
    before, after = page.torch.outputs["with positions"]
    pairs = [(i, j) for i in range(5) for j in range(5) if WORDS[i] == WORDS[OTHER[j]]]
    assert not any(np.allclose(before[i], after[j]) for i, j in pairs)


def test_the_encoding_tells_equal_tokens_apart():
    tokens = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    for x, equal in ((tokens, True), (reference.PositionalEncoding(2)(tokens), False)):
        first, _, last = reference.scaled_dot_product_attention(x, x, x)
        assert np.allclose(first, last, atol=0.01) == equal


def test_most_schemes_act_on_queries_keys_or_scores():
    acts = [make(4).place in {"query and key", "scores"} for make in SCHEMES.values()]
    assert sum(acts) > len(acts) / 2


def test_rotation_keeps_the_angles(page):
    here, there = page.torch.rotated
    assert np.allclose(here, [(np.cos(p), np.sin(p)) for p in (2, 0, 3)])
    assert abs(there - here).max(-1).min() > 0.5
    assert np.allclose(here @ here.T, there @ there.T)


def test_slow_pairs_never_finish_a_turn(page):
    for base, first in ((10000, 50), (500000, 35)):
        turns = page.torch.turns[f"base {base}"]
        assert np.allclose(turns, 8192 * base ** (-np.arange(64) / 64) / (2 * np.pi))
        assert turns[0] > 1000
        assert (turns < 1).argmax() == first


def test_each_chapter_has_a_card(page):
    for chapter in DOCS.glob("[abfpst]*/*.md"):
        if chapter.parent.name in ("slides", "api"):
            continue
        name = chapter.relative_to(DOCS).with_suffix("")
        assert f"\n{{doc}}`/{name}`\n: " in page.text
