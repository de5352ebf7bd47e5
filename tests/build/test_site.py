"""The site around the pages: policy, weight, fonts, search, and the switch."""

import re

from posattn.stories import CHECKPOINT
from tests.audit.site import served
from tests.build.books import ADDRESS, ROOT

STATIC = ROOT / "docs" / "_static"
INJECT = """document.body.append(
    Object.assign(document.createElement("script"), { textContent: "window.broken = true" }))"""
PRESSED = "[...document.querySelectorAll('.framework button[aria-pressed=true]')].map(b => b.value)"
SHOWN = "[...document.querySelectorAll('.sd-tab-set > input:checked + label')].map(l => l.dataset.syncId)"

THIRD = """document.addEventListener("DOMContentLoaded", () => {
    const set = document.querySelector(".sd-tab-set"), { name } = set.querySelector("input");
    set.insertAdjacentHTML("beforeend", `<input type="radio" name="${name}" id="third"><label for="third"
        data-sync-group="framework" data-sync-id="tensorflow">TensorFlow</label>`); })"""
MOVES = """[...document.querySelectorAll("*")].map((one) => getComputedStyle(one)).filter((style) =>
    style.scrollBehavior === "smooth" || parseFloat(style.transitionDuration) > 0).length"""
COPY = """document.querySelector(".highlight").innerHTML += '<button class="copybtn"></button>'"""


def read(site, page):
    """The text of a page."""
    return (site / f"{page}.html").read_text("utf-8")


def test_every_page_says_which_scripts_may_run(site):
    for page in ("index", "chapter", "api/rotary", "search", "genindex", "404"):
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', read(site, page))[
            1
        ]
        scripts = re.search(r"script-src ([^;]*)", policy)[1]
        assert re.findall(r"[\w-]*unsafe[\w-]*", scripts) == ["wasm-unsafe-eval"] * (
            page == "search"
        )


def test_scripts_of_the_page_run_and_no_others(site, browser):
    said, tab = [], browser.new_page()
    tab.on("console", lambda message: said.append(message.text))
    tab.goto((site / "chapter.html").as_uri())
    assert tab.evaluate("document.body.dataset.theme") == "auto"  # by a script in the page
    assert [text for text in said if "Content Security" in text] == []
    tab.evaluate(INJECT)
    assert tab.evaluate("window.broken") is None
    tab.close()


def test_pages_load_no_style_that_they_do_not_use(site):
    styles = re.findall(r'<link rel="stylesheet"[^>]*href="([^"?]*)', read(site, "404"))
    names = [style.rpartition("/")[2] for style in styles]
    assert names == ["pygments.css", "furo.css", "book.css"]
    assert "katex.min.css" in read(site, "solution")


def test_nothing_is_asked_of_another_site(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|source|iframe|link rel="(?:stylesheet|preload)")[^>]*?'
            r'(?:src|href)="([^"]*)"',
            page.read_text("utf-8"),
        )
        assert [url for url in loaded if re.match(r"\w+:|//", url)] == [], page
    for style in (site / "_static").rglob("*.css"):
        assert not re.search(r"url\(.?(https?:)?//|@import", style.read_text("utf-8")), (
            style
        )


def test_styles_name_the_fonts_that_are_there():
    for style, folder in (("book.css", "fonts"), ("katex/katex.min.css", "katex/fonts")):
        path = STATIC / style
        asked = re.findall(r"url\(\"?([^)\"]*woff2)", path.read_text("utf-8"))
        named = {(path.parent / name).resolve() for name in asked}
        assert named == {font.resolve() for font in (STATIC / folder).glob("*.woff2")}


def test_fonts_and_what_draws_mathematics_and_slides_have_their_licences_beside_them(site):
    static = site / "_static"
    families = {
        re.sub(r"-\d+-\w+(-common)?$", "", path.stem)
        for path in static.glob("fonts/*.woff2")
    }
    for family in families:
        assert "SIL OPEN FONT LICENSE" in (static / "fonts" / f"{family}.txt").read_text()
    for name, author in {"katex": "Khan Academy", "revealjs": "Hakim El Hattab"}.items():
        licence = (static / name / "LICENSE").read_text()
        assert author in licence
        assert "Permission is hereby granted, free of charge" in licence


