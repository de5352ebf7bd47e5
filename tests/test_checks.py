"""The gate between equations and checks, figures and looks, on small books, and its command."""

import re
import subprocess
import sys

import pytest

from docs._ext import checks
from tests.books import ROOT, build, cell

EQUATION = "$$ a + b = {} $$ (eq_sum)\n\n"
CHECK = cell("assert 1 + 2 == 3").replace("tags: []\n", "checks: {BOUND}\n")


def page(right, bound):
    return EQUATION.format(right) + (CHECK.replace("BOUND", bound) if bound else "")


@pytest.fixture(scope="module")
def fingerprint():
    """That of the equation as the pages have it."""
    return checks.fingerprint("a + b = c")


def built(tmp_path, pages):
    settings = 'extensions.remove("gates")\nextensions.extend(["checks", "prose"])\n'
    out, code, said = build(tmp_path, pages, settings=settings)
    return out, code, said


def test_the_number_of_an_equation_leads_to_its_check(tmp_path, fingerprint):
    there = CHECK.replace("BOUND", f'eq_sum: "{fingerprint}"')
    pages = {"one": page("c", f'eq_sum: "{fingerprint}"'), "two": there}
    out, code, said = built(tmp_path, pages)
    assert (code, "WARNING" in said) == (0, False)
    html = (out / "one.html").read_text(encoding="utf-8")
    assert re.search(
        r'<span class="eqno"><a class="checked" href="#cell-1"[^>]*>\(1\)', html
    )
    assert 'id="cell-1"' in html


def test_a_check_may_stand_on_another_page(tmp_path, fingerprint):
    pages = {"one": page("c", ""), "two": page("c", f'eq_sum: "{fingerprint}"')}
    pages["two"] = pages["two"].replace(EQUATION.format("c"), "")
    out, code, said = built(tmp_path, pages)
    assert (code, "WARNING" in said) == (0, False)
    html = (out / "one.html").read_text(encoding="utf-8")
    assert 'href="two.html#cell-1"' in html


@pytest.mark.parametrize(
    ("right", "bound", "fault"),
    [
        ("c", "", "no cell checks the equation eq_sum"),
        (
            "c",
            "eq_sum: new",
            "cell 1 checks eq_sum, of which it knows new, and which is {} now",
        ),
        ("d", 'eq_sum: "{}"', "cell 1 checks eq_sum, of which it knows {}, and which is"),
        ("c", 'eq_gone: "{}"', "cell 1 checks eq_gone, which no page has"),
    ],
)
def test_what_does_not_belong_together_fails_the_build(
    tmp_path, fingerprint, right, bound, fault
):
    _, code, said = built(tmp_path, {"one": page(right, bound.format(fingerprint))})
    assert code == 1
    assert fault.format(fingerprint) in said


def test_the_command_writes_fingerprints_where_a_check_is_new(tmp_path, fingerprint):
    path, other = tmp_path / "one.md", page("d", "eq_sum: '00000000'")
    path.write_text(page("c", "eq_sum: new"))
    (tmp_path / "two.md").write_text(other.replace("eq_sum", "eq_other"))
    script = ROOT / "docs" / "_ext" / "checks.py"
    pages = [path, tmp_path / "two.md"]
    subprocess.run([sys.executable, script, *pages], check=True, timeout=60)
    assert path.read_text() == page("c", f'eq_sum: "{fingerprint}"')
    assert (tmp_path / "two.md").read_text() == other.replace("eq_sum", "eq_other")


def test_white_space_does_not_change_an_equation(fingerprint):
    assert checks.fingerprint(" a+b\n= c") == fingerprint
    assert checks.equations("$$ x $$ and $$ a + b = c $$ (eq_sum)") == {
        "eq_sum": fingerprint
    }


FIGURE = """figure: {name: fig-one, caption: A wave}
  image: {alt: a wave}
seen: new
"""


@pytest.mark.parametrize(
    "changed", [None, ("A wave", "No wave"), ("alt: a", "alt: the"), ("3]", "4]")]
)
def test_a_figure_was_seen_with_its_caption_and_its_words(tmp_path, changed):
    show = cell("from posattn import figures\nfigures.offsets([1, 2, 3])", "remove-input")
    show = show.replace("image: {alt: waves}\n", FIGURE)
    seen = checks.fill(show, {})
    _, code, said = built(tmp_path, {"one": seen.replace(*changed) if changed else seen})
    assert (code == 1) == bool(changed)
    assert ("nobody has looked at the figure of cell 1" in said) == bool(changed)


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("Of 1,000 words 42 are short, as $x = 0.5$ says; see `7.5`.", None),
        ("Of 1,001 words some are short.", "1,001"),
        ("Half is $0.5$, not 0.6.", "0.6"),
    ],
)
def test_a_typed_number_stands_in_a_cell_or_an_equation(tmp_path, sentence, wrong):
    _, code, said = built(tmp_path, {"one": cell("print(6 * 7, 1000)") + sentence + "\n"})
    assert (code == 1) == bool(wrong)
    assert (f"{wrong} is typed" in said) == bool(wrong)


@pytest.mark.parametrize(
    ("sentence", "again"),
    [("All 3 are red.", False), ("All three are red.", True), ("All 4 are red.", True)],
)
def test_sentences_with_numbers_were_read(tmp_path, sentence, again):
    page = "---\nread: new\n---\n# One\n\nAll 3 are red.\nNo number.\n\n```\n7\n```\n"
    read = checks.fill(page, {}).replace("All 3 are red.", sentence).replace("7", "8")
    settings = 'extensions.remove("gates")\nextensions.append("checks")\n'
    (tmp_path / "one.md").write_text(read.replace("No number", "None"))
    _, code, said = build(tmp_path, {}, settings=settings + "suppress_warnings = ['toc']\n")
    assert (code == 1) == again
    assert ("nobody has read the sentences with numbers" in said) == again
