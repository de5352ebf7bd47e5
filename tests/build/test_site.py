"""The site around the pages, on a small one: policy, weight, search, thumbnails, map."""

import io
import re

import numpy as np
import pytest
from PIL import Image
from pygments.styles import get_style_by_name
from pygments.token import Comment, Keyword, Number, String, Text

from docs._ext.book import site as extension
from posattn import figures
from tests.audit import chromium
from tests.build.books import FIGURE, ROOT, build, cell
from tests.conftest import need
from tests.library.test_figures import luminance

STATIC = ROOT / "docs" / "_static"
pytestmark = pytest.mark.slow  # small books

INJECT = """document.body.append(
    Object.assign(document.createElement("script"), { textContent: "window.broken = true" }))"""
ADDRESS = "https://example.org/book"
CONF = f"""
html_theme = "furo"
html_css_files = ["book.css"]
html_js_files = [(name, {{"loading_method": "defer"}}) for name in ("scrollers.js", "explorers.js")]
html_search_scorer = {str(STATIC / "scorer.js")!r}
html_baseurl = {ADDRESS!r}
html_context = {{"site": {ADDRESS!r}}}
myst_enable_extensions += ["colon_fence", "deflist"]
"""
LINES = "\n\n".join(["A sentence of seven words stands here."] * 40)
PAGES = {
    "long": "".join(f"## Part {k}\n\n{LINES}\n\n" for k in range(12)),
    "chapter": "Rotary encodings turn pairs.\n\n## Rotary\n\n"
    + cell(FIGURE.format(last=3)),
    "api/rotary": "Rotary, rotary, rotary: the class of the library.\n\n## Rotary\n\nrotary\n",
    "cards": ":::{container} chapters\n{doc}`chapter`\n: Its first figure.\n\n"
    "{doc}`404`\n: It has none.\n:::\n\n$x^2$\n",
    "play": ":::{container} explorer explorer-clocks\nThe twin.\n:::\n",
    "404": "Nothing is here.\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "api").mkdir()
    made, code, said = build(folder, PAGES, settings=CONF)
    assert code == 0, said
    return made


@pytest.fixture(scope="module")
def browser():
    need(chromium.program(), chromium.MISSING)
    with chromium.started() as started:
        yield started


@pytest.mark.parametrize("page", ["index", "chapter", "api/rotary", "search", "genindex"])
def test_every_page_says_which_scripts_may_run_and_they_do(site, browser, page):
    text = (site / f"{page}.html").read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    scripts = re.search(r"script-src ([^;]*)", policy)[1]
    assert "unsafe" not in scripts
    said = []
    tab = browser.new_page()
    tab.on("console", lambda message: said.append(message.text))
    tab.goto((site / f"{page}.html").as_uri())
    assert tab.evaluate("document.body.dataset.theme") == "auto"  # by a script in the page
    assert [text for text in said if "Content Security" in text] == []
    tab.evaluate(INJECT)
    assert tab.evaluate("window.broken") is None
    tab.close()


def test_the_404_page_starts_its_links_at_the_address_of_the_site(site):
    text = (site / "404.html").read_text()
    assert f'<base href="{ADDRESS}/">' in text  # which a policy for one origin lets in
    assert "script-src 'self' 'sha256-" in text


def test_pages_load_no_style_that_they_do_not_use(site):
    styles = re.findall(
        r'<link rel="stylesheet"[^>]*href="([^"?]*)', (site / "index.html").read_text()
    )
    assert [style.rpartition("/")[2] for style in styles] == [
        "pygments.css",
        "furo.css",
        "book.css",
    ]
    assert "katex.min.css" in (site / "cards.html").read_text()


def test_the_script_of_the_explorers_is_where_one_is(site):
    found = {page: "explorers.js" in (site / f"{page}.html").read_text() for page in PAGES}
    assert [page for page, there in found.items() if there] == ["play"]


def test_styles_name_the_fonts_that_are_there():
    for style, folder in (("book.css", "fonts"), ("katex/katex.min.css", "katex/fonts")):
        path = STATIC / style
        asked = re.findall(r"url\(\"?([^)\"]*woff2)", path.read_text("utf-8"))
        named = {(path.parent / name).resolve() for name in asked}
        assert named == {font.resolve() for font in (STATIC / folder).glob("*.woff2")}


def test_a_link_to_a_part_lands_there_on_a_phone_which_lays_out_only_what_is_near(
    site, browser
):
    tab = browser.new_page(viewport={"width": 375, "height": 800})
    top = "document.getElementById('part-9').getBoundingClientRect().top"
    kept = "getComputedStyle(document.getElementById('part-3')).contentVisibility"
    tab.goto((site / "long.html").as_uri())
    assert tab.evaluate(kept) == "auto"
    tab.evaluate("location.hash = '#part-9'")
    tab.wait_for_timeout(500)
    assert 0 <= tab.evaluate(top) < 120
    tab.close()


def test_parameters_of_a_long_signature_are_lines_and_no_list():
    one, other = (f'<em class="sig-param">{name}</em>,' for name in "xy")
    lines = "".join(f'<span class="sig-line">{name}</span>\n' for name in (one, other))
    assert extension.mend(f"f(<dl>\n<dd>{one}</dd>\n<dd>{other}</dd>\n</dl>)") == (
        f'f(<span class="sig-lines">{lines}</span>)'
    )


def test_a_card_shows_the_first_figure_of_its_chapter_without_words(site):
    image = re.search(
        r'<img class="thumbnail" src="([^"]*)" alt="" loading="lazy" width="(\d+)" height="(\d+)"',
        (site / "cards.html").read_text(),
    )
    drawing = (site / image[1]).read_text()
    assert "<path" in drawing
    assert "15625)" not in drawing
    assert 'class="phone"' not in drawing
    assert "metadata" not in drawing
    drawn, used = (
        set(re.findall(rf'{name}="#?([^"]+)"', drawing)) for name in ("id", "href")
    )
    assert used <= drawn  # no letter that went is asked for
    size = [
        re.search(rf'<svg [^>]*{side}="([\d.]+)pt"', drawing)[1]
        for side in ("width", "height")
    ]
    assert [*image.groups()[1:]] == [str(round(float(x))) for x in size]
    assert not re.search(r"\d\.\d\d", drawing)


def test_a_card_of_a_chapter_without_a_figure_has_no_empty_box(site):
    cards = (site / "cards.html").read_text()
    assert cards.count('class="item"') == 2
    assert re.findall('class="thumbnail"', cards) == ['class="thumbnail"']


def test_the_search_finds_chapters_first_and_says_what_a_file_cannot_show(site, browser):
    tab = browser.new_page()
    tab.goto(f"{(site / 'search.html').as_uri()}?q=rotary")
    tab.wait_for_selector("ul.search li a")
    tab.wait_for_function("document.querySelectorAll('ul.search li').length > 1")
    found = tab.eval_on_selector_all("ul.search li a", "links => links.map(a => a.href)")
    assert "/api/" not in found[0]
    assert any("/api/" in link for link in found)
    assert "cannot show excerpts" in tab.inner_text("article")
    tab.close()


def test_a_known_address_stands_in_map_pages_and_picture(site):
    places = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text())
    assert places == [
        f"{ADDRESS}/{page}.html"
        for page in ("api/rotary", "cards", "chapter", "index", "long", "play")
    ]
    assert f"{ADDRESS}/sitemap.xml" in (site / "robots.txt").read_text()
    head = (site / "chapter.html").read_text()
    assert f'<link rel="canonical" href="{ADDRESS}/chapter.html">' in head
    assert f'<meta property="og:image" content="{ADDRESS}/_static/order.png">' in head
    assert f'<base href="{ADDRESS}/">' in (site / "404.html").read_text()