def test_the_script_of_an_explorer_is_where_it_is(site):
    assert re.findall(r"explorers/(\w+)\.js", read(site, "chapter")) == ["panel", "swap"]
    assert "explorers" not in read(site, "pair")
    assert "decoder.js" not in read(site, "chapter")


def test_an_explorer_can_stand_in_another_page(site, browser):
    embedded = site / "embed" / "swap.html"
    asked = re.findall(r'(?:href|src)="(../_static/[^"]*)"', embedded.read_text())
    assert len(asked) == 4
    below = (site / "embed" / "pairs.html").read_text("utf-8")
    assert 'href="../reference/cards.html"' in below
    assert all((embedded.parent / name).is_file() for name in asked)
    tab = browser.new_page(viewport={"width": 320, "height": 600})
    tab.goto(embedded.as_uri())
    assert tab.locator(".is-live .tiles button").count() == 2
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
    tab.goto((site / "chapter.html").as_uri())
    tab.click(".embed summary")
    line = tab.text_content(".embed code:not(:empty)")
    assert f'src="{embedded.as_uri()}"' in line
    assert int(re.search(r'height="(\d+)"', line)[1]) > 200
    tab.close()


def test_the_weights_that_the_library_carries_stand_beside_the_others(site):
    folders = (site / "_static" / "decoders").iterdir()
    found = {path.name: (path / "model.safetensors").read_bytes() for path in folders}
    assert sorted(found) == ["alibi", "none", "rotary"]
    assert found["rotary"] == (CHECKPOINT / "model.safetensors").read_bytes()


def test_a_card_shows_the_first_figure_of_its_chapter_without_words(site):
    image = re.search(
        r'<img class="thumbnail" src="([^"]*)" alt=""', read(site, "reference/cards")
    )
    drawing = (site / "reference" / image[1]).read_text(encoding="utf-8")
    assert "<path" in drawing
    for left_out in ("15625)", 'class="phone"', "metadata"):  # the first is a letter's size
        assert left_out not in drawing
    places = r'<(?:p class="read-on"|a href="#[^"]*")><img'  # a link to a chapter, a sheet
    assert len(re.findall(places, read(site, "reference/cards"))) == 2


def test_the_search_finds_sections_by_their_words_and_their_authors(site, browser):
    tab = browser.new_page()
    with served(site.parent) as home:  # no site is the root of its host
        for words, place in (("kettles", "#kettles"), ("xyzzy", "")):
            tab.goto(f"{home}/{site.name}/search.html?q={words}")
            tab.wait_for_selector("#search-results a")
            first = tab.get_attribute("#search-results a", "href")
            assert first.endswith(f"/{site.name}/scratch.html{place}")
        tab.fill(".search-again input", "quux")
        tab.wait_for_selector("text=Nothing found")
    tab.goto((site / "search.html").as_uri())
    assert "a browser lets no file read another" in tab.inner_text("article")
    tab.close()


def test_a_known_address_stands_in_pages_and_picture(site):
    head = read(site, "chapter")
    assert f'<link rel="canonical" href="{ADDRESS}/chapter.html"' in head
    assert 'og:description" content="A chapter with &quot;quotes&quot;">' in head
    assert "og:description" not in read(site, "pair")  # which has none
    (picture,) = re.findall(rf'<meta property="og:image" content="{ADDRESS}/([^"]*)"', head)
    assert (site / picture).is_file()
    lost = read(site, "404")  # which is shown at any address
    assert f'"{ADDRESS}/' in lost
    assert "script-src 'self' 'sha256-" in lost


def test_search_engines_pass_over_what_is_no_page(site):
    assert 'name="robots" content="noindex"' in read(site, "404")
    assert 'name="robots" content="noindex"' in read(site, "_modules/posattn/ports/mlx")
    assert "noindex" not in read(site, "chapter")


def test_the_sidebar_begins_where_the_reader_is(site, browser):
    page = browser.new_page(viewport={"width": 1440, "height": 250})
    page.goto((site / "two.html").as_uri())
    assert page.locator(".sidebar-scroll").evaluate("box => box.scrollTop") > 0
    here = page.locator(".sidebar-tree .current-page").bounding_box()
    assert 0 < here["y"] < 250
    page.close()


