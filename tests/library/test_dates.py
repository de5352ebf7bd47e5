"""Dates in lanes: each mark stands at its date in its lane, with its label beside it."""

import numpy as np
import pytest

from posattn import figures

LANES = {"tokens": {"one": 2015.25, "two": 2017.5}, "scores": {"three": 2016.0}}


@pytest.mark.parametrize("variant", ["wide", "phone"])
def test_marks_and_labels_stand_at_their_dates(variant):
    figure = figures.dates(LANES)
    (axes,) = (figure if variant == "wide" else figure.phone).axes
    marks = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert marks == [[[0, 2015.25], [0, 2017.5]], [[1, 2016.0]]]
    places = {text.get_text(): text.get_position() for text in axes.texts}
    for lane, dates in enumerate(LANES.values()):
        for label, year in dates.items():
            assert places[label][1] == year
            assert 0 < places[label][0] - lane < 0.1
    assert places["tokens"][0] == 0
    assert places["scores"][0] == 1
    top, bottom = axes.get_ylim()[::-1]
    assert top < 2015.25 < 2017.5 < bottom  # the earliest on top


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ({}, "lanes must not be empty"),
        ({"tokens": {}}, r"lanes\['tokens'\] must hold finite years, got {}"),
        ({"tokens": {"one": np.nan}}, r"lanes\['tokens'\] must hold finite years, got"),
    ],
)
def test_bad_input_is_named(lanes, message):
    with pytest.raises(ValueError, match=message):
        figures.dates(lanes)
