"""The book on paper and as an EPUB, and what its proofreader finds."""

import re
import subprocess
import sys
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest

from tests.build.books import ROOT


@pytest.fixture(scope="module")
def paper(book):
    """The LaTeX of the book."""
    return next(book("latex").glob("*.tex")).read_text("utf-8")


@pytest.fixture(scope="module")
def packed(book):
    """The EPUB, opened."""
    with ZipFile(next(book("epub").glob("*.epub"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def ebook(packed):
    """The texts of the EPUB, by name."""
    texts = (".xhtml", ".opf", ".ncx", ".css")
    return {n: packed.read(n).decode() for n in packed.namelist() if n.endswith(texts)}


def test_paper_has_one_framework_and_each_figure_once(paper):
    page = paper[paper.index(r"\chapter{Pair}") : paper.index(r"\chapter{Scratch}")]
    assert page.count("tag_torch") == 1
    assert "tag_jax" not in page
    assert "JAX" not in page
    assert page.count(r"\caption{A caption}") == page.count("includegraphics") == 1


def test_appendices_are_counted_in_letters(paper):
    before, after = paper.split(r"\appendix")
    assert r"\chapter{Appendix}" in after
    assert r"\chapter{" not in after.replace(r"\chapter{Appendix}", "")
    assert r"\chapter{Scratch}" in before


def test_code_asks_for_room_with_what_it_printed(paper):
    assert re.search(r"\\roomfor\{\d+\}[^%]{0,200}\\begin\{sphinxVerbatim\}", paper)


def test_the_name_of_a_place_is_written_once(paper):
    assert paper.count(r"\label{\detokenize{scratch:sec-named}}") == 1


def test_what_only_a_screen_needs_and_pages_for_contributors_are_left_out(paper, ebook):
    assert "Press the button" not in paper
    assert "Press the button" not in ebook["pair.xhtml"]
    assert "for contributors" not in paper
    assert "reference/sources.xhtml" not in ebook
    assert not any(name.startswith("api/") for name in ebook)


def test_solutions_are_printed_plainly(paper, ebook):
    assert "forty\\sphinxhyphen{}two" in paper
    assert "forty-two" in ebook["solution.xhtml"]
    assert "<details" not in ebook["solution.xhtml"]


def test_theorems_equations_and_what_refers_to_them_are_numbered(paper, ebook):
    assert r"\label{equation:pair:eq_sum}" in paper
    assert r"\eqref{equation:pair:eq_sum}" in paper
    assert "Theorem 2" in ebook["pair.xhtml"]
    assert 'href="#thm-sum"' in ebook["pair.xhtml"]


def test_an_ebook_begins_with_its_type_as_it_is_and_has_the_date_of_its_release(packed):
    first, *others = packed.infolist()
    assert (first.filename, first.compress_type) == ("mimetype", ZIP_STORED)
    assert {each.compress_type for each in others} == {ZIP_DEFLATED}
    assert {each.date_time for each in (first, *others)} == {(2026, 1, 1, 0, 0, 0)}


def test_an_ebook_has_mathml_pictures_and_no_script(ebook):
    page = ebook["pair.xhtml"]
    assert "<math" in page
    assert "katex-html" not in page
    assert "<svg" not in page
    assert re.search(r'<img[^>]* src="_images/\w+\.svg"', page)
    assert re.search(r'href="pair.xhtml"[^>]* properties="mathml"', ebook["content.opf"])
    assert not re.search(r'href="first.xhtml"[^>]* properties', ebook["content.opf"])
    assert not [name for name, text in ebook.items() if "<script" in text]


def test_a_link_out_of_the_ebook_is_text_and_one_inside_leads_there(ebook):
    page = ebook["other.xhtml"]
    assert 'href="pieces.xhtml"' in page
    assert "what no ebook holds" in page
    assert "api/rotary" not in page


def test_the_log_of_latex_is_read(tmp_path):
    log = tmp_path / "book.log"
    good = "Overfull \\hbox (4.9pt too wide) in paragraph at lines 1--2"
    wrong = [good.replace("4.9", "5.1"), "Missing character: There is no x in font y!"]
    for lines in ([good], [good, *wrong]):
        log.write_text("\n".join(["This is XeTeX", *lines, ""]))
        proof = [sys.executable, str(ROOT / ".ci" / "proofread.py"), str(log)]
        done = subprocess.run(proof, capture_output=True, text=True, check=False)
        assert done.returncode == (lines != [good])
        assert [line for line in [good, *wrong] if line in done.stderr] == lines[1:]
