"""A section whose title ends in "exercises" has them as sections, numbered, each with a solution that runs."""

import re

import pytest

from tests.pages.reading import PAGES

SECTION = re.compile(r"^(##+) [^\n]*exercises\n(.*?)(?=^##? |\Z)", re.I | re.M | re.DOTALL)
RUN = re.compile(r"^`{3,}\{(?:code-cell|doctest)\}|^>>> ", re.MULTILINE)
ASKING = [
    pytest.param(level, body, id=f"{path.stem}-{number}")
    for path in PAGES
    for number, (level, body) in enumerate(SECTION.findall(path.read_text("utf-8")))
]


@pytest.mark.parametrize(("level", "body"), ASKING)
def test_exercises_have_numbers_and_solutions_that_run(level, body):
    _, *exercises = re.split(rf"^{level}# (?=\S)", body, flags=re.MULTILINE)
    assert exercises, "no exercise: write sections `### 1. Name`, `### 2. Name`"
    for number, exercise in enumerate(exercises, 1):
        title, _, rest = exercise.partition("\n")
        assert title.startswith(f"{number}. "), f"{title} must begin with {number}."
        solution = rest.partition("{.solution}\n")[2]
        assert RUN.search(solution), f"{title} has no solution that the build runs"
