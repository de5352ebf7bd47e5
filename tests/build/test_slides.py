"""The slides: their pieces are the pages' own, nothing on them is cut, and nothing is fetched."""

import re
from collections import Counter
from urllib.parse import urlsplit

import pytest

from tests.audit import chromium
from tests.build.books import ROOT
from tests.conftest import need

SLIDES = (ROOT / "build" / "html" / "slides").resolve()
DECKS = [
    SLIDES / f"{path.stem}.html" for path in sorted((ROOT / "docs/slides").glob("*.md"))
]
TALK = SLIDES / "attention.html"
LOADED = "Array.from(document.fonts, font => font.status === 'loaded' && font.family)"


def slides_of(text):
    """The HTML of each slide: a slide is a section in the section of its column."""
    return re.findall(r"<section  id=.*?(?=<section |<script|\Z)", text, re.DOTALL)


@pytest.fixture(scope="module")
def small(book):
    """The deck of the small book, which brings no source code."""
    folder = book("revealjs", "deck.md")
    assert not (folder / "_modules").exists()
    return (folder / "deck.html").read_text(encoding="utf-8")


def test_a_slide_shows_pieces_of_every_kind_as_the_page_has_them(small):
    first, second, _ = slides_of(small)
    assert first.count("1 + 1 = 2</annotation>") == 1
    assert "Theorem (Sums)" in second
    assert "<em>c</em></p></td>" in second


def test_a_slide_has_the_html_that_was_read(small, snapshot):
    """If not, read it: `pytest tests/build/test_slides.py --snapshot-update`."""
    third = re.sub("(?s)(<svg [^>]*>).*?</svg>", r"\1", slides_of(small)[2])
    assert third == snapshot


def test_a_slide_leads_to_the_places_of_its_pieces(small):
    sources = re.findall(r'<p class="source">.*?</p>', small)
    assert [re.findall(r'href="([^"]*)"', source) for source in sources] == [
        ["index.html", "pair.html", "pair.html#equation-eq-sum"],
        ["index.html", "pair.html", "pair.html#thm-sum"],
        ["index.html", "pair.html", "pair.html#fig-shared"],
    ]
    assert 'href="pair.html#equation-eq-sum"' in slides_of(small)[1]  # in the theorem


def test_no_slide_has_the_name_of_another(small):
    names = Counter(re.findall(r'<section[^>]* id="([^"]*)"', small))
    assert set(names.values()) == {1}


# The real slides, which `nox -s docs` has built, in the browser of the system.


@pytest.fixture(params=DECKS, ids=lambda path: path.stem)
def deck(request):
    need(request.param.is_file(), "the slides are not built: run nox -s docs")
    return request.param


@pytest.fixture
def page(browser, deck, request):
    """The deck in a window of the size that the test asks for."""
    width, height = getattr(request, "param", (1280, 720))
    page = browser.new_page(viewport={"width": width, "height": height})
    page.trouble, page.requests = [], []
    page.on("console", lambda message: page.trouble.append(message.text))
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.on("requestfailed", lambda request: page.trouble.append(request.url))
    page.goto(deck.as_uri())
    page.evaluate("document.fonts.ready")
    yield page
    page.close()


FAULTS = """() => {
  const slide = Reveal.getCurrentSlide(), body = slide.querySelector(".body"), faults = [];
  const say = (e, what) => faults.push(`${e.tagName}.${e.className.baseVal ?? e.className} ${what}`);
  const leaves = (e, box) => { const r = e.getBoundingClientRect(); return r.width && r.height &&
    (r.left < box.left - 1 || r.top < box.top - 1 || r.right > box.right + 1 || r.bottom > box.bottom + 1); };
  const seen = [...slide.querySelectorAll("*")].filter(e => !e.closest(".notes, .katex-mathml, .katex svg"));
  for (const e of seen) {
    if (leaves(e, {left: 0, top: 0, right: innerWidth, bottom: innerHeight})) say(e, "leaves the window");
    if (body.contains(e) && !e.closest(".katex") && leaves(e, body.getBoundingClientRect()))
      say(e, "leaves the body");
  }
  const boxes = "section, .body, .words, .aside, .equation, .theorem, pre, table, h1, h2, h3";
  for (const e of [slide, ...seen].filter(e => e.matches(boxes)))
    if (e.scrollWidth > e.clientWidth + 4 || e.scrollHeight > e.clientHeight + 4) say(e, "scrolls");
  const size = (e, m = e.getScreenCTM()) => Math.hypot(m.a, m.b) * parseFloat(getComputedStyle(e).fontSize);
  for (const e of seen.filter(e => e.matches("svg.figure text") && e.getClientRects().length))
    if (size(e) < (innerWidth < 800 ? 9 : 12.5)) say(e, "is small");
  return faults;
}"""


