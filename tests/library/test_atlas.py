"""The atlas: a card for each scheme, true to the bibliography and to the library, and a table of marks."""

import re
from pathlib import Path

import numpy as np
import pytest

from posattn import atlas, configs, reference
from posattn.configs.reading import ATTENTION
from posattn.schemes import CARDS, LARGE, PROPERTIES, SCHEMES, properties
from tests.records import PLANS

ROOT = Path(__file__).parents[2]
ENTRIES = dict(
    re.findall(
        r"^@\w+\{(.+?),\n(.*?)^\}", (ROOT / "references.bib").read_text(), re.M | re.S
    )
)
VERIFIED = {  # what is not in that table, and where it was verified
    "Llama": "nightly/conformance/transformers.py; Llama 2 has the same numbers",
    "Cohere 2": "huggingface/transformers, docs/source/en/model_doc/cohere2.md",
    "Qwen2-VL": "transformers 5.24.0, 28 November 2026, its own rotation",
    "RoPE-ViT": "naver-ai/rope-vit, its weights",
    "Qwen-7B": "QwenLM/Qwen #401",
    "Intern-S1-Pro": "vllm-project/vllm #33636",
    "Phi-3-mini-128k": "ggml-org/llama.cpp #6849",
    "w2v-BERT 2.0": "transformers 5.24.0, 28 November 2026, its keys",
    "DeBERTa-v2": "transformers 5.24.0, 28 November 2026, its buckets",
    "Music Transformer": "magenta.tensorflow.org/music-transformer, its Colab",
    "Transformer-XL": "kimiyoung/transformer-xl #43",
    "FoX": "zhixuan-lin/forgetting-transformer, its README",
    "Swin V2": "transformers 5.24.0, 28 November 2026, its attention",
}
IMAGES = ["rotary, axial", "rotary, mixed", "M-RoPE", "Swin", "Swin V2"]
each_card = pytest.mark.parametrize("name", CARDS)


@each_card
def test_what_a_card_names_exists(name):
    card, entry = CARDS[name], ENTRIES[CARDS[name].cites[0]]
    preprint = re.search(r"eprint += \{(\d\d)", entry)
    printed = re.search(r"year += \{(\d+)", entry)
    assert card.year == (2000 + int(preprint[1]) if preprint else int(printed[1]))
    assert all(key in ENTRIES for key in card.cites)
    assert card.function is None or hasattr(reference, card.function)
    assert card.page is None or (ROOT / "docs" / f"{card.page}.md").is_file()


@each_card
def test_the_picture_is_what_the_card_says(name):
    scores, shows = atlas.scores(name), CARDS[name].shows
    future = scores[np.triu_indices(len(scores), 1)]
    assert (np.ptp(future) < 1e-12) == ("above" in shows or name == "none")
    if "fading" in shows:
        first = scores[:, 0]
        assert first[0] == pytest.approx(scores.max())
        assert first[-1] == pytest.approx(first.min(), abs=0.2 * np.ptp(first))
    moved = np.isclose(scores[1:, 1:], scores[:-1, :-1])
    along = properties(name)["shift"] and name not in (*IMAGES, "stick-breaking")
    assert moved.all() == along
    if name in IMAGES:
        assert np.allclose(scores[8:, 8:], scores[:-8, :-8])
        assert "blocks of 8 by 8" in shows
    elif name == "stick-breaking":
        assert moved[~np.eye(63, dtype=bool)].all()
        assert "the diagonal itself" in shows
    elif not along:
        assert "noise" in shows or "waves" in shows or "fan" in shows


def schemes(layer):
    """The cards of a layer, by its plan."""
    scaled = {"linear": "position interpolation", "llama3": "Llama 3", "yarn": "YaRN"}
    scaled |= {"longrope": "LongRoPE"}
    rope, tables = layer.rope, {"learned": "learned", "sinusoidal": "sinusoidal"}
    found = set()
    if layer.table is not None:
        found |= {tables[layer.table[0]]}
    if isinstance(layer.bias, configs.Slopes):
        found |= {"ALiBi"}
    if isinstance(layer.bias, configs.Buckets):
        found |= {"T5"}
    if rope is not None:
        rotation = 2 * np.count_nonzero(rope.frequencies)
        width = layer.head_dim
        if rotation < width:
            slow = rope.method == "proportional"
            found |= {"rotary, proportional" if slow else "rotary, partial"}
        if rope.sections:
            found |= {"rotary, axial" if rope.axes.startswith("row") else "M-RoPE"}
        found |= {scaled[rope.method]} if rope.method in scaled else set()
        found = found or {"rotary"}
    return found if found or layer.bias is not None else {"none"}


def recorded():
    """The models of each card, by the plans of recorded configurations that `nox -s oracles` checks."""
    found = {name: set() for name in CARDS}
    rest = {"XLNet": "Transformer-XL", "Swin": "Swin"}
    for family, name in rest.items():  # what models.json has
        found[name].add(family)
    for family, plan in PLANS.items():
        for layer in plan.layers:
            if layer.kind in ATTENTION:
                for name in schemes(layer):
                    found[name].add(family)
    return found


def test_cards_name_only_models_of_the_table_and_others_that_were_verified():
    for name, models in recorded().items():
        named = {model.split(" (")[0] for model in CARDS[name].models} - VERIFIED.keys()
        listed = {
            told for told in named if any(f"{m} ".startswith(f"{told} ") for m in models)
        }
        assert named == listed, name
    told = {model.split(" (")[0] for card in CARDS.values() for model in card.models}
    assert told >= VERIFIED.keys()


def test_scores_are_those_of_the_layer():
    """Of one head with a rotation and of one with a bias, by hand."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1, LARGE.dim)).repeat(64, axis=0)
    weights = rng.normal(size=(3, LARGE.dim, LARGE.dim)) / np.sqrt(LARGE.dim)
    q, k = ((x @ w)[:, : LARGE.head_dim] for w in weights[:2])
    root = np.sqrt(LARGE.head_dim)
    rotated = reference.rotate(q) @ reference.rotate(k).T / root
    assert np.allclose(atlas.scores("rotary"), rotated)
    where = np.arange(64)
    assert np.allclose(
        atlas.scores("ALiBi"), q @ k.T / root - abs(where - where[:, None]) / 16
    )


def test_the_table_has_a_mark_for_each_property(monkeypatch):
    found = {name: np.random.default_rng(i).random(len(PROPERTIES)) < 0.5
             for i, name in enumerate(SCHEMES)}  # fmt: skip
    monkeypatch.setattr(
        atlas, "properties", lambda name: dict(zip(PROPERTIES, found[name], strict=True))
    )
    lines = [line.strip("|").split("|") for line in atlas.table().splitlines()]
    rows = [[cell.strip() for cell in cells] for cells in lines]
    assert rows[0] == ["scheme", *PROPERTIES]
    titles = [row[0] for row in rows if row[0].startswith("**")]
    assert titles == [f"**{title}**" for title in atlas.PLACES.values()]
    marks = {row[0]: row[1:] for row in rows}
    for name in SCHEMES:
        wanted = ["[yes]{.yes}" if yes else "[no]{.no}" for yes in found[name]]
        assert marks[f"[{name}](#{atlas.anchor(name)})"] == wanted


@pytest.mark.parametrize("call", [atlas.acting, atlas.cards])
def test_an_unknown_place_is_told_with_the_known_ones(call):
    with pytest.raises(ValueError, match=r"place must be one of nowhere, .*, got 'output'"):
        call("output")
