"""The room that a phone keeps for what it has not laid out: at least what is needed, and not much more."""

import pytest

from docs._ext import chromium
from tests.books import FIGURE, build, cell, need

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
    settings = 'extensions += ["assets", "heights"]\n'
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
