"""The room that a phone keeps for what it has not laid out: at least what is needed, and not much more."""

from types import SimpleNamespace

import pytest
from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes

from docs._ext.book import chromium, heights
from tests.build.books import FIGURE, build, cell
from tests.conftest import need

pytestmark = pytest.mark.slow  # small books

WORDS = "A sentence of seven words stands here. " * 12
PAGES = {
    "one": f"## Words\n\n{WORDS}\n\n## Code\n\n"
    + cell("\n".join(f"print({k})" for k in range(12)))
    + "## Figure\n\n"
    + cell(FIGURE.format(last=3), "remove-input")
    + "## Pair\n\n"
    + cell("print(1)", "torch")
    + cell("print(1)", "jax")
    + "## Equation and table\n\n$$ a \\\\ b $$\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
}
SIZES = """[...document.querySelectorAll("section section")].map((section) => {
    const kept = parseFloat(getComputedStyle(section).getPropertyValue("--tall"));
    section.style.contentVisibility = "visible";
    return [kept, section.getBoundingClientRect().height];
})"""


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    need(chromium.program(), chromium.MISSING)
    settings = 'extensions += ["book.assets", "book.heights"]\n'
    out, code, said = build(tmp_path_factory.mktemp("tall"), PAGES, settings=settings)
    assert code == 0, said
    with chromium.started() as browser:
        page = browser.new_page(viewport={"width": 375, "height": 800})
        page.goto((out / "one.html").as_uri())
        return page.evaluate(SIZES)


def test_each_section_has_room_enough(sizes):
    assert len(sizes) == 5
    assert all(kept >= needed for kept, needed in sizes), sizes


def test_the_room_is_not_much_too_large(sizes):
    assert sum(kept for kept, _ in sizes) < 3 * sum(needed for _, needed in sizes), sizes


def paragraph(letters):
    return nodes.paragraph("", "x" * letters)


@pytest.mark.parametrize(
    ("node", "pixels"),
    [
        (nodes.Text("x"), 0),
        (nodes.comment("", "x" * 90), 0),
        (paragraph(40), 50),
        (paragraph(81), 110),
        (nodes.section("", paragraph(1), paragraph(1)), 100),
        (nodes.section("", paragraph(99), classes=["solution"]), 20),
        (nodes.container("", paragraph(99), classes=["cell", "tag_jax"]), 20),
        (nodes.container("", paragraph(99), classes=["tag_remove-cell"]), 20),
        (nodes.literal_block("", "a\nb\nc"), 100),
        (nodes.math_block("", r"a \\ b"), 144),
        (nodes.title("", "x" * 29), 80),
        (nodes.title("", "x" * 65), 140),
        (addnodes.desc_signature("", "", nodes.Text("x" * 30)), 110),
        (nodes.row("", nodes.entry("", paragraph(5)), nodes.entry("", paragraph(70))), 138),
        (addnodes.desc("", paragraph(1)), 62.5),
        (nodes.image(uri="wide.svg"), 190),
        (nodes.image(uri="plain.svg"), 330),
        (nodes.image(uri="picture.png"), 330),
    ],
)
def test_each_kind_of_node_has_its_height(node, pixels, tmp_path):
    (tmp_path / "wide.svg").write_text('<svg class="phone" id="a" viewBox="0 0 100 50">')
    (tmp_path / "plain.svg").write_text('<svg viewBox="0 0 100 50">')
    document = new_document("page")
    document.settings.env = SimpleNamespace(srcdir=tmp_path)
    noter = heights.NoteHeights(document)
    assert noter.height(node) == pixels


@pytest.mark.parametrize(
    ("paragraphs", "name"),
    [(0, "tall-0"), (4, "tall-1"), (10, "tall-4"), (2000, "tall-16")],
)
def test_a_section_has_the_class_of_its_height(paragraphs, name):
    """A title has 80 pixels and a paragraph 50; a class holds 200 times the square root of 2 to its power."""
    body = [paragraph(1) for _ in range(paragraphs)]
    part = addnodes.desc("")
    inner = nodes.section("", nodes.title("", "x"), *body, part)
    document = new_document("page")
    document += nodes.section("", nodes.title("", "x"), inner)
    noter = heights.NoteHeights(document)
    noter.run()
    assert inner["classes"] == [name]
    assert part["classes"] == ["tall-0"]
    assert document[0]["classes"] == []
