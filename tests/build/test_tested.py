"""The number of an equation leads to the source of its test."""

import re
from types import SimpleNamespace

import pytest
from sphinx.highlighting import PygmentsBridge

from docs._ext.book import tested

TESTS = '''"""A page."""

def at(x):
    return x


def test_eq_sum_of_two(page):
    """$$ 1 + 1 = 2 $$

    twice
    """
    assert at(1) + 1 == 2
'''
EQUATION = (
    '<div class="math" id="equation-{0}">\n<div class="math">\n<span class="eqno">(7)'
    '<a class="headerlink" href="#equation-{0}">¶</a></span></div></div>'
)


@pytest.fixture
def app(tmp_path):
    """A book of two pages, of which one has tests."""
    folder = tmp_path / "tests" / "pages"
    folder.mkdir(parents=True)
    (folder / "test_sums.py").write_text(TESTS)
    title = SimpleNamespace(astext=lambda: "Sums")
    pages = ("position/sums", "other", "api/sums", "slides/sums")
    env = SimpleNamespace(found_docs=pages, titles=dict.fromkeys(pages, title))
    builder = SimpleNamespace(name="html", highlighter=PygmentsBridge("html"))
    return SimpleNamespace(confdir=tmp_path, env=env, builder=builder)


def linked(app, page, label):
    context = {"body": EQUATION.format(label), "pathto": lambda name: f"../{name}.html"}
    tested.link_equations(app, page, "page.html", context, object())
    return context["body"]


def test_each_page_with_tests_has_one_page_of_their_source(app):
    ((name, context, _),) = tested.show(app)
    assert name == tested.place("position/sums") == "_tests/sums"
    assert context["title"] == "How Sums is tested"
    lines = [line for line in context["body"].splitlines() if 'id="' in line]
    words = [re.sub("<[^>]+>", "", line) for line in lines]
    assert words == ["def at(x):", "def test_eq_sum_of_two(page):"]
    assert 'id="test_eq_sum_of_two"' in lines[1]


def test_the_number_of_an_equation_leads_to_its_test(app):
    body = linked(app, "position/sums", "eq-sum-of-two")
    link = 'href="../_tests/sums.html#test_eq_sum_of_two"'
    assert (
        f'{link} title="How this equation is tested">(7)</a><a class="headerlink"' in body
    )


@pytest.mark.parametrize(
    ("page", "label"),
    [
        ("position/sums", "eq-other"),
        ("other", "eq-sum-of-two"),
        ("api/sums", "eq-sum-of-two"),
    ],
)
def test_an_equation_without_a_test_has_a_number_only(app, page, label):
    assert linked(app, page, label) == EQUATION.format(label)


def test_other_builders_have_no_such_pages(app):
    app.builder.name = "revealjs"
    assert list(tested.show(app)) == []
    assert "_tests" not in linked(app, "position/sums", "eq-sum-of-two")
