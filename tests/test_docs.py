"""The book's own rules, and the extensions that enforce the others."""

import re

import pytest

from tests.books import FIGURE, ROOT, build, cell

PAGES = sorted((ROOT / "docs").rglob("*.md"))
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)


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
    if not page.name.startswith("_"):  # a part of the slides
        description = re.search(r"^    description: (.+)$", text, re.MULTILINE)
        assert description, "the front matter describes the page"
        assert 50 <= len(description[1]) <= 170
    for code in CELL.findall(text):
        assert not re.search(r"^\s*(def|class) ", code, re.MULTILINE), (
            "cells import, call, show"
        )


# schemes whose reference docstring is their article until a page of their own follows
WITHOUT_PAGE = {
    *(
        "alibi",
        "axial",
        "cope",
        "disentangled",
        "fire",
        "forgetting",
        "kerple",
        "randomized",
    ),
    *(
        "relative",
        "sandwich",
        "scaling",
        "swin",
        "t5",
        "transformer_xl",
        "tupe",
        "xpos",
    ),
}


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
    assert modules - shown == WITHOUT_PAGE


ROWS = [
    line
    for line in (ROOT / "docs" / "sources.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "| Here |" not in line
]


def exists(target):
    """Whether a role of a row points at something that a page defines, or its path at a file or test."""
    role, name = target
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return {
        "doc": lambda: any(
            (ROOT / "docs" / f"{name}.{kind}").is_file() for kind in ("md", "rst")
        ),
        "ref": lambda: f"({name})=\n" in text,
        "eq": lambda: f"$$ ({name})\n" in text,
        "numref": lambda: f"name: {name}\n" in text,
        "prf:ref": lambda: f":label: {name}\n" in text,
        "test": lambda: re.search(
            rf"^def {name.partition('::')[2]}\(",
            (ROOT / name.partition("::")[0]).read_text(),
            re.M,
        ),
        "path": lambda: (ROOT / name).is_file(),
    }[role]()


def targets(row):
    """What the last column of a row points at: roles, tests and files."""
    here = row.rstrip(" |").rpartition(" | ")[2]
    for role, name in re.findall(r"(?:\{([\w:]+)\})?`([^`]+)`", here):
        yield role or ("test" if "::" in name else "path"), name


@pytest.mark.parametrize("row", ROWS, ids=[row[2:60] for row in ROWS])
def test_every_line_of_the_sources_has_a_place_that_exists(row):
    found = list(targets(row))
    assert found
    assert [target for target in found if not exists(target)] == []


def test_a_place_that_does_not_exist_is_noticed():
    row = "| x | {doc}`no_page`, {eq}`eq_no`, `tests/test_docs.py::test_no`, `docs/no.md` |"
    assert [exists(target) for target in targets(row)] == [
        False,
        False,
        None,
        False,
    ]
