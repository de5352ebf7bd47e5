"""The book's own rules, and the extensions that enforce the others."""

import re

import pytest

from docs._ext.book import chromium
from tests.build.books import ASSETS, FIGURE, ROOT, build, cell
from tests.conftest import need

pytestmark = pytest.mark.slow  # small books

PAGES = sorted((ROOT / "docs").rglob("*.md"))
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
SCRATCH = "import numpy as np\ndef causal(n):\n    return np.tri(n) > 0\n"
LIBRARY = "from posattn.reference import causal_mask\n"
SAME = (
    LIBRARY
    + "same = (causal(3) == causal_mask(3)).all()\nprint('equal:', same)\nassert same"
)
# On a busy machine the kernel sends what a cell prints in pieces.
IN_PIECES = """import time
print("exe", end="", flush=True)
time.sleep(0.5)
print("cuted")"""


NUMBERED = "  figure: {name: fig-shared, caption: A caption}\n"
GOOD = {
    "pair": cell("print(1 + 1)\n" + FIGURE.format(last=3), "torch", figure=NUMBERED)
    + cell("print(2)\n" + FIGURE.format(last=3), "jax")
    + "```{twins} masks:causal_mask\n```\n",
    "solution": "{.solution}\n## Answer\n\nforty-two\n\n" + cell(IN_PIECES) + "$x^2$\n",
    "parts": ":::{place}\n{doc}`pair`\n:::\n\n"
    + "".join(cell(SCRATCH, f"{column}, scratch") for column in ("torch", "jax"))
    + "".join(cell(SAME, f"{column}, compare") for column in ("torch", "jax"))
    + cell(
        "from myst_nb import glue\nglue(f'{\"hid\"}den', 7, display=False)",
        "remove-cell",
    )
    + cell("glue('seen', 8, display=False)")
    + "There are {glue:text}`hidden:.1f` and {glue:text}`seen:d`.\n\n"
    + ":::{twins} masks:causal_mask\nIt checks its arguments.\n:::\n\n"
    + "word " * 500
    + "\n\n$$\nx\n$$\n",
    "first": "There are {glue:text}`parts.md::hidden:.1f`.\n\n:::{place}\n:::\n",
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return build(tmp_path_factory.mktemp("good"), GOOD, settings=ASSETS)


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
            "broken": cell("assert 1 > 2"),
            "place": ":::{place}\nOne.\n\nTwo.\n:::\n",
            "api": ":::{place}\n:::\n",
        },
    )


def test_a_pair_of_cells_becomes_one_tab_set_that_prints_twice_and_draws_once(good):
    html = (good[0] / "pair.html").read_text()
    assert html.count('data-sync-id="torch"') == html.count('data-sync-id="jax"') == 2
    assert html.count("<pre><span></span>2\n</pre>") == 2
    assert html.count('<div class="drawing">') == 1


def test_source_in_tabs_is_the_librarys_own_without_docstring(good):
    html = re.sub("<[^>]+>", "", (good[0] / "pair.html").read_text())
    assert html.count("def causal_mask(") == 2
    assert "return keys &lt;= queries" in html
    assert "Let each query attend" not in html


def test_figures_are_drawn_with_the_colour_of_the_text_and_say_what_they_show(good):
    html = (good[0] / "pair.html").read_text()
    svg = html[html.index('<svg class="figure') :]
    svg = svg[: svg.index("</svg>")]
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


def test_fonts_mathematics_and_slides_have_their_licences_beside_them(good):
    static = good[0] / "_static"
    fonts = {path.name for path in (static / "fonts").glob("*.woff2")}
    for family in ("source-serif-4", "source-sans-3", "source-code-pro"):
        assert "SIL OPEN FONT LICENSE" in (static / "fonts" / f"{family}.txt").read_text()
        fonts -= {path.name for path in (static / "fonts").glob(f"{family}-*.woff2")}
    assert fonts == set()
    for name, author in {"katex": "Khan Academy", "revealjs": "Hakim El Hattab"}.items():
        licence = (static / name / "LICENSE").read_text()
        assert author in licence
        assert "Permission is hereby granted, free of charge" in licence
        assert {path.suffix for path in (static / name).rglob("*")} & {".js", ".woff2"}