def test_one_switch_chooses_all_tabs_and_moves_nothing(site, browser):
    address = (site / "scratch.html").as_uri()
    page = browser.new_context(viewport={"width": 375, "height": 400}).new_page()
    page.goto(address)
    assert page.evaluate(PRESSED) == ["torch", "torch"]
    # a taller tab, and a browser that holds nothing in its place, as Safari
    page.evaluate("document.documentElement.style.overflowAnchor = 'none'")
    tall = page.locator(".sd-tab-set").first.locator(".sd-tab-content").last
    tall.evaluate("node => { node.style.paddingBottom = '200px'; }")
    below = page.locator(".sd-tab-set").last
    page.locator("details.library").evaluate("details => { details.open = true; }")
    below.evaluate("node => node.scrollIntoView({block: 'center', behavior: 'instant'})")
    stood = below.bounding_box()["y"]
    page.locator(".mobile-header .framework button", has_text="JAX").press("Enter")
    assert page.evaluate(SHOWN) == page.evaluate(PRESSED) == ["jax", "jax"]
    assert abs(below.bounding_box()["y"] - stood) < 2
    assert page.url == address + "?framework=jax"
    page.goto((site / "pair.html").as_uri())
    assert page.evaluate(SHOWN) == ["jax", "jax"]  # remembered
    page.locator("label", has_text="PyTorch").first.click()
    assert page.evaluate(PRESSED) == ["torch", "torch"]
    page.add_init_script(THIRD)
    page.goto(address + "?framework=jax")
    assert page.evaluate(PRESSED) == ["jax", "jax"]
    page.click("[for=third]")
    assert page.evaluate(PRESSED) == ["jax", "jax"]  # which tabs without a third one show
    page.context.close()


def test_a_phone_shows_its_own_figure_and_nothing_leaves_its_width(site, browser):
    phone = {
        "viewport": {"width": 375, "height": 800},
        "has_touch": True,
        "is_mobile": True,
    }
    page = browser.new_context(**phone).new_page()
    page.goto((site / "pair.html").as_uri())
    page.locator("figure").scroll_into_view_if_needed()
    assert page.locator("figure svg.phone").is_visible()
    assert not page.locator("figure svg.wide").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.evaluate(COPY)  # which covers code until one touches it
    assert page.locator(".copybtn").evaluate("one => getComputedStyle(one).opacity") == "0"
    assert page.evaluate(MOVES) > 0
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(MOVES) == 0
    page.context.close()


LISTS = """<ul class="filters"><li><input type="checkbox" id="a"><i class="share"></i><b></b></li>
<li><input type="checkbox" id="b"><i class="share"></i><b></b></li></ul>
<div class="models"><li><i class="a"></i>x</li><li><i class="b"></i>y</li></div>
<div class="models"><li><i class="b"></i>z</li></div>
<div><table class="world"><thead><tr><th>Library</th><th>Keys</th></tr></thead>
<tbody><tr><td>MLX</td><td>W</td></tr><tr><td>JAX</td><td></td></tr><tr><td>vLLM</td><td>NaN</td></tr></tbody></table></div>"""


def test_lists_say_what_is_left_of_them(browser):
    page = browser.new_page()
    page.set_content(LISTS)
    for name in ("models", "libraries"):
        page.add_script_tag(path=STATIC / f"{name}.js")
    page.check("#a")
    assert page.locator(".fits").all_inner_texts() == [
        "1 of 3 models", "1 of 2 models", "None of 1 models"
    ]  # fmt: skip
    assert page.locator(".filters b").all_inner_texts() == [" 1", " 0"]
    assert page.is_disabled("#b")
    for column, first in ((0, "JAX"), (1, "vLLM")):
        page.locator("th button").nth(column).click()
        assert page.locator("td").first.inner_text() == first
        sorts = [head.get_attribute("aria-sort") for head in page.locator("th").all()]
        assert sorts == [None if n != column else "ascending" for n in (0, 1)]
    page.fill("[type=search]", "nan")
    assert page.inner_text(".find-rows [role=status]") == "1 of 3 rows"
    page.close()
