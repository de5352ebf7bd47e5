"""A history of the idea."""

import re

import numpy as np
import pytest
from pybtex.database import parse_file

from posattn.configs.reading import ATTENTION
from posattn.reference import frequencies, ntk_aware, position_interpolation, rotate
from tests.pages.reading import DOCS
from tests.records import PLANS, RECORDS, ROTARY, ropes


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
    """A month is the one in a paper's number on arXiv.

    The months are read from the bibliography when this page is built.

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
    """there are three places where a position can enter a model.

    {numref}`fig-timeline` gives each place a lane.

    The left lane ends with BERT. The right lane fills up next. The middle one stays empty until
    rotation arrives

    They were added to tokens first, then to the scores, and reached queries and keys last.

    BERT, all before 2019

    nothing before rotary in 2021
    """
    lanes = page.torch.lanes
    in_order = sorted(lanes, key=lambda lane: first(page, months, lane)[1])
    assert in_order == ["added to tokens", "on the scores", "queries and keys"]
    added = lanes["added to tokens"]
    assert max(added, key=lambda label: months[added[label]]) == "BERT"
    later = {
        lane: sum(months[key] > 12 * 19 for key in lanes[lane].values()) for lane in lanes
    }
    assert later["on the scores"] > 2
    assert later["added to tokens"] == 0
    assert [*lanes] == ["added to tokens", "queries and keys", "on the scores"]
    assert first(page, months, "queries and keys")[0] == "rotary"
    assert all(months[key] <= 12 * 19 for key in lanes["added to tokens"].values())
    assert all(months[key] > 12 * 21 for key in lanes["queries and keys"].values())


def test_who_was_first_in_each_place(page, months):
    """A position still enters a model in one of three places. Memory networks and the Transformer added
    it to the tokens. Parikh and his colleagues added it to the scores. Rotation put it into queries
    and keys
    """
    began = {lane: first(page, months, lane)[0] for lane in page.torch.lanes}
    assert began == {
        "added to tokens": "memory networks",
        "on the scores": "Parikh",
        "queries and keys": "rotary",
    }
    assert {"memory networks", "Transformer"} <= {*page.torch.lanes["added to tokens"]}


def test_half_a_century(page, months):
    """That is a query, keys and values, half a century before the names

    Fifty years later, sequences were read by recurrent networks
    """
    assert 2000 + (months["Bahdanau.Cho.Bengio.2015"] - 1) // 12 - 1964 == 50
    named = 2000 + (months["Vaswani.Shazeer.Parmar.ea.2017"] - 1) // 12
    assert 50 <= named - 1964 <= 55


def test_within_a_year(page, months):
    """Within a year two papers had more of today's parts.

    In … {cite:t}`sukhbaatar2015end` built a network with a memory of sentences

    In … {cite:t}`luong2015effective` compared several scores
    """
    align, memory, dot = (
        months[key]
        for key in ("Bahdanau.Cho.Bengio.2015", "sukhbaatar2015end", "luong2015effective")
    )
    assert align < memory < dot <= align + 12


def test_two_years_before_the_transformer(page, months):
    """a paper two years older already has the name, position encoding

    The memory network is the paper from the opening.
    """
    transformer = months["Vaswani.Shazeer.Parmar.ea.2017"]
    assert 24 <= transformer - months["sukhbaatar2015end"] < 30


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

    it becomes the place where most models put their positions

    Rotation put it into queries and keys, and that became the usual place.
    """
    assert len(ROTARY) > 2 * (len(PLANS) - len(ROTARY))


