"""A test of a page quotes in its docstring the words that it proves: each paragraph stands on the page.

White space and marks do not count, and an ellipsis stands for a pasted number.
Every labelled equation has a test of its own, which quotes it and asserts.
"""

import ast

import pytest

from tests.pages.reading import (
    PAGES,
    bare,
    equations,
    functions_of,
    page_of,
    pages_with_tests,
    quotes,
)


@pytest.mark.parametrize("name", pages_with_tests())
def test_every_quote_stands_on_its_page(name):
    words = bare(page_of(name).text)
    for function in functions_of(name):
        for quote in quotes(function):
            assert quote, f"{function.name} quotes nothing in its docstring"
            assert bare(quote) in words, (
                f"{name}.md does not say what {function.name} quotes: {quote}"
            )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_labelled_equation_has_a_test(path):
    known = {function.name: function for function in functions_of(path.stem)}
    for label, latex in equations(path.read_text(encoding="utf-8")).items():
        name = "test_" + label.replace("-", "_")
        assert name in known, f"{label} has no test: write {name} in tests/pages"
        quoted = bare("".join(quotes(known[name])))
        assert bare(latex) in quoted, f"{name} must quote its equation: {latex}"
        asserts = [node for node in ast.walk(known[name]) if isinstance(node, ast.Assert)]
        assert asserts, f"{name} asserts nothing"
