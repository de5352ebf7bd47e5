"""The decoder in the page has the library's numbers, obeys keys and touch, and says what is wrong."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

from posattn.stories import CHECKPOINT, NOUNS, VERBS, WORDS, encode
from posattn.torch import ALiBi, Decoder, Rotary, position_interpolation, yarn
from tests.audit.browser import PATIENCE
from tests.audit.node import NODE
from tests.audit.site import served
from tests.build.books import ROOT

STATIC = ROOT / "docs" / "_static"
FOLDERS = {
    "rotary": CHECKPOINT,
    "ALiBi": STATIC / "decoders" / "alibi",
    "none": STATIC / "decoders" / "none",
}
PAGE = """<!doctype html><html lang="en" data-content_root="./"><meta charset="utf-8"><title>Decoder</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="book.css"><link rel="icon" href="data:,">
<div class="explorer explorer-question"><p>question on paper</p></div>
<div class="decoder"><p>decoder on paper</p></div>
<script src="panel.js" defer></script><script src="question.js" defer></script>
<script src="_static/decoder.js" defer></script></html>"""
FIRST = (
    "the dog bites the man . the fox sees the king . the cat hears the bird . "
    "whom does the fox see ?"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder")
    (folder / "index.html").write_text(PAGE)
    (folder / "panel.html").write_text(PAGE.replace("explorer-question", ""))
    for name in ("book.css", "explorers/panel.js", "explorers/question.js"):
        shutil.copy(STATIC / name, folder)
    (folder / "_static").mkdir()
    for name in ("decoder.js", "decoder-worker.js"):
        shutil.copy(STATIC / name, folder / "_static")
    for scheme, weights in FOLDERS.items():
        target = folder / "_static" / "decoders" / scheme.lower()
        target.mkdir(parents=True)
        shutil.copy(weights / "model.safetensors", target)
    return folder


@pytest.fixture(scope="module")
def home(folder):
    with served(folder) as home:
        yield home


@pytest.fixture
def page(browser, home):
    page = browser.new_page(viewport={"width": 375, "height": 800})
    page.set_default_timeout(PATIENCE)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{home}/index.html")
    page.click("text=Start")
    page.wait_for_function("document.querySelector('.decoder form').found")
    yield page
    assert faults == []
    page.close()


def put(page, name, value):
    """Put a value into a control, as a reader would, and wait for what the page makes of it."""
    page.evaluate(
        """async ([name, value]) => {
            const form = document.querySelector(".decoder form"), old = form.found;
            const input = form.elements[name];
            input[input.type === "checkbox" ? "checked" : "value"] = value;
            input.dispatchEvent(new Event("input", { bubbles: true }));
            while (form.found === old) await new Promise(requestAnimationFrame);
        }""",
        [name, value],
    )


def found(page, words=24):
    """What the page has computed: the probabilities, and the weights `(heads of all layers, n, n)`."""
    page.wait_for_function(
        "n => document.querySelector('.decoder form').found.maps[0].length === n", arg=words
    )
    seen = page.evaluate(
        """() => { const { probabilities, maps } = document.querySelector(".decoder form").found;
            return [Array.from(probabilities), maps]; }"""
    )
    n = len(seen[1][0])
    maps = [[row + [0.0] * (n - len(row)) for row in rows] for rows in seen[1]]
    return np.array(seen[0]), np.array(maps)


def said(page):
    """What a screen reader is told."""
    return page.inner_text(".decoder .said")


def decoder(scheme, rotate=None):
    """The library's decoder of a scheme, from the weights that the page fetches."""
    weights = FOLDERS[scheme] / "model.safetensors"
    made = Decoder.from_config(CHECKPOINT / "config.json", weights=weights)
    for block in made.blocks:
        if scheme != "rotary":
            block.attention.rotate = None
        elif rotate is not None:
            block.attention.rotate = rotate
        if scheme == "ALiBi":
            block.attention.bias = ALiBi(4)
    return made


@torch.no_grad()
def computed(made, text, positions=None):
    """What the library computes of it."""
    tokens = torch.from_numpy(encode(text))
    positions = torch.arange(len(tokens)) if positions is None else positions
    logits = made(tokens, positions=positions)[-1]
    maps = torch.cat(made.attention_weights(tokens, positions=positions))
    return logits.double().softmax(-1).numpy(), maps.numpy()


def agree(seen, wanted):
    """Whether probabilities and weights are equal to 1e-4, ten times better than the page needs."""
    for ours, theirs in zip(seen, wanted, strict=True):
        assert ours.shape == theirs.shape
        assert abs(ours - theirs).max() < 1e-4


@pytest.mark.parametrize("scheme", FOLDERS)
def test_the_answer_and_the_weights_are_those_of_the_library(page, scheme):
    if scheme != "rotary":
        put(page, "scheme", scheme)
    agree(found(page), computed(decoder(scheme), FIRST))
    shown = page.locator(".decoder li")
    best = computed(decoder(scheme), FIRST)[0].argsort()[::-1][:3]
    assert [text.split()[0] for text in shown.all_inner_texts()] == [WORDS[i] for i in best]
    told = f"Next word: {shown.nth(0).inner_text()}. 24 words, up to 23 apart; "
    told += "training had up to 48 words, up to 47 apart."
    assert said(page).split() == told.split()