def test_the_same_year_brought_alibi(page, months):
    """The same year showed that it could be simpler still."""
    years = {(months[key] - 1) // 12 for key in ("su2024roformer", "press2022alibi")}
    assert years == {21}


def test_2023(page, months):
    """researchers and hobbyists at nearly the same moment

    Theory came after practice.

    One more discovery of that year

    Say a model was trained on 2048 tokens. Halve the positions, and position 4096 becomes 2048, so no
    angle leaves the range of training.
    """
    practice = [
        months[key] for key in ("chen2023extending", "roziere2023code", "peng2024yarn")
    ]
    theory = [months[key] for key in ("liu2024scaling", "men2024base")]
    assert max(practice) < min(theory)
    assert {(month - 1) // 12 for month in practice} == {23}
    assert (months["xiao2024efficient"] - 1) // 12 == 23
    plain = frequencies(8)
    assert np.allclose(4096 * position_interpolation(8, factor=2.0), 2048 * plain)


def test_the_fastest_pair_stays(page):
    """kept the fastest pair at its speed and slowed all the others, the slowest most"""
    slowing = frequencies(128) / ntk_aware(128, factor=4.0)
    assert np.isclose(slowing[0], 1)
    assert (np.diff(slowing) > 0).all()


def test_a_larger_base_slows_the_slow_pairs(page):
    """The speeds of all pairs follow from one number, the base, and a larger base makes the slow pairs
    slower.
    """
    slowing = frequencies(128) / frequencies(128, base=1_000_000.0)
    assert (slowing[1:] > 1).all()
    assert (np.diff(slowing) > 0).all()


def test_a_product_sees_the_steps_between(page):
    """A query at position 7 turns by seven steps and a key at position 5 by five, and their product only
    sees the two steps between them.
    """
    query, key = np.random.default_rng(0).normal(size=(2, 1, 8))
    product = rotate(query, np.array([7])) @ rotate(key, np.array([5])).T
    later = rotate(query, np.array([107])) @ rotate(key, np.array([105])).T
    other = rotate(query, np.array([7])) @ rotate(key, np.array([4])).T
    assert np.allclose(product, later)
    assert not np.allclose(product, other, atol=0.01)


def test_every_fourth_layer(page):
    """Llama 4, SmolLM3, Cohere 2 and the larger EXAONE 4 all leave positions out of every fourth layer"""
    hybrid = {
        family: plan
        for family, plan in PLANS.items()
        if ropes(family)
        and {layer.kind for layer in plan.layers} <= {*ATTENTION}
        and any(layer.rope is None for layer in plan.layers)
    }
    for plan in hybrid.values():
        for layer in plan.layers:
            assert (layer.rope is None) == (layer.index % 4 == 3)
    assert {family.partition(",")[0] for family in hybrid} == {
        "Llama 4",
        "SmolLM3",
        "Cohere 2",
        "EXAONE 4",
    }
    # the 1.2B model rotates in all layers
    assert RECORDS["EXAONE 4"]["_name_or_path"].endswith("32B")


def test_memory_networks_began_the_story(page):
    """Among the authors is Sainbayar Sukhbaatar, whose memory networks began this story."""
    entries = parse_file(DOCS.parent / "references.bib", "bibtex").entries
    for key in ("sukhbaatar2015end", "golovneva2024contextual"):
        names = [str(author) for author in entries[key].persons["author"]]
        assert "Sukhbaatar, Sainbayar" in names


def test_2026(page, months):
    """In the layers that see the whole text, the fastest quarter of the pairs turns and the others stand
    still

    Inkling, [a large model of July 2026](https://github.com/huggingface/transformers/pull/47347), has no
    rotation in any layer. It has sixteen learned curves over the distance

    Parikh's learned numbers for distances were just ten years old.
    """
    whole = [layer for layer in PLANS["Gemma 4"].layers if layer.window is None]
    assert whole
    for layer in whole:
        moving = np.array(layer.rope.frequencies) > 0
        assert moving.tolist() == sorted(moving, reverse=True)
        assert moving.mean() == 1 / 4
    assert not ropes("Inkling")
    assert all(
        "16 profiles over distances" in str(layer) for layer in PLANS["Inkling"].layers
    )
    assert 12 * 26 + 7 - months["Parikh.Tackstrom.Das.ea.2016"] in range(120, 124)


def test_order_comes_for_free_again(page, months):
    """In Qwen3-Next and Qwen3.5, three of four layers are of this kind.

    So order comes for free once more, because the network reads in order.
    """
    for family in ("Qwen3-Next", "Qwen3.5"):
        state = [layer.kind not in ATTENTION for layer in PLANS[family].layers]
        assert state == [layer % 4 != 3 for layer in range(len(state))]
    assert months["yang2025gated"] < months["kimi2025linear"]


def test_one_small_key_that_turns(page):
    """The matrix that makes the keys can even be merged with the one that makes the queries, and then the
    narrow vector is the key. Rotation got in the way. It would stand between the two matrices, different
    for every position, and nothing could be merged.
    """
    rng = np.random.default_rng(0)
    x, latent = rng.normal(size=(2, 5, 8))
    W_q, W_k = rng.normal(size=(2, 8, 8))
    merged = x @ (W_q @ W_k.T) @ latent.T
    assert np.allclose(merged, (x @ W_q) @ (latent @ W_k).T)
    assert not np.allclose(merged, rotate(x @ W_q) @ rotate(latent @ W_k).T)
