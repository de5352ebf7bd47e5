"""Ask it yourself."""

from functools import cache
from pathlib import Path

import numpy as np
import torch

from posattn.reference import frequencies
from posattn.stories import CHECKPOINT, NOUNS, WORDS, encode, story
from posattn.torch import ALiBi, Decoder, Rotary, yarn
from tests.nightly.studies import language
from tests.nightly.studies.settings import STORIES

STATIC = Path(__file__).parents[2] / "docs" / "_static"
STORY = (
    "the dog bites the man . the fox sees the king . the cat hears the bird . "
    "whom does the fox see ?"
)
KING, THE = WORDS.index("king"), WORDS.index("the")


@cache
def model(scheme):
    """A trained decoder: rotary, alibi or none."""
    folder = CHECKPOINT if scheme == "rotary" else STATIC / "decoders" / scheme
    weights = folder / "model.safetensors"
    made = Decoder.from_config(CHECKPOINT / "config.json", weights=weights)
    for block in made.requires_grad_(False).blocks:
        if scheme != "rotary":
            block.attention.rotate = None
        if scheme == "alibi":
            block.attention.bias = ALiBi(4)
    return made


def chances(made, text=STORY, shifts=(0,)):
    """The probabilities of the next word where the question is shifted so."""
    words = text.split()
    asks = torch.arange(len(words)) >= words.index("whom")
    places = torch.arange(len(words)) + torch.tensor(shifts)[:, None] * asks
    tokens = torch.from_numpy(encode(words)).expand(len(places), -1)
    return made(tokens, positions=places)[:, -1].softmax(-1)


def test_training_and_distances_by_hand():
    assert (STORIES.steps, STORIES.batch, language.LENGTH) == (4000, 32, 48)
    assert (len(WORDS), len(model("rotary").norm.weight)) == (22, 64)
    assert 100 / len(NOUNS) == 12.5
    words = STORY.split()
    mark, period = len(words) - 1, words.index("king") + 1
    assert (mark, period, mark - period) == (23, 11, 12)
    assert (mark + 100, period + 100) == (123, 111)
    assert mark + 34 == 57
    assert (np.array([47, 57]) * 4).tolist() == [188, 228]
    assert (57 * np.arange(2, 5)).tolist() == [114, 171, 228]


def test_the_panel_tells_the_story_of_the_page(page):
    question, script = (
        (STATIC / name).read_text("utf-8")
        for name in ("explorers/question.js", "decoder.js")
    )
    assert page.torch.text == STORY
    assert f'STORY = "{STORY}"' in question
    assert round((CHECKPOINT / "model.safetensors").stat().st_size / 1024) == 200
    assert "Start fetches 200 KB of weights." in script


def test_without_positions_the_role_is_known():
    rng = np.random.default_rng(5)
    for _ in range(100):
        words, [place], _ = story(rng, 4, 1)
        said = model("none")(torch.from_numpy(encode(words[:place])))[-1].argmax()
        role = 1 if words[24] == "who" else 4
        assert WORDS[said] in words[role:24:6]


def test_each_model_has_a_shortcut(page):
    changed = STORY.replace("fox see ?", "fox hear ?")
    for scheme, word in (("rotary", "king"), ("alibi", "bird")):
        assert chances(model(scheme), changed)[0, WORDS.index(word)] > 0.99
    assert min(page.glued["rotary_shortcut"], page.glued["ALiBi_shortcut"]) > 180


def test_a_shift_of_all_positions_changes_no_weight():
    tokens = torch.from_numpy(encode(STORY))
    here = torch.arange(len(tokens))
    for scheme in ("rotary", "alibi", "none"):
        maps = [
            torch.stack(model(scheme).attention_weights(tokens, positions=here + shift))
            for shift in (0, 100)
        ]
        assert torch.allclose(*maps, atol=2e-5)


def test_rotary_loses_the_king_at_a_shift_of_34():
    shifts = range(201)
    rotary = chances(model("rotary"), shifts=shifts)
    first = rotary.argmax(-1) == KING
    assert min(rotary[:34, KING]) > 0.95
    assert rotary[34, KING] < 0.07
    assert 0 < first[34:].sum() < len(first[34:]) / 2
    assert torch.all(chances(model("alibi"), shifts=shifts).argmax(-1) == KING)
    none = chances(model("none"), shifts=shifts)
    assert torch.allclose(none, none[:1], atol=1e-5)


def test_a_the_is_mistaken_57_tokens_away(page):
    better = np.flatnonzero(page.torch.scores.numpy() > page.glued["own_score"])
    assert better[better > 0][:4].tolist() == [1, 2, 57, 58]
    rotated = np.array([20, 47, 57]) * frequencies(16)[2] / (2 * np.pi)
    assert np.allclose(rotated, [1 / 3, 3 / 4, 0.9], atol=0.02)


def test_yarn_moves_the_break():
    slowed, factor = yarn(16, factor=4.0, trained_length=48)
    repaired = Decoder.from_config(CHECKPOINT, weights=CHECKPOINT).requires_grad_(False)
    for block in repaired.blocks:
        block.attention.rotate = Rotary(
            layout="half", frequencies=slowed, attention_factor=factor
        )
    assert min(chances(repaired, shifts=(0, 100))[:, KING]) > 0.98
    assert chances(model("rotary"), shifts=(100,))[0, KING] < 0.5


def test_each_shortcut_fails_among_more_facts(page):
    grown = [" ".join([*facts, page.torch.asking]) for facts in page.torch.grown]
    rotary, alibi = (
        [chances(model(scheme), text)[0].argmax() == KING for text in grown]
        for scheme in ("rotary", "alibi")
    )
    assert np.flatnonzero(rotary).tolist() == [0]
    assert np.flatnonzero(alibi).tolist() == [0, 1]