def parts(good):
    return (good[0] / "parts.html").read_text()


def test_a_page_says_where_it_stands_how_long_it_takes_and_what_it_needs(good):
    (place,) = re.findall('<p class="place">(.*?)</p>', parts(good))
    # 500 words, an equation, three cells to read
    assert re.sub("<[^>]+>", "", place) == "Chapter 3 · 5 minutes · You need: pair"
    first = (good[0] / "first.html").read_text()
    assert "Chapter 4 · 1 minute · No other chapter is needed" in first


def test_code_from_scratch_and_its_comparison_stand_in_the_same_tabs(good):
    html = re.sub("<span[^>]*>|</span>", "", parts(good))
    assert html.count('class="sd-tab-set docutils"') == 2  # these and the library's
    panel = html[html.index("From scratch") : html.index('data-sync-id="jax"')]
    assert panel.index("def causal(") < panel.index("Compared with the library")
    assert "equal: True" in panel


def test_the_librarys_version_is_folded_below_what_it_adds(good):
    html = parts(good)
    folded = html[html.index('<details class="library">') :]
    folded = folded[: folded.index("</details>")]
    assert "<summary>The library's version: <code>causal_mask</code></summary>" in folded
    assert folded.index("It checks its arguments.") < folded.index("sd-tab-set")


def test_a_pasted_number_leads_to_the_cell_that_computed_it(good):
    html = parts(good)
    mark = '<a class="computed" href="%s" aria-description="computed by %s">%s</a>'
    assert mark % ("#cell-5", "cell 5: hidden", "7.0") in html
    assert mark % ("#cell-6", "cell 6: seen", "8") in html
    assert (
        mark % ("parts.html#cell-5", "cell 5 of parts: hidden", "7.0")
        in (good[0] / "first.html").read_text()
    )
    assert re.findall('id="(cell-[0-9]+)"', html) == [
        f"cell-{n}" for n in (1, 3, 2, 4, 6, 5)
    ]
    behind = html[html.index('<details class="behind">') :]
    assert "Computes <code>hidden</code>" in behind
    assert 'id="cell-5"' in behind
    assert 'id="cell-6"' not in behind
    assert "Behind this page" not in (good[0] / "pair.html").read_text()


@pytest.mark.parametrize("width", [375, 1440])
def test_one_switch_chooses_the_framework_of_all_tabs_and_moves_nothing(good, width):
    pressed = "[...document.querySelectorAll('.framework button[aria-pressed=true]')].map(b => b.value)"
    shown = "[...document.querySelectorAll('.sd-tab-set > input:checked + label')].map(l => l.dataset.syncId)"
    address = (good[0] / "parts.html").as_uri()
    need(chromium.program(), chromium.MISSING)
    with chromium.started() as browser:
        page = browser.new_page(viewport={"width": width, "height": 400})
        page.goto(address)
        place = ".mobile-header" if width < 1000 else ".sidebar-sticky"
        assert page.evaluate(pressed) == ["torch", "torch"]
        # a taller tab, and a browser that holds nothing in its place, as Safari
        page.evaluate("document.documentElement.style.overflowAnchor = 'none'")
        tall = page.locator(".sd-tab-set").first.locator(".sd-tab-content").last
        tall.evaluate("node => { node.style.paddingBottom = '200px'; }")
        below = page.locator(".sd-tab-set").last
        page.locator("details.library").evaluate("details => { details.open = true; }")
        below.evaluate(
            "node => node.scrollIntoView({block: 'center', behavior: 'instant'})"
        )
        stood = below.bounding_box()["y"]
        page.locator(f"{place} .framework button", has_text="JAX").press("Enter")
        assert page.evaluate(shown) == ["jax", "jax"]
        assert page.evaluate(pressed) == ["jax", "jax"]
        assert abs(below.bounding_box()["y"] - stood) < 2
        assert page.url == address + "?framework=jax"
        page.goto((good[0] / "pair.html").as_uri())
        assert page.evaluate(shown) == ["jax", "jax"]  # remembered
        page.locator("label", has_text="PyTorch").first.click()
        assert page.evaluate(pressed) == ["torch", "torch"]
        page.goto(address + "?framework=jax")
        assert page.evaluate(pressed) == ["jax", "jax"]