@pytest.mark.parametrize(
    ("scheme", "only"),
    [("rotary", False), ("rotary", True), ("ALiBi", True), ("none", True)],
)
def test_a_shift_moves_all_positions_or_those_of_the_question(page, scheme, only):
    if scheme != "rotary":
        put(page, "scheme", scheme)
    before = found(page)
    if only:
        put(page, "only", True)
    put(page, "shift", "120")
    facts = FIRST.split().index("whom")
    positions = torch.arange(24)
    positions += torch.where((positions >= facts) | (not only), 120, 0)
    agree(found(page), computed(decoder(scheme), FIRST, positions))
    change = abs(found(page)[1] - before[1]).max()
    assert f"up to {143 if only else 23} apart;" in said(page)
    told = f"The largest change of an attention weight is {change:.2f}."
    assert said(page).endswith(told)
    assert (change < 1e-6) == (not only or scheme == "none")


@pytest.mark.parametrize(
    ("method", "factor"), [("interpolation", 4), ("YaRN", 2), ("YaRN", 8)]
)
def test_an_extension_is_that_of_the_library(page, method, factor):
    put(page, "method", method)
    put(page, "factor", str(factor))
    frequencies, sharper = position_interpolation(16, factor=float(factor)), 1.0
    if method == "YaRN":
        frequencies, sharper = yarn(16, factor=float(factor), trained_length=48)
    rotate = Rotary(layout="half", frequencies=frequencies, attention_factor=sharper)
    agree(found(page), computed(decoder("rotary", rotate), FIRST))
    put(page, "scheme", "ALiBi")
    assert page.is_disabled("[name=factor]")
    assert page.is_disabled("[name=method]")


def test_a_story_grows_by_facts_that_fit(page):
    for _ in range(2):
        page.click("text=add four facts")
    text = page.input_value("textarea")
    assert text.startswith("the dog bites the man . the fox sees the king . ")
    assert text.endswith(". whom does the fox see ?")
    facts = re.findall(r"the (\w+) (\w+) the (\w+) \.", text)
    assert len(facts) == 11
    assert len({fact[:2] for fact in facts}) == len({fact[1:] for fact in facts}) == 11
    for asker, verb, asked in facts:
        assert {asker, asked} <= {*NOUNS}
        assert verb in VERBS
        assert asker != asked
    agree(found(page, 72), computed(decoder("rotary"), text))
    assert "72 words, up to 71 apart; training had up to 48" in said(page)


def test_unknown_words_are_refused_with_a_hint(page):
    height = "document.querySelector('.decoder').clientHeight"
    before = page.evaluate(height)
    page.fill("textarea", "the horse bites a horse")
    assert said(page).startswith("It does not know \u201chorse\u201d, \u201ca\u201d: its")
    assert page.get_attribute("textarea", "aria-invalid") == "true"
    assert page.locator(".answer.old .maps").is_visible()  # the last answer, dimmed
    assert page.evaluate(height) == before
    page.fill("textarea", "?????")
    assert said(page) == "Write a word before each mark."
    page.fill("textarea", "the " * 257)
    assert said(page) == "Write 1 to 256 words."
    page.fill("textarea", "The dog bites the man.  Who bites the man?")
    text = "the dog bites the man . who bites the man ?"
    agree(found(page, 11), computed(decoder("rotary"), text))


def holds(page, text):
    """Wait until the story is this text."""
    page.wait_for_function(
        "text => document.querySelector('textarea').value === text", arg=text
    )


def test_words_are_clicked(page):
    page.click(".decoder li button")  # to the end, wherever the cursor is
    holds(page, f"{FIRST} king")
    page.click("text=first story")
    page.click("text=take a word back")  # from before the question mark
    holds(page, FIRST.replace("see ?", "?"))
    page.click("text=all 22 words")
    page.click(".words button >> text=/^hear$/")
    holds(page, FIRST.replace("see ?", "hear ?"))
    page.evaluate("document.querySelector('textarea').setSelectionRange(5, 5)")  # in "dog"
    page.click(".words button >> text=/^cat$/")
    holds(page, FIRST.replace("see ?", "hear ?").replace("dog", "dog cat"))
    page.click("text=first story")
    holds(page, FIRST)
    page.fill("textarea", "dog")
    page.click("text=take a word back")
    holds(page, "")
    assert said(page) == "Write 1 to 256 words."
    page.click(".words button >> text=/^the$/")
    holds(page, "the")
    page.wait_for_function(
        "document.querySelector('.decoder .said').innerText.includes('1 word,')"
    )


def reading(page):
    return page.locator(".decoder .read").inner_text()