def order():
    """The figure of the first page, as its cell draws it, in the size of a picture for links."""
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    known = {}
    cell = page[page.index("import numpy") : page.index("figures.order(")]
    exec(cell, known)
    outputs = {kind: tuple(pair) for kind, pair in known["outputs"].items()}
    figure = figures.order(known["words"], known["other"], outputs)
    figure.set_size_inches(8, 4.2)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=150, facecolor="white")
    return Image.open(drawn).convert("RGB")


def test_the_picture_for_links_is_the_figure_of_the_first_page():
    kept = Image.open(STATIC / "order.png").convert("RGB")
    assert kept.size == (1200, 630)
    apart = np.abs(np.asarray(kept, float) - np.asarray(order(), float))
    assert apart.mean() < 0.5, "order().save(STATIC / 'order.png')"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_code_is_legible_and_its_words_strings_and_numbers_look_different(theme):
    conf, css = (
        (ROOT / name).read_text("utf-8") for name in ("conf.py", STATIC / "book.css")
    )
    name = re.search(rf'"(github-{theme}[^"]*)"', conf)[1]
    style = get_style_by_name(name)
    grounds = re.findall("--code-ground: (#[0-9a-f]{6})", css)
    ground = luminance(grounds[0] if theme == "light" else grounds[-1])
    assert (ground > 0.5) == (theme == "light")
    for token, look in style:
        if look["color"]:
            low, high = sorted([ground, luminance(f"#{look['color']}")])
            assert (high + 0.05) / (low + 0.05) >= 4.5, token
    shown = [style.style_for_token(t) for t in (Text, Comment, Keyword, Number, String)]
    assert len({look["color"] for look in shown}) == 5
