"""The index of exercises, and the rules for what it lists."""

import re

import pytest

from tests.build.books import build, cell

pytestmark = pytest.mark.slow  # small books

RUN = "{.solution}\n#### Solution\n\n" + cell("print(6 * 7)")


def exercise(name, solution=RUN):
    """An exercise with what follows it."""
    return f"### {name}\n\nCompute it.\n\n{solution}\n\n"


PAGES = {
    "index_of_all": ":::{place}\n:::\n\n## The index\n\n```{exercises}\n```\n\n## Larger exercises\n\n"
    + exercise("1. The whole"),
    "none": "words\n",
    "two": "## Exercises\n\n" + exercise("1. Twice $x$") + exercise("2. Three times"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return build(tmp_path_factory.mktemp("good"), PAGES)


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


def test_the_page_of_the_index_claims_no_reading_time(good):
    html = (good[0] / "index_of_all.html").read_text()
    assert '<p class="place">Chapter 1 · No other chapter is needed</p>' in html
