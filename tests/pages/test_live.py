"""Ask it yourself."""

import re

import numpy as np
import torch

from posattn.stories import CHECKPOINT, NOUNS, VERBS, WORDS, encode
from posattn.torch import Decoder, Rotary, yarn
from tests.studies import checkpoints, language
from tests.studies.settings import STORIES


def top(printed):
    """The words that a cell prints, and their probabilities."""
    return {
        word: float(p) for word, p in re.findall(r"^ *(\S+) +(\d\.\d+)$", printed, re.M)
    }


def printed(page, tag):
    """What the cell with a tag prints."""
    (cell,) = (cell for cell in page.cells if tag in cell.tags)
    return top(cell.printed)


def test_the_language(page):
    """They know 22 words: eight nouns, four verbs in two forms, and the, who, whom, does, the full stop
    and the question mark.
    """
    assert len(WORDS) == 22
    assert (len(NOUNS), len(VERBS)) == (8, 4)
    signs = {"the", "who", "whom", "does", ".", "?"}
    assert set(WORDS) == {*NOUNS, *VERBS, *VERBS.values()} | signs


def test_the_models_and_their_training(page):
    """Each has two layers with four heads and a width of 64

    Each was trained on 4000 batches of 32 stories, none of them longer than 48 tokens.

    There are eight nouns, so guessing a noun would be right 12.5 percent of the time.
    """
    model = page.torch.model_torch
    assert (len(model.blocks), model.blocks[0].attention.num_heads) == (2, 4)
    assert model.embedding.embedding_dim == 64
    assert (STORIES.steps, STORIES.batch, language.LENGTH) == (4000, 32, 48)
    assert 100 / len(NOUNS) == 12.5


def test_one_start_was_picked():
    """Each row is one model, and the rotary one was picked"""
    assert checkpoints.SEEDS["rotary"] != checkpoints.SEEDS["alibi"]


def test_it_is_sure_of_the_king(page):
    """It says king, and it's sure."""
    assert max(printed(page, "out-ask").items(), key=lambda pair: pair[1])[0] == "king"
    assert printed(page, "out-ask")["king"] > 0.99


def test_two_heads_find_the_fact(page):
    """In layer 0 it puts most of its weight on the fox of the question. In layer 1 it puts most of it
    on the full stop after king, where the fact about this fox ends.
    """
    words = page.torch.text.split()
    left, right = page.torch.model_torch.attention_weights(torch.from_numpy(encode(words)))
    assert min(left[2, -1].max(), right[2, -1].max()) > 0.5
    assert left[2, -1].argmax() == words.index("fox", words.index("whom"))
    assert right[2, -1].argmax() == words.index("king") + 1


def test_a_shift_of_all_positions_changes_nothing(page):
    """Neither the answer nor the maps change, under any of the three schemes."""
    model, tokens = page.torch.model_torch, torch.from_numpy(encode(page.torch.text))
    here = torch.arange(len(tokens))
    for one, other in zip(
        model.attention_weights(tokens, positions=here),
        model.attention_weights(tokens, positions=here + 100),
        strict=True,
    ):
        assert torch.allclose(one, other, atol=1e-5)


def test_only_the_question_is_shifted(page):
    """and without positions none changes.

    Yet only the rotary model loses its answer. Its probability of king falls to

    and it names the dog. ALiBi's model still says king

    The model without positions says what it said before, and that was wrong from the start: man, with
    """
    said = page.torch
    for scheme, word in (("rotary", "dog"), ("ALiBi", "king"), ("none", "man")):
        p = said.models[scheme](said.seen, positions=said.far)[-1]
        assert WORDS[p.argmax()] == word
    assert WORDS[said.models["none"](said.seen)[-1].argmax()] == "man"
    assert page.glued["rotary_king"] < 0.5
    assert page.glued["none_moved"] == 0
    assert min(page.glued["ALiBi_moved"], page.glued["rotary_moved"]) > 0.1


def test_the_extensions(page):
    """YaRN changes little

    Position interpolation brings it down
    """
    slowed, factor = yarn(16, factor=4.0, trained_length=48)
    model = Decoder.from_config(CHECKPOINT / "config.json", weights=CHECKPOINT)
    for block in model.blocks:
        block.attention.rotate = Rotary(
            layout="half", frequencies=slowed, attention_factor=factor
        )
    p = model(torch.from_numpy(encode(page.torch.text)))[-1].softmax(-1)
    assert np.isclose(p[WORDS.index("king")].item(), page.glued["yarn"], atol=1e-4)
    assert page.glued["yarn"] > 0.98 > 0.7 > page.glued["interpolated"]


def test_too_far(page):
    """From 40 on. With a shift of 30 the question mark stands at 53, which is 42 positions after the full
    stop that ends the fact, at 11. With a shift of 40 it is 52 positions, and no two tokens of a training
    text were more than 47 apart.
    """
    sure = {int(shift): p > 0.5 for shift, p in printed(page, "out-far").items()}
    assert sure == {shift: shift < 40 for shift in range(0, 60, 10)}
    words = page.torch.text.split()
    end = words.index("king") + 1
    assert (end, len(words) - 1 + 30, len(words) - 1 + 30 - end) == (11, 53, 42)
    assert len(words) - 1 + 40 - end == 52 > language.LENGTH - 1 == 47


def test_without_positions_it_is_no_longer_sure(page):
    """King still comes first, but with less than half of the probability."""
    word, p = next(iter(printed(page, "out-zero").items()))
    assert word == "king"
    assert p < 0.5
