"""The first page."""

import jax.numpy as jnp
import numpy as np
import torch

from posattn import reference
from posattn.__main__ import main
from posattn.schemes import SCHEMES
from posattn.stories import CHECKPOINT
from tests.pages.reading import DOCS

WORDS, OTHER = ["the", "dog", "bites", "the", "man"], [0, 4, 2, 3, 1]
TOKENS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])


def test_the_words_are_the_same(page):
    """The dog bites the man. The man bites the dog. Same words, different story.

    The same five words in two orders
    """
    assert (page.torch.words, page.torch.other) == (WORDS, OTHER)
    there = [WORDS[i] for i in OTHER]
    assert " ".join(there) == "the man bites the dog"
    assert sorted(WORDS) == sorted(there)
    assert len(WORDS) == 5


def test_without_positions_each_word_gets_the_same(page):
    """Without positions, every word gets the same numbers in both sentences, so the layer
    cannot tell who bites whom.

    Unless a mask gives it a hint, it has no idea which word comes first, as fig-order shows for a model without positions.
    """
    before, moved = page.torch.outputs["without positions"]
    assert before.shape == (5, 4)
    assert np.allclose(before[OTHER], moved)
    first = page.torch.first
    assert np.allclose(before, reference.scaled_dot_product_attention(first, first, first))


def test_with_positions_no_word_gets_the_same(page):
    """With positions, every word gets different numbers."""
    before, after = page.torch.outputs["with positions"]
    pairs = [(i, j) for i in range(5) for j in range(5) if WORDS[i] == WORDS[OTHER[j]]]
    assert len(pairs) == 7
    assert not any(np.allclose(before[i], after[j]) for i, j in pairs)


def test_one_addition_tells_the_first_token_from_the_last(page):
    """The first and the last token below are equal.

    Attention cannot tell them apart until we add the encoding.

    In the first matrix, rows 0 and 2 are equal. In the second they differ.
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
    assert page.printed.endswith(2 * shown)


def test_three_lines_make_the_attention_of_a_layer(page, capsys):
    """Three lines make the attention of a layer, with its weights:

    | What does each layer do? (configurations) | `plan config.json` |
    """
    assert main(["plan", f"{CHECKPOINT / 'config.json'}"]) == 0
    shown = capsys.readouterr().out
    assert page.printed.startswith(shown + 2 * "(1, 10, 64)\n")
    x = np.random.default_rng(0).normal(size=(1, 10, 64)).astype(np.float32)
    both = (page.torch.layer(torch.from_numpy(x)), page.jax.layer(jnp.asarray(x)))
    assert np.allclose(both[0].detach(), both[1], atol=1e-4)


def test_most_later_schemes_act_later(page):
    """Most schemes since the sinusoid act on queries, keys or scores and no longer on the input."""
    acts = [make(4).place in {"query and key", "scores"} for make in SCHEMES.values()]
    assert sum(acts) > len(acts) / 2


def test_rotation_keeps_the_angles(page):
    """each rotated by one radian per position

    Every vector has rotated, and the angles have not changed.
    """
    here, there = page.torch.rotated
    assert np.allclose(here, [(np.cos(p), np.sin(p)) for p in (2, 0, 3)])
    assert abs(there - here).max(-1).min() > 0.5
    assert np.allclose(here @ here.T, there @ there.T)


def test_some_pairs_never_finish_a_turn(page):
    """The slow ones never finish their first turn

    Within one training text the fast ones go around hundreds of times.

    A pair whose curve stays below one turn has not seen all its angles.

    How often each of the 64 pairs of a head of width 128 turns within 8192 tokens.
    """
    for label, turns in page.torch.turns.items():
        base = float(label.removeprefix("base "))
        assert turns.shape == (64,)
        assert turns[0] > 1000
        assert turns[-1] < 1
        assert np.allclose(turns, 8192 * base ** (-np.arange(64) / 64) / (2 * np.pi))
    below = {label: int((turns < 1).argmax()) for label, turns in page.torch.turns.items()}
    assert below == {"base 10000": 50, "base 500000": 35}


def test_each_chapter_has_a_card(page):
    """Attention: how a sequence reads itself.

    Position: how it knows its own order.

    Practice: how to use both.
    """
    chapters = [*DOCS.glob("attention/*.md"), *DOCS.glob("position/*.md")]
    practice = ("model", "configurations", "conformance", "exercises", "questions")
    chapters += [DOCS / f"{name}.md" for name in practice]
    for chapter in chapters:
        name = chapter.relative_to(DOCS).with_suffix("")
        assert f"\n{{doc}}`{name}`\n: " in page.text
