"""The book's own rules, and the extensions that enforce the others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
FRONT_MATTER = """---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3, language: python}
---
"""
CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "docs" / "_ext")!r})
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_design", "sphinxcontrib.bibtex",
              "sphinxcontrib.katex", "gates", "katex_assets", "pages", "twins"]
bibtex_bibfiles = ["references.bib"]
myst_enable_extensions = ["attrs_block", "dollarmath"]
nb_execution_mode = "force"
katex_prerender = True
katex_css_path = "katex/katex.min.css"
"""
FIGURE = """
from posattn import figures
figures.offsets([1, 2, {last}])
"""


def cell(code, tags="", alt="waves", figure=""):
    head = f"---\ntags: [{tags}]\nmystnb:\n  image: {{{f'alt: {alt}' if alt else ''}}}\n{figure}---\n"
    return f"```{{code-cell}} python\n{head}{code}\n```\n\n"


def build(folder, pages, bibliography=""):
    """Build a small book and return its folder, its exit code and what was said."""
    (folder / "conf.py").write_text(CONF)
    (folder / "references.bib").write_text(bibliography)
    toctree = "\n".join(
        ["# Book", "```{toctree}", *(p for p in pages if p != "api"), "```"]
    )
    (folder / "index.md").write_text(toctree)
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(f"{FRONT_MATTER}# {name}\n\n{text}")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        str(folder),
        str(folder / "build" / "html"),
    ]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False
    )
    return folder / "build" / "html", result.returncode, result.stderr


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    numbered = "  figure: {name: fig-shared, caption: A caption}\n"
    return build(
        tmp_path_factory.mktemp("good"),
        {
            "pair": cell("print(1 + 1)\n" + FIGURE.format(last=3), "torch", figure=numbered)
            + cell("print(2)\n" + FIGURE.format(last=3), "jax")
            + "```{twins} masks:causal_mask\n```\n",
            "solution": "{.solution}\n## Answer\n\nforty-two\n\n"
            + cell("print('executed')")
            + "$x^2$\n",
        },
    )


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    return build(
        tmp_path_factory.mktemp("bad"),
        {
            "text": cell("print(1)", "torch") + cell("print(2)", "jax"),
            "drawing": cell(FIGURE.format(last=3), "torch")
            + cell(FIGURE.format(last=4), "jax"),
            "lonely": cell("print(1)", "torch") + "prose\n",
            "twin": "```{twins} masks:no_such_mask\n```\n",
            "alt": cell(FIGURE.format(last=3), alt=""),
        },
        "@misc{unread2024, title={Unread}, author={Nobody}, year={2024}}",
    )


def test_a_pair_of_cells_becomes_one_tab_set_that_prints_twice_and_draws_once(good):
    html = (good[0] / "pair.html").read_text()
    assert html.count('data-sync-id="torch"') == html.count('data-sync-id="jax"') == 2
    assert html.count("<pre><span></span>2\n</pre>") == 2
    assert html.count('<svg class="figure"') == 1


def test_source_in_tabs_is_the_librarys_own_without_docstring(good):
    html = re.sub("<[^>]+>", "", (good[0] / "pair.html").read_text())
    assert html.count("def causal_mask(") == 2
    assert "return _distances(n_q, n_k, device) &lt;= 0" in html
    assert "Let each query attend" not in html


def test_figures_are_drawn_with_the_colour_of_the_text_and_say_what_they_show(good):
    html = (good[0] / "pair.html").read_text()
    svg = html[html.index('<svg class="figure"') : html.index("</svg>")]
    assert "#000000" not in svg
    assert 'fill="currentColor"' in svg
    assert 'role="img" aria-label="waves"' in svg


def test_solutions_are_folded_without_a_script(good):
    html = (good[0] / "solution.html").read_text()
    folded = html[html.index('<details class="solution">') : html.index("</details>")]
    assert "<summary>Answer</summary>" in folded
    assert "forty-two" in folded
    assert "executed" in folded


def test_mathematics_is_rendered_by_the_build(good):
    html = (good[0] / "solution.html").read_text()
    assert 'class="katex"' in html
    assert "<math" in html
    assert (good[0] / "_static" / "katex" / "fonts" / "KaTeX_Main-Regular.woff2").is_file()
    assert "http" not in (good[0] / "_static" / "katex" / "katex.min.css").read_text()


@pytest.mark.parametrize(
    "message",
    [
        "text.md:9: WARNING: PyTorch and JAX print different text",
        "drawing.md:9: WARNING: PyTorch and JAX draw different figures",
        "lonely.md:9: WARNING: a cell tagged torch is not followed by one tagged jax",
        "no twin: posattn.torch.masks has no no_such_mask",
        "WARNING: a figure has no alt text",
        "unread2024 stands in references.bib but is not cited",
        "posattn.jax.causal_mask is public but not documented",
    ],
)
def test_the_build_names_each_fault(bad, message):
    assert bad[1] != 0
    assert message in bad[2]


def test_a_wrong_formula_fails_the_build(tmp_path):
    _, code, said = build(tmp_path, {"formula": "$\\notacommand{x}$\n"})
    assert code != 0
    assert "Undefined control sequence: \\notacommand" in said


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs"))
)
def test_every_page_keeps_the_rules(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    description = re.search(r"^    description: (.+)$", text, re.MULTILINE)
    assert description, "the front matter describes the page"
    assert 50 <= len(description[1]) <= 170
    for code in CELL.findall(text):
        assert not re.search(r"^\s*(def|class) ", code, re.MULTILINE), (
            "cells import, call, show"
        )


def test_every_concept_is_shown_by_its_source():
    shown = set(
        re.findall(
            r"\{twins\} (\w+):",
            "\n".join(page.read_text(encoding="utf-8") for page in PAGES),
        )
    )
    modules = {
        path.stem for path in (ROOT / "src" / "posattn" / "reference").glob("[a-z]*.py")
    }
    assert modules <= shown