def test_keys_and_touch_choose_the_row_that_is_read(page):
    weights = found(page)[1]
    assert reading(page).startswith("layer 1, head 2: \u201c?\u201d at 23 reads . at 11")
    for side in ("across", "down"):  # the words that the large map has room for
        assert page.locator(f".map .{side} span").all_inner_texts() == FIRST.split()
    page.select_option("[name=head]", "layer 0, head 2")
    page.focus("[name=row]")
    page.keyboard.press("ArrowLeft")
    best = weights[2, 22].argsort()[::-1][:3]
    told = ", ".join(f"{FIRST.split()[j]} at {j} {weights[2, 22, j]:.2f}" for j in best)
    assert reading(page) == f"layer 0, head 2: \u201csee\u201d at 22 reads {told}."
    box = page.locator("canvas").nth(5).bounding_box()
    page.mouse.click(box["x"] + 20, box["y"] + box["height"] * 9.5 / 24)
    assert reading(page).startswith("layer 1, head 1: \u201cthe\u201d at 9 reads ")
    page.click(".reading span >> nth=2")
    assert reading(page).startswith("layer 1, head 1: \u201cbites\u201d at 2 reads ")
    assert page.locator("canvas.on").count() == 1


def test_it_fits_a_phone_and_paper_has_the_twin(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 375  # a phone
    page.emulate_media(media="print")
    assert page.is_visible("text=decoder on paper")
    assert page.is_visible("text=question on paper")
    assert not page.is_visible(".decoder form")


def test_weights_are_fetched_when_asked_for_and_a_failure_is_told(browser, home):
    page, asked = browser.new_context(has_touch=True, is_mobile=True).new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/rotary/*", lambda route: route.fulfill(status=404))
    page.goto(f"{home}/panel.html", wait_until="networkidle")
    assert not any("safetensors" in url for url in asked)
    page.tap("text=Start")
    page.wait_for_function("document.querySelector('.said').textContent.includes('404')")
    page.unroute("**/rotary/*")
    page.tap("text=Start")
    page.wait_for_selector("textarea")
    assert page.evaluate("document.activeElement.name") == "scheme"  # no phone's keyboard
    assert len(page.workers) == 1  # the page is free while it computes
    page.context.close()


@pytest.mark.parametrize("kind", ["rotary", "yarn2", "alibi", "none"])
def test_a_question_from_afar_is_answered_as_in_the_library(page, kind):
    page.goto(f"{page.url}?scheme={kind}&shift=34")
    page.wait_for_selector(".explorer-question.is-live")
    frequencies, sharper = yarn(16, factor=2.0, trained_length=48)
    rotate = Rotary(layout="half", frequencies=frequencies, attention_factor=sharper)
    scheme = {"alibi": "ALiBi", "yarn2": "rotary"}.get(kind, kind)
    made = decoder(scheme, rotate if kind == "yarn2" else None)
    wanted = computed(made, FIRST, torch.arange(24) + 34 * (torch.arange(24) >= 18))
    seen = page.evaluate("document.querySelector('.explorer-question .live').found")
    shown = np.array([seen["king"], seen["most"]]), np.array(seen["rows"])
    best = wanted[0].argmax()
    agree(shown, (wanted[0][[WORDS.index("king"), best]], wanted[1][[0, 6], 23]))
    assert seen["says"] == WORDS[best]


def test_the_question_is_dragged_and_its_place_stands_in_the_address(page):
    drawn = "n => document.querySelectorAll('.curve').length === n"
    line = page.locator(".curve.rotary")
    while (path := line.get_attribute("d")).count("L") < 120:
        page.wait_for_timeout(50)
    before, after = (float(point.split()[1]) for point in path[2:].split(" L ")[33:35])
    assert after - before > 75  # of 90: king falls
    page.wait_for_function(drawn, arg=1)
    page.locator(".ruler").hover(position={"x": 150, "y": 200})
    page.mouse.down()
    page.locator(".ruler").hover(position={"x": 220, "y": 200})
    page.mouse.up()
    shift = int(page.input_value(".explorer-question [name=shift]"))
    assert shift > 34
    assert page.url.endswith(f"?scheme=rotary&shift={shift}")
    page.focus(".explorer-question [name=shift]")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("text=The story begins 24 tokens back. The model says king")
    assert page.url.endswith("&shift=1")
    page.wait_for_function(drawn, arg=5)  # the others, once it was touched


def script(name="decoder"):
    return (STATIC / f"{name}.js").read_text("utf-8")


def test_weights_are_read_as_halves_the_smallest_included():
    bits = np.array([0, 1, 0x3FF, 0x8001, 0x400, 0x3C00, 0xC501, 0x7BFF], np.uint16)
    read = re.search(r"function half\(.*?\n}", script("decoder-worker"), re.DOTALL)[0]
    code = f"{read}; console.log(JSON.stringify({bits.tolist()}.map(half)))"
    ran = subprocess.run([NODE, "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == bits.view(np.float16).astype(float).tolist()


def test_the_script_knows_the_words_of_the_language():
    nouns, verbs = re.findall(r'(?:NOUNS|VERBS) = "([a-z ]+)"', script())
    assert nouns.split() == list(NOUNS)
    assert verbs.split() == list(VERBS)