def on_every_slide(page, script):
    """What a script says of each slide, when all its steps are shown."""
    said = {}
    for number in range(page.evaluate("Reveal.getTotalSlides()")):
        assert page.evaluate("Reveal.getSlidePastCount()") == number
        page.evaluate("() => { while (Reveal.nextFragment()); }")
        said[page.evaluate("Reveal.getCurrentSlide().id")] = page.evaluate(script)
        page.keyboard.press("ArrowRight")
    return said


@pytest.mark.parametrize("page", [(1280, 720), (375, 812)], indirect=True, ids=str)
def test_nothing_is_cut_and_nothing_scrolls(page):
    faults = on_every_slide(page, FAULTS)
    assert len(faults) >= 3
    assert {slide: fault for slide, fault in faults.items() if fault} == {}


def test_the_slides_fetch_nothing_and_complain_about_nothing(page):
    on_every_slide(page, "0")
    assert page.trouble == []
    assert {urlsplit(url).scheme for url in page.requests} == {"file"}
    assert "Slides" in page.evaluate(LOADED)


@pytest.mark.parametrize("deck", [TALK], indirect=True, ids=["attention"])
def test_keys_show_the_next_step_the_next_slide_all_and_the_notes(page, deck):
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/attention.html#/attention-is-a-weighted-mean")
    number = str(len(slides_of(deck.read_text(encoding="utf-8"))))
    assert page.inner_text(".slide-number").split() == ["2", "/", number]
    assert page.is_visible(".present .words li")
    first, *later = page.locator(".present .fragment").all()
    assert not first.is_visible()
    page.keyboard.press("ArrowRight")
    first.wait_for()
    assert not any(step.is_visible() for step in later)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("Reveal.getSlidePastCount()") == 0
    page.keyboard.press("Escape")
    assert page.evaluate("Reveal.isOverview()")
    page.keyboard.press("Escape")
    assert not page.evaluate("Reveal.isOverview()")
    page.keyboard.press("f")
    page.wait_for_function("document.fullscreenElement !== null")
    with page.expect_popup() as popup:
        page.keyboard.press("s")
    notes = ".speaker-controls-notes .value"
    popup.value.wait_for_selector(f"{notes}:has-text('This window shows the notes')")


@pytest.mark.parametrize("deck", [SLIDES / "index.html"], indirect=True, ids=["index"])
def test_a_link_from_the_time_of_one_deck_leads_to_the_talk(page, deck):
    page.goto("about:blank")  # or the same page would stay
    page.goto(f"{deck.as_uri()}#/a-shift-is-a-rotation")
    page.wait_for_url("**/position.html#/a-shift-is-a-rotation")


@pytest.mark.parametrize("deck", [TALK], indirect=True, ids=["attention"])
def test_each_slide_prints_one_white_page(page, browser, deck, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    target = tmp_path / "of this" / "book" / "slides.pdf"
    page.goto(f"{deck.as_uri()}?print-pdf")
    page.wait_for_selector(".pdf-page")
    assert "(255, 255, 255)" in page.evaluate("getComputedStyle(document.body).background")
    chromium.print_slides(browser, deck, target)
    printed = target.read_bytes()
    chromium.print_slides(browser, deck, target)
    assert target.read_bytes() == printed
    slides = slides_of(deck.read_text(encoding="utf-8"))
    assert len(re.findall(rb"/Type /Page\b", printed)) == len(slides)
    assert set(re.findall(rb"/MediaBox \[(.*?)\]", printed)) == {b"0 0 960 540"}
    assert b"file://" not in printed
