"""A history of the idea."""

import json
import re

import pytest
from pybtex.database import parse_file

from tests.pages.reading import DOCS


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


def first(page, months, lane):
    """The paper in a lane of the figure that came first, and its month."""
    papers = {label: months[key] for label, key in page.torch.lanes[lane].items()}
    label = min(papers, key=papers.get)
    return label, papers[label]


def test_months_are_those_of_arxiv(page, months):
    """A month is the one in a paper's number on arXiv

    Where positions entered a model, and when, by the month in the number of the paper on arXiv.
    """
    names = "January February March April May June July August September October November December"
    pasted = re.findall(r"\{glue:text\}`when_([^`]+)`", page.text)
    assert len(pasted) > 20
    for key in pasted:
        year, month = divmod(months[key] - 1, 12)
        assert page.glued[f"when_{key}"] == f"{names.split()[month]} {2000 + year}"
    for lane, papers in page.torch.lanes.items():
        for label, key in papers.items():
            date = 2000 + (months[key] - 0.5) / 12
            assert page.torch.dates[lane][label] == pytest.approx(date)


def test_three_lanes(page, months):
    """the second has three lanes, one for each place where a position can enter

    They were added to tokens first, then met the scores, and came to queries and keys last.

    BERT, all before 2019

    nothing before rotary in 2021
    """
    lanes = page.torch.lanes
    in_order = sorted(lanes, key=lambda lane: first(page, months, lane)[1])
    assert in_order == ["added to tokens", "on the scores", "queries and keys"]
    assert all(months[key] <= 12 * 19 for key in lanes["added to tokens"].values())
    assert all(months[key] > 12 * 21 for key in lanes["queries and keys"].values())


def test_who_was_first_in_each_place(page, months):
    """Memory networks and the Transformer took the first, Parikh and his colleagues the third, and
    rotation made the second the usual one
    """
    began = {lane: first(page, months, lane)[0] for lane in page.torch.lanes}
    assert began == {
        "added to tokens": "memory networks",
        "on the scores": "Parikh",
        "queries and keys": "rotary",
    }
    assert {"memory networks", "Transformer"} <= {*page.torch.lanes["added to tokens"]}


def test_half_a_century(page, months):
    """a query, keys and values, half a century before the names"""
    named = 2000 + (months["Vaswani.Shazeer.Parmar.ea.2017"] - 1) // 12
    assert 50 <= named - 1964 <= 55


def test_within_a_year(page, months):
    """Within a year two papers had more of today's parts.

    Before them, {cite:t}`sukhbaatar2015end`, in …, read a memory
    """
    align, memory, dot = (
        months[key]
        for key in ("Bahdanau.Cho.Bengio.2015", "sukhbaatar2015end", "luong2015effective")
    )
    assert align < memory < dot <= align + 12


def test_a_year_before_the_transformer(page, months):
    """That is a relative bias with buckets, a year before the Transformer"""
    transformer = months["Vaswani.Shazeer.Parmar.ea.2017"]
    assert transformer - months["Parikh.Tackstrom.Das.ea.2016"] == 12


def test_one_month_later(page, months):
    """One month later, in …, came Attention Is All You Need"""
    transformer = months["Vaswani.Shazeer.Parmar.ea.2017"]
    assert transformer - months["gehring2017convolutional"] == 1


def test_most_models_turn(page):
    """most large language models since have it

    rotation made the second the usual one
    """
    models = json.loads((DOCS / "_records" / "models.json").read_text("utf-8"))
    assert len(models["rotary"]) > 2 * len(models["others"])
