"""The index of exercises, and the rules for what it lists."""

import re

import pytest

from tests.build import noted
from tests.build.books import build, cell

pytestmark = pytest.mark.slow  # small books

RUN = "{.solution}\n#### Solution\n\n" + cell("print(6 * 7)")


def exercise(name, solution=RUN):
    """An exercise with what follows it."""
    return f"### {name}\n\nCompute it.\n\n{solution}\n\n"


PAGES = {
    "index_of_all": "## The index\n\n```{exercises}\n```\n\n## Larger exercises\n\n"
    + exercise("1. The whole"),
    "none": "words\n",
    "two": "## Exercises\n\n" + exercise("1. Twice $x$") + exercise("2. Three times"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return build(tmp_path_factory.mktemp("good"), PAGES)


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    proved = "{.solution}\n#### Solution\n\nClearly.\n"
    doctest = "{.solution}\n#### Solution\n\n```{doctest}\n>>> 6 * 7\n42\n```\n"
    return build(
        tmp_path_factory.mktemp("bad"),
        {
            "unnumbered": "## Exercises\n\n" + exercise("Name"),
            "skipping": "## Exercises\n\n" + exercise("1. A") + exercise("3. B"),
            "plain": "## Exercises\n\n1. Compute it.\n",
            "unsolved": "## Exercises\n\n" + exercise("1. Open", ""),
            "talking": "## Exercises\n\n" + exercise("1. Proved", proved),
            "tested": "## Exercises\n\n" + exercise("1. Tested", doctest),
        },
        settings='extensions += ["sphinx.ext.doctest"]\n',
    )


def test_the_index_names_all_exercises_in_the_order_of_the_book(good):
    folder, _, said = good
    assert "exercises" not in said
    html = (folder / "index_of_all.html").read_text()
    index = html[html.index("exercise-index") : html.index("</dl>")]
    words = re.sub("<[^>]+>", " ", index)
    places = [
        words.index(word) for word in ("Chapter 1", "The whole", "Chapter 3", "Twice")
    ]
    assert places == sorted(places)
    assert "Chapter 2" not in words
    assert "1. The whole" not in words
    links = re.findall('href="([^"]+)"', index)
    assert links == ["#larger-exercises", "#the-whole"] + [
        f"two.html#{name}" for name in ("exercises", "twice-x", "three-times")
    ]
    for link in links:
        page, _, name = link.partition("#")
        assert f'id="{name}"' in (folder / (page or "index_of_all.html")).read_text()


@pytest.mark.parametrize("page", ["unnumbered", "skipping", "plain"])
def test_exercises_without_numbers_fail_the_build(bad, page):
    assert bad[1] != 0
    assert re.search(
        rf"{page}\.md:\d+: WARNING: exercises must be sections `1\. Na", bad[2]
    )


@pytest.mark.parametrize(
    ("page", "name"), [("unsolved", "1. Open"), ("talking", "1. Proved")]
)
def test_an_exercise_without_an_executed_solution_fails_the_build(bad, page, name):
    assert f"the exercise {name} has no solution that is run" in bad[2]


def test_what_is_said_of_faults_is_what_was_noted(bad):
    noted.compare_faults("exercises", bad[2])


def test_a_doctest_is_a_solution(bad):
    assert "tested.md" not in bad[2]
