"""What each library does: how answers are named, and what the page asks."""

import re

import numpy as np
import pytest

from tests.nightly.world.columns import ANSWERS, named, turned
from tests.nightly.world.inside import GIVEN


@pytest.mark.parametrize("probe", ANSWERS)
def test_an_answer_is_named_by_its_formula_alone(probe):
    answers = ANSWERS[probe]
    listed = answers.items() if isinstance(answers, dict) else answers
    if isinstance(answers, tuple):
        listed = [(answers[0], [0, 0]), (answers[1], [0, 1]), ("NaN", [0, np.nan])]
    if callable(answers):
        right = turned(GIVEN["far"])
        listed = [("float64", right), ("float32", right + 1e-3), ("NaN", right * np.nan)]
    for name, array in listed:
        arrays = array if isinstance(answers, tuple) else [array]
        word, _ = named(probe, {"arrays": [np.array(one) for one in arrays]})
        assert word == name


def test_the_page_asks_what_the_program_asks(page):
    asked = re.findall(
        r'"(\w+)"', page.text.partition("QUESTIONS = {")[2].partition("}")[0]
    )
    asked = [name for name in asked if name in ANSWERS or "_" in name]
    assert sorted(asked) == sorted(ANSWERS)