@pytest.mark.parametrize(
    "message",
    [
        "text.md:9: WARNING: PyTorch and JAX print different text",
        "drawing.md:9: WARNING: PyTorch and JAX draw different figures",
        "lonely.md:9: WARNING: a cell tagged torch is not followed by one tagged jax",
        "no twin: posattn.torch has no no_such_mask",
        "WARNING: a figure has no alt text",
        "Executing notebook failed: CellExecutionError",
        "{place} holds one line of links, or nothing",
        "{place} stands on a page that no toctree of index lists",
    ],
)
def test_the_build_names_each_fault(bad, message):
    assert bad[1] != 0
    assert message in bad[2]


def test_a_wrong_formula_fails_the_build(tmp_path):
    _, code, said = build(tmp_path, {"formula": "$\\notacommand{x}$\n"}, settings=ASSETS)
    assert code != 0
    assert "Undefined control sequence: \\notacommand" in said


# What the page does not show: cells that are taken out, and what binds checks.
UNREAD = re.compile(
    r"^```\{code-cell\} python\n(?::tags: \[remove-cell\]\n|---\ntags: \[remove-cell\]\n).*?^```\n"
    r"|^(?:seen|checks): [^\n]*\n",
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs"))
)
def test_every_page_keeps_the_rules(page):
    text = page.read_text(encoding="utf-8")
    read = UNREAD.sub("", text)
    assert len(read.splitlines()) <= 300
    if not page.name.startswith("_"):  # a part of the slides
        description = re.search(r"^    description: (.+)$", text, re.MULTILINE)
        assert description, "the front matter describes the page"
        assert 50 <= len(description[1]) <= 170
    for code in CELL.findall(text):
        kinds = "class" if re.search(r"tags: \[.*\bscratch\b", code) else "def|class"
        assert not re.search(rf"^\s*({kinds}) ", code, re.MULTILINE), (
            "cells import, call, show"
        )


# schemes whose reference docstring is their article until a page of their own follows
WITHOUT_PAGE = {
    *(
        "alibi",
        "axial",
        "cope",
        "dape",
        "disentangled",
        "fire",
        "forgetting",
        "kerple",
        "polar",
        "randomized",
    ),
    *(
        "sandwich",
        "scaling",
        "stick_breaking",
        "swin",
        "swin_v2",
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
        path.stem for path in (ROOT / "src" / "posattn" / "reference").rglob("[a-z]*.py")
    }
    assert modules - shown == WITHOUT_PAGE


def test_the_glossary_has_a_sentence_or_two_and_a_link_for_each_word():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = text.partition("```{glossary}\n:sorted:\n")[2].partition("```")[0].strip()
    for entry in words.split("\n\n"):
        word, *said = entry.split("\n  ")
        assert len(said) == 1, word
        assert re.search(r"\(\{(doc|func)\}`[^`]+`\)\.$", said[0]), word
        assert len(re.findall(r"\. (?=[A-Z])", said[0])) <= 1, word


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
        "numref": lambda: re.search(rf"name: {name}[,}}\n]", text) is not None,
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
    row = "| x | {doc}`no_page`, {eq}`eq_no`, `tests/build/test_docs.py::test_no`, `docs/no.md` |"
    assert [exists(target) for target in targets(row)] == [
        False,
        False,
        None,
        False,
    ]
