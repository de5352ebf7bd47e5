"""A history of the idea."""

import re

import numpy as np
import pytest
from pybtex.database import parse_file

from posattn.configs import plan as read
from posattn.configs.reading import ATTENTION
from tests.pages.reading import DOCS
from tests.records import CLASSES, PLANS, ROTARY


@pytest.fixture(scope="module")
def months():
    """The months since the year 2000 in the arXiv numbers of the bibliography, from 1."""
    entries = parse_file(DOCS.parent / "references.bib", "bibtex").entries
    numbers = {key: entry.fields.get("eprint", "") for key, entry in entries.items()}
    return {
        key: 12 * int(number[:2]) + int(number[2:4])
        for key, number in numbers.items()
        if re.match(r"\d{4}\.\d", number)
    }


def test_tokens_came_first_and_queries_last(page, months):
    began, ended = {}, {}
    for lane, papers in page.torch.lanes.items():
        in_order = sorted(papers, key=lambda label: months[papers[label]])
        began[lane] = months[papers[in_order[0]]], in_order[0]
        ended[lane] = months[papers[in_order[-1]]], in_order[-1]
    assert [began[lane][1] for lane in sorted(began, key=began.get)] == [
        "memory networks",
        "Parikh",
        "rotary",
    ]
    assert ended["added to tokens"][1] == "BERT"
    assert ended["added to tokens"][0] <= 12 * 19
    assert began["queries and keys"][0] > 12 * 21


def test_months_between_papers_by_hand(months):
    transformer = months["Vaswani.Shazeer.Parmar.ea.2017"]
    assert transformer - months["gehring2017convolutional"] == 1
    assert transformer - months["Parikh.Tackstrom.Das.ea.2016"] == 12
    assert transformer - months["sukhbaatar2015end"] in range(24, 30)
    align = months["Bahdanau.Cho.Bengio.2015"]
    assert align < months["sukhbaatar2015end"] < months["luong2015effective"] <= align + 12
    assert 12 * 26 + 7 - months["Parikh.Tackstrom.Das.ea.2016"] in range(120, 124)


def test_theory_came_after_practice(months):
    practice = ("chen2023extending", "roziere2023code", "peng2024yarn")
    theory = ("liu2024scaling", "men2024base")
    assert max(months[key] for key in practice) < min(months[key] for key in theory)
    assert {(months[key] - 1) // 12 for key in (*practice, "xiao2024efficient")} == {23}
    assert {(months[key] - 1) // 12 for key in ("su2024roformer", "press2022alibi")} == {21}


def test_most_models_rotate():
    assert len(ROTARY) > 2 * (len(PLANS) - len(ROTARY))


def test_hybrids_rotate_in_three_of_four_layers():
    hybrid = set()
    for family, plan in (PLANS | {"cohere-2": read(CLASSES["cohere-2"])}).items():
        rotates = [layer.rope is not None for layer in plan.layers]
        attends = all(layer.kind in ATTENTION for layer in plan.layers)
        if attends and any(rotates) and not all(rotates):
            assert rotates == [index % 4 != 3 for index in range(len(rotates))]
            hybrid.add(family)
    assert {name.split()[0] for name in hybrid} == {
        "Llama",
        "SmolLM3",
        "cohere-2",
        "EXAONE",
    }


def test_models_of_2026_differ_in_positions():
    for layer in PLANS["Gemma 4 26B-A4B"].layers:
        if layer.window is None:
            moving = np.array(layer.rope.frequencies) > 0
            assert moving.mean() == 1 / 4
            assert np.all(np.diff(moving.astype(int)) <= 0)  # the fastest ones
    inkling = read(CLASSES["inkling"]).layers
    assert not any(layer.rope for layer in inkling)
    assert "16 profiles over distances" in str(inkling[0])
    for family in ("Qwen3-Next 80B-A3B", "Qwen3.5 27B"):
        recurrent = [layer.kind not in ATTENTION for layer in PLANS[family].layers]
        assert recurrent == [index % 4 != 3 for index in range(len(recurrent))]
