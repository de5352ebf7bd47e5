"""The gate between equations and checks, figures and looks, on small books, and its command."""

import re
import subprocess
import sys

import pytest

from docs._ext import checks
from tests import noted
from tests.books import ROOT, build, cell

pytestmark = pytest.mark.slow  # small books

EQUATION = "$$ a + b = {} $$ ({})\n\n"
CHECK = cell("assert 1 + 2 == 3").replace("tags: []\n", "checks: {BOUND}\n")
SEEN = checks.fingerprint("a + b = c")
FIGURE = """figure: {name: NAME, caption: A wave}
  image: {alt: a wave}
seen: new
"""

# What does not belong together: the page, and what is said of it.
APART = {
    "unchecked": ("c", "", "no cell checks the equation eq_unchecked"),
    "new": (
        "c",
        "eq_new: new",
        f"cell 1 checks eq_new, of which it knows new, and which is {SEEN} now",
    ),
    "changed": (
        "d",
        f'eq_changed: "{SEEN}"',
        f"cell 1 checks eq_changed, of which it knows {SEEN}, and which is",
    ),
    "lost": ("c", f'eq_gone: "{SEEN}"', "cell 1 checks eq_gone, which no page has"),
}
LOOKED = {
    "caption": ("A wave", "No wave"),
    "words": ("alt: a", "alt: the"),
    "cell": ("3]", "4]"),
}
TYPED = {
    "comma": ("Of 1,001 words some are short.", "1,001"),
    "point": ("Half is $0.5$, not 0.6.", "0.6"),
}
UNSAID = {"untrue": ("1 == 2", "False"), "undefined": ("0 * float('inf')", "nan")}


def page(right, bound, label="eq_sum"):
    return EQUATION.format(right, label) + (CHECK.replace("BOUND", bound) if bound else "")


def figure(name, *changed):
    """A page with a figure that was seen, and what has changed since."""
    show = cell("from posattn import figures\nfigures.offsets([1, 2, 3])", "remove-input")
    show = show.replace("image: {alt: waves}\n", FIGURE.replace("NAME", name))
    seen = checks.fill(show, {})
    return seen.replace(*changed) if changed else seen


def built(folder, pages):
    """Build a book of these pages."""
    settings = 'extensions.extend(["checks", "prose"])\n'
    return build(folder, pages, settings=settings + "suppress_warnings = ['toc']\n")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    other = EQUATION.format("c", "eq_sum")
    pages = {
        "one": page("c", f'eq_sum: "{SEEN}"') + EQUATION.format("c", "eq_far"),
        "two": page("c", f'eq_far: "{SEEN}"').replace(other, ""),
        "figure": figure("fig-good"),
        "numbers": cell("print(6 * 7, 1000)")
        + "Of 1,000 words 42 are short, as $x = 0.5$ says; see `7.5`.\n",
        "said": cell("print(1 == 2)")
        + "It is not: false.\n\n"
        + cell("float('nan')  # NaN")
        + "\n# Next\n\n"
        + cell("print('no nan:', 0 * float('inf'))")
        + cell("print(1 == 2)", "remove-cell"),
    }
    folder = tmp_path_factory.mktemp("good")
    return built(folder, pages)


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    pages = {
        name: page(right, bound, f"eq_{name}") for name, (right, bound, _) in APART.items()
    }
    pages |= {name: figure(f"fig-{name}", *change) for name, change in LOOKED.items()}
    numbers = cell("print(6 * 7, 1000)")
    pages |= {name: f"{numbers}{words}\n" for name, (words, _) in TYPED.items()}
    pages |= {
        name: f"{cell(f'print({code})  # no')}It is.\n"
        for name, (code, _) in UNSAID.items()
    }
    return built(tmp_path_factory.mktemp("bad"), pages)


def said_of(book, name):
    """The warnings about a page."""
    return [line for line in book[2].splitlines() if f"{name}.md" in line]


def test_a_book_with_nothing_wrong_is_built(good):
    _, code, said = good
    assert (code, "WARNING" in said) == (0, False)


def test_the_number_of_an_equation_leads_to_its_check(good):
    html = (good[0] / "one.html").read_text(encoding="utf-8")
    assert re.search(
        r'<span class="eqno"><a class="checked" href="#cell-1"[^>]*>\(1\)', html
    )
    assert 'id="cell-1"' in html


def test_a_check_may_stand_on_another_page(good):
    html = (good[0] / "one.html").read_text(encoding="utf-8")
    assert 'href="two.html#cell-1"' in html


@pytest.mark.parametrize("name", APART)
def test_what_does_not_belong_together_fails_the_build(bad, name):
    assert bad[1] == 1
    assert APART[name][2] in bad[2]


def test_what_is_said_of_faults_is_what_was_noted(bad):
    noted.compare_faults("checks", bad[2])


def test_the_command_writes_fingerprints_where_a_check_is_new(tmp_path):
    path, other = tmp_path / "one.md", page("d", "eq_sum: '00000000'")
    path.write_text(page("c", "eq_sum: new"))
    (tmp_path / "two.md").write_text(other.replace("eq_sum", "eq_other"))
    script = ROOT / "docs" / "_ext" / "checks.py"
    pages = [path, tmp_path / "two.md"]
    subprocess.run([sys.executable, script, *pages], check=True, timeout=60)
    assert path.read_text() == page("c", f'eq_sum: "{SEEN}"')
    assert (tmp_path / "two.md").read_text() == other.replace("eq_sum", "eq_other")


def test_white_space_does_not_change_an_equation():
    assert checks.fingerprint(" a+b\n= c") == SEEN
    assert checks.equations("$$ x $$ and $$ a + b = c $$ (eq_sum)") == {"eq_sum": SEEN}


@pytest.mark.parametrize("name", LOOKED)
def test_a_figure_was_seen_with_its_caption_and_its_words(bad, name):
    said = said_of(bad, name)
    assert any("nobody has looked at the figure of cell 1" in line for line in said)


@pytest.mark.parametrize("name", TYPED)
def test_a_typed_number_stands_in_a_cell_or_an_equation(bad, name):
    (said,) = said_of(bad, name)
    assert f"{TYPED[name][1]} is typed" in said


@pytest.mark.parametrize("name", UNSAID)
def test_what_looks_like_a_fault_is_said_to_be_none(bad, name):
    (said,) = said_of(bad, name)
    assert f"a cell prints {UNSAID[name][1]}, and no word around it says so" in said
