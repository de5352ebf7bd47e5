"""The site around the pages, on a small one: policy, weight, search, thumbnails, map."""

import re

import pytest
from fontTools.ttLib import TTFont

from docs._ext.book import chromium, website
from tests.build.books import FIGURE, ROOT, build, cell
from tests.conftest import need

import website

pytestmark = pytest.mark.slow  # small books

INJECT = """document.body.append(
    Object.assign(document.createElement("script"), { textContent: "window.broken = true" }))"""
ADDRESS = "https://example.org/book"
CONF = f"""
extensions += ["book.assets", "book.website"]
html_theme = "furo"
html_static_path = [{str(ROOT / "docs" / "_static")!r}]
html_css_files = ["book.css"]
html_js_files = [("scrollers.js", {{"defer": "defer"}})]
html_search_scorer = {str(ROOT / "docs" / "_static" / "scorer.js")!r}
html_baseurl = {ADDRESS!r}
myst_enable_extensions += ["colon_fence", "deflist"]
"""
PAGES = {
    "chapter": "Rotary encodings turn pairs.\n\n## Rotary\n\n"
    + cell(FIGURE.format(last=3)),
    "api/rotary": "Rotary, rotary, rotary: the class of the library.\n\n## Rotary\n\nrotary\n",
    "cards": ":::{container} chapters\n{doc}`chapter`\n: Its first figure.\n:::\n\n$x^2$\n",
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


def test_fonts_hold_the_characters_of_the_site(site):
    fonts = site / "_static" / "fonts"
    assert {path.suffix for path in fonts.iterdir()} == {".woff2", ".txt"}
    for path in fonts.glob("*.woff2"):
        assert path.stat().st_size < 15_000
    asked = re.findall(
        r'url\("(fonts/[^"]*)"\)', (site / "_static" / "book.css").read_text()
    )
    assert sorted(asked) == sorted(f"fonts/{path.name}" for path in fonts.glob("*.woff2"))
    kept = set(map(chr, TTFont(fonts / "source-serif-4-400-normal.woff2").getBestCmap()))
    assert {*map(chr, range(32, 127)), "©"} <= kept
    assert "ý" not in kept


def test_parameters_of_a_long_signature_are_lines_and_no_list():
    one, other = (f'<em class="sig-param">{name}</em>,' for name in "xy")
    lines = "".join(f'<span class="sig-line">{name}</span>\n' for name in (one, other))
    assert website.mend(f"f(<dl>\n<dd>{one}</dd>\n<dd>{other}</dd>\n</dl>)") == (
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
        f"{ADDRESS}/{page}.html" for page in ("api/rotary", "cards", "chapter", "index")
    ]
    assert f"{ADDRESS}/sitemap.xml" in (site / "robots.txt").read_text()
    head = (site / "chapter.html").read_text()
    assert f'<link rel="canonical" href="{ADDRESS}/chapter.html">' in head
    assert f'<meta property="og:image" content="{ADDRESS}/_static/order.png">' in head
    picture = (site / "_static" / "order.png").read_bytes()
    assert [int.from_bytes(picture[k : k + 4]) for k in (16, 20)] == [1200, 630]
    assert f'<base href="{ADDRESS}/">' in (site / "404.html").read_text()
