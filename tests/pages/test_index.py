"""The first page."""

import numpy as np

from posattn import reference
from posattn.schemes import SCHEMES
from tests.pages.reading import DOCS

WORDS, OTHER = ["the", "dog", "bites", "the", "man"], [0, 4, 2, 3, 1]
TOKENS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])


def test_the_words_are_the_same(page):
    """The dog bites the man; the man bites the dog.

    The words are the same, and what happened is not.

    The same five words in two orders
    """
    assert (page.torch.words, page.torch.other) == (WORDS, OTHER)
    there = [WORDS[i] for i in OTHER]
    assert " ".join(there) == "the man bites the dog"
    assert sorted(WORDS) == sorted(there)
    assert len(WORDS) == 5


def test_attention_alone_gives_each_word_the_same(page):
    """With attention alone, every word comes out the same in both: the layer cannot tell who bites
    whom.

    it gives each word the same four numbers in both sentences
    """
    alone, moved = page.torch.outputs["attention alone"]
    assert alone.shape == (5, 4)
    assert np.allclose(alone[OTHER], moved)
    first = page.torch.first
    assert np.allclose(alone, reference.scaled_dot_product_attention(first, first, first))


def test_with_positions_no_word_gets_the_same(page):
    """After each word was given its position, none comes out the same from the same layer.

    Positional encoding gives the order back: with it, no word gets the same.
    """
    before, after = page.torch.outputs["attention with positions"]
    pairs = [(i, j) for i in range(5) for j in range(5) if WORDS[i] == WORDS[OTHER[j]]]
    assert len(pairs) == 7
    assert not any(np.allclose(before[i], after[j]) for i, j in pairs)


def test_one_addition_tells_the_first_token_from_the_last(page):
    """The first and the last token below are the same.

    Attention alone cannot tell them apart; after one addition it can.

    In the first matrix rows 0 and 2 are equal, in the second they differ.
    """
    for names in (page.torch, page.jax):
        assert np.array_equal(np.asarray(names.tokens), TOKENS)
    plain = reference.scaled_dot_product_attention(TOKENS, TOKENS, TOKENS)
    encoded = reference.PositionalEncoding(2)(TOKENS)
    placed = reference.scaled_dot_product_attention(encoded, encoded, encoded)
    assert np.array_equal(plain[0], plain[2])
    assert not np.allclose(placed[0], placed[2])
    assert np.array_equal(encoded, TOKENS + reference.sinusoidal_encoding(3, 2))
    shown = "".join(f"{matrix.astype(np.float32).round(3)}\n" for matrix in (plain, placed))
    assert page.printed == 2 * shown


def test_most_later_schemes_act_later(page):
    """Order comes back by adding an encoding to the input, or by acting on queries, keys or scores, as
    most later schemes do
    """
    acts = [make(4).place in {"query and key", "scores"} for make in SCHEMES.values()]
    assert sum(acts) > len(acts) / 2


def test_each_chapter_has_a_card(page):
    """Attention: how a sequence reads itself.

    Position: how it knows its own order.
    """
    for part in ("attention", "position"):
        for chapter in (DOCS / part).glob("*.md"):
            assert f"\n{{doc}}`{part}/{chapter.stem}`\n: " in page.text
