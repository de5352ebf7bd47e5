"""Pages on the site: tabs, code from scratch, numbers, figures, solutions, the library's own pages."""

import re

import pytest
from bs4 import BeautifulSoup

from tests.build.books import words

PIECES = {  # of which every line of HTML is ours: where they stand
    "a figure": ("pair", "figure"),
    "code from scratch": ("scratch", ".sd-tab-set .sd-tab-content"),
    "pasted numbers": ("scratch", "p:has(> .computed)"),
    "hidden cells": ("scratch", "details.behind"),
    "a place": ("scratch", ".place"),
    "a solution": ("solution", "details.solution"),
    "the index of exercises": ("exercises", ".exercise-index"),
    "a card of a chapter": ("reference/cards", ".chapters"),
    "a card of a scheme": ("reference/cards", ".scheme"),
}


def read(site, page):
    """The text of a page."""
    return (site / f"{page}.html").read_text("utf-8")


def article(site, page):
    """The article of a page."""
    text = read(site, page)
    return text[text.index("<article") : text.index("</article>")]


def outline(piece):
    """A piece of HTML with its code, equations and drawings in short."""
    for code in piece("pre"):
        code.string = code.get_text()
    for math in piece(class_="katex"):
        math.string = math.find("annotation").text
    for image in piece("img"):
        image["src"] = re.sub(r"\w{64}", "picture", image["src"])
    for drawing in piece("svg"):
        drawing.replace_with(f"<{drawing['class']} {drawing['aria-label']}>")
    return "\n".join(line for line in str(piece).splitlines() if line)


@pytest.mark.parametrize("name", PIECES)
def test_a_piece_has_the_html_that_was_read(site, name, snapshot):
    """If not, read it: `pytest tests/build/test_pages.py --snapshot-update`, and git shows what changes."""
    page, place = PIECES[name]
    piece = BeautifulSoup(article(site, page), "html.parser").select_one(place)
    assert outline(piece) == snapshot


def test_source_in_tabs_is_the_librarys_own_without_docstring(site):
    text = words(article(site, "pair"))
    assert text.count("def causal_mask(") == 2
    assert "return keys &lt;= queries" in text
    assert "Let each query attend" not in text
    html = article(site, "scratch")
    folded = html.partition('<details class="library">')[2].partition("</details>")[0]
    assert "<summary>The library's version: <code>causal_mask</code></summary>" in folded
    assert folded.index("It checks its arguments.") < folded.index("sd-tab-set")


def test_a_pair_draws_once_for_a_screen_and_a_phone_in_theme_colours(site):
    html = article(site, "pair")
    assert html.count("<pre><span></span>2\n</pre>") == 2
    wide, small = re.findall(r'<svg class="figure.*?</svg>', html, re.DOTALL)
    for svg in (wide, small):
        assert 'role="img" aria-label="waves"' in svg
        assert 'fill="currentColor"' in svg
        assert "var(--position, #" in svg
        assert "#000000" not in svg
    assert 'class="figure wide"' in wide
    assert 'class="figure phone"' in small


def test_code_from_scratch_and_its_comparison_stand_in_the_same_tabs(site):
    html = re.sub("<span[^>]*>|</span>", "", article(site, "scratch"))
    assert html.count('class="sd-tab-set docutils"') == 2  # these and the library's
    panel = html[html.index("From scratch") : html.index('data-sync-id="jax"')]
    assert panel.index("def causal(") < panel.index("Compared with the library")
    assert "equal: True" in panel


def test_a_pasted_number_leads_to_the_cell_that_computed_it_on_any_page(site):
    html, other = article(site, "scratch"), article(site, "first")
    for text, place, name in (
        (html, "#cell-5", "cell 5: hidden"),
        (other, "scratch.html#cell-5", "cell 5 of Scratch: hidden"),
    ):
        assert f'href="{place}" aria-description="computed by {name}">7.0</a>' in text
    behind = html[html.index('<details class="behind">') :]
    assert 'id="cell-5"' in behind
    assert 'id="cell-1"' not in behind
    assert "Behind this page" not in article(site, "solution")


def test_a_page_says_where_it_stands_how_long_it_takes_and_what_it_needs(site):
    # 500 words, an equation, two cells to read
    assert "Chapter 4 · 7 minutes · You need: Pair" in words(article(site, "scratch"))
    first = words(article(site, "first"))
    assert "Chapter 5 · 1 minute · No other chapter is needed" in first
    appendix = words(article(site, "appendix"))
    assert "Appendix A · 1 minute · No other chapter is needed" in appendix


def test_a_solution_is_folded_and_what_a_cell_prints_in_pieces_is_whole(site):
    html = article(site, "solution")
    folded = html[html.index('<details class="solution">') : html.index("</details>")]
    assert "<summary>Answer</summary>" in folded
    assert "forty-two" in folded
    assert "executed\n" in folded


def test_the_index_names_all_exercises_in_the_order_of_the_book(site):
    html = article(site, "exercises")
    index = html[html.index("exercise-index") : html.index("</dl>")]
    names = ["#larger-exercises", "#the-whole", "two.html#exercises"]
    names += ["two.html#twice-x", "two.html#three-times"]
    assert re.findall('href="([^"]+)"', index) == names
    for link in names:
        page, _, name = link.partition("#")
        assert f'id="{name}"' in (site / (page or "exercises.html")).read_text()


def test_a_signature_names_types_as_users_know_them_with_their_shapes(site):
    text = words(article(site, "api/rotary"))
    for said in (
        "x: Float[torch.Tensor, '*batch n d']",
        "x: Float[jax.Array, '*batch n d']",
        "x: Inexact[numpy.ndarray, '*shape']",
        "rng: numpy.random.Generator | None",
        "rng: torch.Generator | int",
        "mlx.MultiHeadAttention(dim: int, num_heads: int",  # below a class that is not there
    ):
        assert said in text


def test_dollars_in_a_docstring_are_mathematics(site):
    html = article(site, "api/rotary")
    assert "$" not in words(re.sub(r"<annotation.*?</annotation>", "", html))
    assert 'class="katex"' in html
