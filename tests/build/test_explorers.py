"""The explorers show the library's numbers, obey keys, and leave their twin to paper and to no script."""

import json
import shutil
from base64 import b64encode
from zlib import compress

import numpy as np
import pytest

from posattn import atlas, figures, reference
from tests.build.books import ROOT

STATIC = ROOT / "docs" / "_static"
SCRIPTS = STATIC / "explorers"
OTHERS = {
    "panel",
    "question",
    "scope",
}  # the latter ask workers: test_decoder.py, test_scope.py
NAMES = sorted({path.stem for path in SCRIPTS.iterdir()} - OTHERS)
HEAD = """<!doctype html><meta charset="utf-8"><title>Explorers</title>
<link rel="stylesheet" href="book.css"><script src="panel.js" defer></script>"""
BOX = """<div class="explorer explorer-{0}"><div class="figure">{0} on paper</div>
<script type="application/json">{1}</script></div><script src="{0}.js" defer></script>"""
WORDS, TABLE = ["the", "dog", "bites", "the", "man"], reference.sinusoidal_encoding(5, 4)
VECTORS = np.random.default_rng(8).normal(size=(4, 4))[[0, 1, 2, 0, 3]]
TILES = """tiles => tiles.map((tile, n) =>
    [n + Number(tile.style.getPropertyValue("--by")), ...tile.dataset.output.split(",").map(Number)])"""
REDS = """sectors => sectors.map((sector) => { // from which angle on, and to which
    const [, , x, y, , , , , , u, v] = sector.getAttribute("d").match(/[-\\d.]+/g).map(Number);
    return [Math.atan2(x, -y), Math.atan2(u, -v)]; })"""
PUT = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')) }"
BARS = "bars => bars.map((bar) => Number(getComputedStyle(bar).scale.split(' ')[1] ?? 1))"
KINDS = ("later", "now", "waits")  # pairs to do, pairs being done, and workers that wait
KEPT = "outputs => outputs.map((output) => Number(output.dataset.value))"
SHADE = "cells => cells.map((cell) => Number(cell.getAttribute('fill-opacity')))"
KINDS_OF = "all => all.map((slot) => slot.className)"
CORNERS = "all => all.map((box) => [box.getBoundingClientRect().x, box.getBoundingClientRect().y])"
LESSON = """the man bites the dog
5 of 5 outputs the same without positions
0 of 5 outputs the same with positions"""
KEYS = np.array([[0.0, 1.0], [-0.8, -0.6], [0.8, -0.6]])
GIVEN = {
    "swap": {"words": WORDS, "vectors": VECTORS.tolist(), "positions": TABLE.tolist()},
    "pull": {"keys": KEYS.tolist(), "values": (2 * KEYS).tolist(), "query": [0, 0.5]}
    | {"scale": 0.9, "widths": True},
}
GIVEN["dials"] = {"width": 128, "base": 5e4, "trained": 4096, "tokens": 9, "longest": 2**17}
POWERS = np.sort(np.random.default_rng(9).choice([1.0, 2, 5], (6, 6)))  # which rise
LOWER = [row[: i + 1] for i, row in enumerate(POWERS.tolist())]
WRITTEN = {"as trained": [[" B,"], ["\n\n"]], "positions off": [[" and"]]}
GIVEN["says"] = {"trained": 8, "lengths": [0, 4096], "prompts": ["A,"], "ways": WRITTEN}
HEARD = {x: {"writes": f" {x}!", "loss": [k, 4.5, 14]} for k, x in enumerate("abcd")}
GIVEN["booth"] = {"prompt": "A,", "every": 128, "sound": HEARD.pop("a"), "faults": HEARD}
GIVEN["tiles"] = {"rows": LOWER, "values": [8.0, 6, 4, 9, 3, 1], "size": 2, "first": 1}
GIVEN["ring"] = {"workers": 4, "balanced": reference.balanced_order(16, 4).tolist()}
WALL = {
    name: atlas.scores(name) for name in ("rotary", "sinusoidal", "T5", "Swin", "ALiBi")
}
MAPS = np.stack([figures.score_map(x).axes[0].images[0].get_array() for x in WALL.values()])
SHADES = np.rint(11 * MAPS).astype(np.uint8)
GIVEN["wall"] = {"chips": ["no parameters"], "maps": b64encode(compress(SHADES)).decode()}
GIVEN["wall"]["schemes"] = [
    {"name": name, "place": name, "anchor": atlas.anchor(name), "has": [k < 2]}
    for k, name in enumerate(WALL)
]
RUN = {"heads": [2, 1], "scores": [[0.1, 0.5, 0.75], [0.0, 0.25, 0.875]]}
RUN["maps"] = [["0z" * 105] * 3, ["z0" * 105] * 3]
RUNS = [RUN | {"loss": [6.5, 3, low]} for low in (0.25, 1.25)]
GIVEN["induction"] = {"every": 75, "text": 2 * "abcdefghij", "runs": RUNS}
DESIGNS = [
    {"name": f"d{n}", "model": "a model", "bytes": size, "window": 2 * n, "sinks": n}
    for n, size in enumerate((1152, 4096))
]
GIVEN["caches"] = {"words": WORDS, "designs": DESIGNS}
FACTS = [[0, 1], [2, 0], [1, 2], [0, 3], [2, 1]]  # who bites whom
GIVEN["state"] = {"nouns": ["dog", "man", "fox", "cat"], "facts": FACTS}
SEEN = """canvas => [...canvas.getContext("2d").getImageData(0, 0, 24, 24).data]
    .filter((_, n) => n % 4 === 3).map((alpha) => alpha / 23)"""
STILL = "words => getComputedStyle(words).animationName"
Q, K = np.array([[1, 0, 0.5, 0.5]]), np.array([[0.8, 0.6, 0.6, -0.2]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorers")
    boxes = [BOX.format(name, json.dumps(GIVEN.get(name))) for name in NAMES]
    (folder / "index.html").write_text("\n".join([HEAD, *boxes]))
    for path in (STATIC / "book.css", *SCRIPTS.iterdir()):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def page(browser, folder):
    page = browser.new_page(viewport={"width": 375, "height": 800}, reduced_motion="reduce")
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((folder / "index.html").as_uri())
    assert page.locator(".explorer:not(.is-live)").count() == 0
    yield page
    assert faults == []
    page.close()


def move(page, name, value):
    """Move a slider as a finger would, up to the event."""
    page.locator(f"#explorer-{name}").evaluate(PUT, value)


def shows(page, explorer, name, wanted, last_digit=5.1e-5, exact=1e-11):
    """Assert that an explorer shows a number, in full and as printed."""
    place = page.locator(f".explorer-{explorer} output[data-name='{name}']")
    assert float(place.get_attribute("data-value")) == pytest.approx(wanted, abs=exact)
    assert number(place.inner_text()) == pytest.approx(wanted, abs=last_digit)


def number(text):
    return float(text.replace("\N{MINUS SIGN}", "-"))


def heights(line):
    return [float(point.split()[1]) for point in line.get_attribute("d")[2:].split(" L ")]


@pytest.mark.parametrize(("position", "choice"), [(6, 2), (45, 0)])
def test_the_pairs_show_the_encoding(page, position, choice):
    move(page, "pairs-position", position)
    page.click(f".explorer-pairs [type=radio] >> nth={choice}")
    row = reference.sinusoidal_encoding(64, 8, base=10.0 ** (choice + 1))[position]
    for j in range(4):
        shows(page, "pairs", f"sin-{j}", row[2 * j])
        shows(page, "pairs", f"cos-{j}", row[2 * j + 1])
    tip = page.locator(".explorer-pairs .tip").nth(1)
    point = [float(tip.get_attribute(name)) / 40 for name in ("cx", "cy")]
    assert point == pytest.approx([row[2], -row[3]], abs=2e-4)
    assert "".join(page.locator(".bit").all_inner_texts()) == f"{position:06b}"


@pytest.mark.parametrize(("shift", "offset"), [(17, 6), (63, -8)])
def test_the_scores_are_those_of_the_library(page, shift, offset):
    move(page, "rotary-offset", offset)
    move(page, "rotary-shift", shift)
    i, j = np.array([shift + 8]), np.array([shift + 8 - offset])
    table = reference.sinusoidal_encoding
    rotary = reference.rotate(Q, i) @ reference.rotate(K, j).T / 2
    additive = (Q + table(i, 4)) @ (K + table(j, 4)).T / 2
    for name, wanted in (("rotary", rotary), ("additive", additive)):
        shows(page, "rotary", name, wanted.item())
        line = page.locator(f".curve.{name}")
        assert 4 <= min(heights(line)) <= max(heights(line)) <= 78
        point = line.get_attribute("d")[2:].split(" L ")[shift]
        assert page.get_attribute(f".dot.{name}", "d") == f"M {point} h 0.01"


@pytest.mark.parametrize(
    ("name", "pair", "start", "end", "told"),
    [
        ("pairs", 1, (0.64, 0.76), (1, 0), "Position 16 is 010000"),
        ("rotary", 0, (-0.15, 1), (-0.84, -0.54), "Query at 10, key at 7"),
        ("rotary", 0, (0.8, -0.6), (0.94, 0.35), "Query at 8, key at 6"),
    ],
)
def test_hands_are_dragged(page, name, pair, start, end, told):
    dial = page.locator(f".explorer-{name} .dial").nth(pair)
    dial.hover()
    box = dial.bounding_box()
    for act, (x, y) in ((page.mouse.down, start), (page.mouse.up, end)):
        place = box["x"] + (1 + 0.8 * x) * box["width"] / 2
        page.mouse.move(place, box["y"] + (1 - 0.8 * y) * box["height"] / 2)
        act()
    assert page.inner_text(f".explorer-{name} .said").startswith(told)


def test_a_binary_counter_is_pressed_and_plays(page):
    page.locator(".bit").nth(0).click()  # that of 32
    assert page.locator(".bit[aria-pressed=true]").count() == 4  # of 39
    page.click(".explorer-pairs button >> nth=0")
    page.wait_for_function("document.querySelector('#explorer-pairs-position').value > 40")
    assert page.locator(".bit").nth(2).inner_text() == "1"


def added(scheme, setting):
    """What each scheme of the explorer adds at the distances 0 to 127, less what it adds at 0."""
    here, keys = np.array([127]), np.arange(127, -1, -1)
    falling = -setting / 8 * np.arange(32.0)[:, None]
    line = (np.ones(1), np.zeros(1), np.array([[-float(setting)]]), np.zeros(1))
    scheme = [
        reference.ALiBi(8),
        reference.T5Bias(falling, bidirectional=False),
        reference.KerpleLog(np.array([setting / 2]), np.array([1.0])),
        reference.FIRE(np.array(0.1), np.array(1.0), *line, threshold=64.0),
        reference.sandwich_bias(8),
    ][scheme]
    heads = scheme(here, keys)[:, 0]
    head = heads[setting - 1 if len(heads) > 1 else 0]
    return head - head[0]


@pytest.mark.parametrize(
    ("scheme", "setting", "distance"),
    [(0, 1, 127), (1, 4, 16), (2, 8, 127), (3, 4, 113), (4, 1, 16)],
)
def test_the_biases_are_those_of_the_library(page, scheme, setting, distance):
    page.click(f".explorer-biases [type=radio] >> nth={scheme}")
    move(page, "biases-setting", setting)
    move(page, "biases-distance", distance)
    bias = added(scheme, setting)
    weights = reference.attention_weights(
        np.zeros((1, 1)), np.zeros((128, 1)), bias=bias[None]
    )[0]
    shows(page, "biases", "bias", bias[distance], 5.1e-3)
    shows(page, "biases", "weight", weights[distance])
    shows(page, "biases", "half", (weights.cumsum() < 0.5).sum() + 1)
    for plot, values in enumerate((bias, weights)):
        box = page.locator(".explorer-biases .axes").nth(plot)
        low, high = (number(box.locator(end).inner_text()) for end in (".low", ".high"))
        assert low < 0 == high or low == 0 < max(values) <= high
        shares = [(78 - y) / 74 for y in heights(box.locator(".curve").nth(scheme))]
        assert shares == pytest.approx((values - low) / (high - low), abs=1e-3)


def test_a_curve_of_the_biases_is_grabbed_and_pulled(page):
    said = page.locator(".explorer-biases .said")
    box = page.locator(".explorer-biases svg").first.bounding_box()
    places = [box["y"] + (2 - 74 * bias / 16) / 80 * box["height"] for bias in (-2, -8)]
    page.mouse.move(box["x"] + box["width"] / 2, places[0])  # at a distance of 64
    page.mouse.down()
    assert said.inner_text().startswith("FIRE, function f(x) \u22122x")
    page.mouse.move(box["x"] + box["width"] / 2, places[1], steps=4)
    page.mouse.up()
    assert said.inner_text().startswith("FIRE, function f(x) \u22128x")


def outputs(order, positions):
    x = VECTORS[order] + positions * TABLE
    return reference.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("positions", [False, True])
def test_the_outputs_of_swapped_words_are_those_of_the_library(page, positions):
    page.locator("#explorer-swap-positions").set_checked(positions)
    page.locator(".tiles button").nth(4).drag_to(page.locator(".tiles button").nth(2))
    for wanted in ([0, 2, 4, 3, 1], [0, 2, 4, 1, 3]):
        rows = np.array(page.locator(".tiles button").evaluate_all(TILES))
        same = page.locator(".explorer-swap output").evaluate_all(KEPT)[positions]
        order = rows[:, 0].argsort()
        assert order.tolist() == wanted
        now = rows[order, 1:]
        assert now == pytest.approx(outputs(order, positions), abs=1e-12)
        first = outputs(np.arange(5), positions)[order]
        assert same == np.isclose(now, first).all(axis=1).sum() == (0 if positions else 5)
        page.locator(".tiles button", has_text="dog").press("ArrowLeft")
    page.locator(".tiles button").nth(0).click()  # two words are picked one after the other
    page.locator(".tiles button").nth(2).press("Enter")
    assert page.inner_text(".explorer-swap q") == "bites the dog man the"


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
@pytest.mark.parametrize(
    "flips", [[], [0], [2000], [0, 0]]
)  # milliseconds, before and after the swap
def test_five_words_end_on_their_lesson_whenever_one_flips(browser, folder, motion, flips):
    page = browser.new_page(reduced_motion=motion)
    page.clock.install()
    page.goto((folder / "index.html").as_uri())
    page.locator(".explorer-swap .acts").scroll_into_view_if_needed()
    if motion != "reduce":
        page.wait_for_selector(".explorer-swap button >> text=pause")
    for wait in flips:
        page.clock.run_for(wait)
        page.click("#explorer-swap-positions")
    page.clock.run_for(10000)
    assert page.inner_text(".explorer-swap .said") == LESSON
    page.close()


def test_two_acts_play_until_touched_and_a_scrubber_holds_both(browser, folder):
    page = browser.new_page()
    page.clock.install()
    page.goto((folder / "index.html").as_uri())
    stamp, film = map(page.locator, (".explorer-swap .stamp", "#explorer-swap-acts"))
    stamp.scroll_into_view_if_needed()
    button = page.locator(".explorer-swap .control button")
    page.wait_for_selector(".explorer-swap button >> text=pause")
    for wait, wanted in (
        (4000, "same numbers"),
        (5500, "5 of 5 changed"),
        (5200, "same numbers"),
    ):
        page.clock.run_for(wait)
        assert stamp.inner_text() == wanted
    button.click()
    assert button.inner_text() == "play"  # and a touch elsewhere stops it as well
    button.click()
    page.locator(".tiles button").nth(2).focus()
    page.clock.run_for(20000)
    assert (button.inner_text(), stamp.inner_text()) == ("play", "same numbers")
    film.press("End")
    assert stamp.inner_text() == "5 of 5 changed"
    assert page.is_checked("#explorer-swap-positions")
    film.press("Home")
    assert not stamp.is_visible()
    page.close()


def test_less_motion_gets_the_ends_of_both_acts_side_by_side(page):
    page.set_viewport_size({"width": 1000, "height": 800})
    stamps = page.locator(".explorer-swap .stamp")
    assert stamps.all_inner_texts() == ["same numbers", "5 of 5 changed"]
    first, second = (stamp.bounding_box() for stamp in stamps.all())
    assert abs(first["y"] - second["y"]) < 2
    assert page.inner_text(".explorer-swap .said") == LESSON
    assert (
        page.locator(".explorer-swap [inert] button").count() == 5
    )  # out of the way of keys


@pytest.mark.parametrize("back", ["Escape", "Enter"])
def test_a_picked_word_goes_back_and_two_alike_are_one(page, back):
    for word in (1, 4, 0, 3):  # the last two are "the"
        page.locator(".tiles button").nth(word).click()
    assert page.inner_text(".explorer-swap .said") == "the dog bites the man"
    assert page.locator(".tiles .differs").count() == 0
    dog = page.locator(".tiles button", has_text="dog")
    dog.press("Enter")
    assert dog.get_attribute("aria-pressed") == "true"
    dog.press(back)
    assert dog.get_attribute("aria-pressed") == "false"
    assert page.inner_text(".explorer-swap small") == "\u201cdog\u201d stays where it is"


@pytest.mark.parametrize(("width", "divide"), [(8, False), (40, False), (40, True)])
def test_the_weights_of_a_pulled_query_are_those_of_the_library(page, width, divide):
    move(page, "pull-width", width)
    page.locator("#explorer-pull-divide").set_checked(divide)
    plane = page.locator(".explorer-pull svg").first
    unit = plane.bounding_box()["width"] / 120
    plane.click(position={"x": (60 + 0.6 * 44) * unit, "y": (58 - 0.2 * 44) * unit})
    page.locator(".grip").press("ArrowLeft")  # five degrees on
    length, angle = np.hypot(0.6, 0.2), np.arctan2(0.2, 0.6) + np.radians(5)
    query = length * np.array([[np.cos(angle), np.sin(angle)]])
    scale = 0.9 * (1 if divide else 2 ** (width / 8))
    weights = reference.attention_weights(query, KEYS, scale=scale)[0]
    jacobian = np.diag(weights) - np.outer(weights, weights)
    wanted = {f"weight-{j}": weight for j, weight in enumerate(weights)}
    wanted["gradient"] = abs(jacobian).max()
    wanted |= dict(zip(("output-x", "output-y"), weights @ (2 * KEYS), strict=True))
    for name, value in wanted.items():
        shows(page, "pull", name, value, 9e-3, 3e-3)


@pytest.mark.parametrize("steps", [90, 136])
def test_the_dials_are_those_of_the_library(page, steps):
    move(page, "dials-length", steps)
    tokens, options = round(2 ** (steps / 8)), {"base": 5e4}
    plain = reference.frequencies(128, **options)
    options["factor"] = max(1.0, tokens / 4096)
    ways = [
        plain,
        reference.position_interpolation(128, **options),
        reference.ntk_aware(128, **options),
        reference.yarn(128, **options, trained_length=4096)[0],
        reference.llama3(128, **options, trained_length=4096),
    ]
    page.focus(".explorer-dials [type=radio]:checked")
    for now in ways:
        lost = (4096 * plain < 2 * np.pi) & (tokens * now > 4096 * plain * (1 + 1e-9))
        shows(page, "dials", "lost", lost.sum())
        shows(page, "dials", "slowed", (now < plain * (1 - 1e-9)).sum())
        shows(page, "dials", "apart", np.degrees(now[0]), 0.51)
        seen, end = np.minimum(2 * np.pi, [4096 * plain, tokens * now])
        drawn = np.transpose(page.locator(".explorer-dials .red").evaluate_all(REDS))
        reds = np.stack([seen, np.where(lost, end, seen)])
        assert abs(np.exp(1j * drawn) - np.exp(1j * reds)).max() < 2e-3
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize(
    ("way", "length", "wanted"),
    [
        (0, 0, "A, B,\nas trained, nothing before it"),
        (0, 1, "A, \u21b5\nas trained, after 4,096 tokens, beyond the 8 of training"),
        (1, 0, "A, and\npositions off, nothing before it"),
    ],
)
def test_what_was_recorded_is_said(page, way, length, wanted):
    page.focus(".explorer-says [name=way]:checked")
    for _ in range(way):
        page.keyboard.press("ArrowRight")
    move(page, "says-length", length)
    assert page.inner_text(".explorer-says [role=status]").strip() == wanted
    assert page.locator(".explorer-says .far").count() == length


def test_a_switch_plays_its_fault_beside_the_sound_model(page):
    said, switches = map(page.locator, (".explorer-booth .said", ".explorer-booth input"))
    switches.nth(1).press("Space")
    assert said.inner_text() == "c\nA, c!"
    assert [switch.is_checked() for switch in switches.all()[:3]] == [False, True, False]
    move(page, "booth-read", 0)
    for name, loss in (("sound", 0), ("broken", 2)):
        shows(page, "booth", name, loss, 5.1e-3)
        height = heights(page.locator(".explorer-booth .curve").nth(loss // 2))
        wanted = [78 - 74 * x / 15 for x in (loss, 4.5, 14)]
        assert height == pytest.approx(wanted, abs=0.06)
    switches.nth(1).press("Space")
    assert said.inner_text() == "no fault\nA, a!"


def test_a_fault_is_guessed_blind_and_the_score_is_kept(page):
    said, switches = map(page.locator, (".explorer-booth .said", ".explorer-booth input"))
    page.evaluate("Math.random = () => 0.99")  # the second, then the one before
    for guess, told in ((1, "Right: c\nA, c!"), (2, "No, it was b\nA, b!")):
        page.press(".explorer-booth button", "Enter")
        assert said.inner_text() == f"Which fault is it?\nA, {told[-2:]}"
        assert not any(switch.is_checked() for switch in switches.all()[:3])
        switches.nth(guess).click()
        assert said.inner_text() == told
    assert "1 of 2 right" in page.inner_text(".explorer-booth .controls")
    assert page.locator(".explorer-booth .types").evaluate(STILL) == "none"


@pytest.mark.parametrize("tile", range(6))
def test_what_tiles_keep_is_the_softmax_of_the_keys_so_far(page, tile):
    page.locator(".explorer-tiles .box").nth(tile).click()
    row, column = 2 * np.argwhere(np.tri(3))[tile]
    bars = page.locator(".explorer-tiles .bar").evaluate_all(BARS)
    for query, state in enumerate(page.locator(".explorer-tiles .state").all(), row):
        scores = np.log(POWERS[query, : min(column + 2, query + 1)])
        weights = reference.masked_softmax(scores[None])[0]
        output = weights @ GIVEN["tiles"]["values"][: len(scores)]
        exps = weights / weights.max()
        kept = [scores.max(), exps.sum(), exps.sum() * output, output]
        assert state.locator("output").evaluate_all(KEPT) == pytest.approx(kept)
        first, rest = query * (query + 1) // 2, query + 1 - len(exps)
        assert bars[first:][: query + 1] == pytest.approx(np.pad(exps, (0, rest)), abs=1e-5)


@pytest.mark.parametrize("mask", range(3))
def test_workers_of_the_ring_compute_the_pairs_of_the_keys_that_they_hold(page, mask):
    page.locator(".explorer-ring [type=radio]").nth(mask).check()
    order = np.array(GIVEN["ring"]["balanced"]) if mask == 2 else np.arange(16)
    seen, held = (reference.causal_mask(16) | (mask == 0))[order], order.reshape(4, 4)
    work = [[seen[4 * r :][:4, held[r - t]].sum() for r in range(4)] for t in range(4)]
    for t, now in enumerate(np.array(work)):
        move(page, "ring-step", t)
        told = page.locator(".explorer-ring output[data-name]").evaluate_all(KEPT)
        assert told == [*np.sum(work[: t + 1], 0), np.max(work[: t + 1], 1).sum()]
        counts = [page.locator(f".explorer-ring .{kind}").count() for kind in KINDS]
        assert counts == [np.sum(work[t + 1 :]), now.sum(), (now < now.max()).sum()]
        boxes = [page.locator(f".explorer-ring g.{kind}") for kind in ("query", "key")]
        homes, keys = (np.array(some.evaluate_all(CORNERS)) for some in boxes)
        near = abs(keys[:, None] - homes).sum(2).argmin(1)
        assert near.tolist() == [(s + t) % 4 for s in range(4)]


@pytest.mark.parametrize("step", [0, 2, 4])
def test_caches_keep_what_their_designs_keep(page, step):
    move(page, "caches-tokens", step)
    past = {*range(step + 1)}
    for n, held in enumerate([past, {0} | past & {step - 1, step}]):
        slots = page.locator(f".explorer-caches .d{n} i").evaluate_all(KINDS_OF)
        kinds = [
            {j for j, slot in enumerate(slots) if kind in slot} for kind in ("kept", "gone")
        ]
        assert kinds == [held, past - held]
        shows(page, "caches", f"kept-{n}", DESIGNS[n]["bytes"] * len(held) / 1024, 0.051)


@pytest.mark.parametrize("gate", [60, 100])
@pytest.mark.parametrize("corrects", [0, 1])
@pytest.mark.parametrize(("back", "count"), [(False, 5), (True, 4), (False, 0)])
def test_the_state_is_that_of_the_library(page, gate, corrects, back, count):
    page.click(f".explorer-state [type=radio] >> nth={corrects}")
    page.locator("#explorer-state-back").set_checked(back)
    for name, value in (("facts", count), ("gate", gate), ("beta", 75)):
        move(page, f"state-{name}", value)
    told = (FACTS[::-1] if back else FACTS)[:count]
    k, v = np.eye(4)[np.array(told, int).reshape(-1, 2).T][:, None]
    gates, beta = np.full((1, count), np.log(gate / 100)), np.full((1, count), 0.75)
    layer = reference.gated_delta if corrects else reference.linear_attention
    state = layer(k, k, v, gates, *([beta] if corrects else []))[1][0]
    drawn = page.locator(".explorer-state rect").evaluate_all(SHADE)
    assert drawn == pytest.approx(np.minimum(state, 1).ravel(), abs=6e-4)
    for x in np.flatnonzero(state[0] >= 5e-3):
        shows(page, "state", f"answer-{x}", state[0, x], 5.1e-3)
    if not count:
        assert "says nothing" in page.inner_text(".explorer-state .said")
        assert page.locator(".explorer-state :is(.erased, .written)").count() == 0


def test_keys_tell_the_state_another_fact(page):
    page.press("#explorer-state-facts", "Home")
    page.press("#explorer-state-facts", "ArrowRight")
    assert page.locator(".explorer-state li.now").inner_text() == "the dog bites the man"
    assert page.locator(".explorer-state .written").count() == 1
    for _ in range(3):
        page.press("#explorer-state-facts", "ArrowRight")
    assert page.locator(".explorer-state .erased").count() == 1


def test_steps_play_until_the_last_and_keys_move_them(page):
    button, step = map(page.locator, (".explorer-ring button", "#explorer-ring-step"))
    assert page.inner_text(".explorer-ring .control output") == "1 of 4"
    step.press("End")
    step.press("ArrowLeft")
    button.click()
    assert (button.inner_text(), step.input_value()) == ("pause", "3")
    page.wait_for_selector(".explorer-ring button >> text=play")
    button.dblclick()
    assert (button.inner_text(), step.input_value()) == ("play", "0")


@pytest.mark.parametrize(("scheme", "head"), [(0, 1), (1, 0)])
def test_a_head_that_forms_is_shown_as_recorded(page, scheme, head):
    for choice in (scheme, 2 + head):
        page.click(f".explorer-induction [type=radio] >> nth={choice}")
    page.press("#explorer-induction-step", "End")
    assert f"Step 150: layer {head}" in page.inner_text(".explorer-induction .said")
    shows(page, "induction", "loss", RUNS[scheme]["loss"][2], 5.1e-3)
    shows(page, "induction", "score", RUN["scores"][head][2], 5.1e-3)
    shades = page.locator(".explorer-induction rect").evaluate_all(SHADE)
    assert shades == [float(each == "z") for each in RUN["maps"][head][2]]


@pytest.mark.parametrize("shift", [0, 5, 8, 40])
def test_the_maps_of_the_wall_are_those_of_the_library(page, shift):
    page.wait_for_selector(".explorer-wall output[data-value]")
    page.focus("#explorer-wall-shift")
    for _ in range(shift):
        page.keyboard.press("ArrowRight")
    still = 0
    for tile, scores, shades in zip(
        page.locator(".explorer-wall a").all(), WALL.values(), SHADES, strict=True
    ):
        seen = slice(shift, shift + 24)
        same = np.allclose(scores[seen, seen], scores[:24, :24])
        now = tile.locator("canvas").evaluate(SEEN)
        assert now == shades[seen, seen].ravel().tolist()
        assert ("moves" in (tile.get_attribute("class") or "")) != same
        still += same
    shows(page, "wall", "still", still)


def test_a_map_is_dimmed_dragged_and_opens_its_card(page):
    page.wait_for_selector(".explorer-wall output[data-value]")
    assert page.locator(".explorer-wall .dim").count() == 0
    page.evaluate("scrollTo(0, 1e6)")
    assert page.locator("#explorer-wall-shift").bounding_box()["y"] >= 0  # it sticks
    page.locator("#explorer-wall-chip-0").check()
    assert page.locator(".explorer-wall .dim").all_inner_texts() == ["T5", "Swin", "ALiBi"]
    assert page.inner_text(".explorer-wall .said").endswith("; 2 fit")
    tile = page.locator(".explorer-wall a").nth(1)
    tile.hover()
    page.mouse.down()
    page.mouse.move(tile.bounding_box()["x"] + 66, tile.bounding_box()["y"] + 10)
    page.mouse.up()
    assert page.input_value("#explorer-wall-shift") != "0"
    assert "#" not in page.url
    tile.press("Enter")
    assert page.url.endswith("#scheme-sinusoidal")


def test_keys_move_a_slider_and_choose_a_scheme(page):
    page.focus(".explorer-biases [type=radio]:checked")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".explorer-biases .said").startswith("T5, fall per bucket 0.125")
    page.focus("#explorer-pairs-position")
    page.keyboard.press("ArrowRight")
    assert "Position 8 is 001000" in page.inner_text(".explorer-pairs .said")
    page.locator(".explorer-biases svg").first.click()
    assert page.input_value("#explorer-biases-distance") in ("63", "64")
    assert page.get_by_role("group", name="Biases over the distance").count() == 1


SAID = {  # when a page opens, and after all sliders were pressed
    "biases": "ALiBi, slope 1/32: a key 11 back gets \u22120.34 added and 0.0222 of the weight.",
    "caches": "the is token 4, and the window drops dog. KiB in one layer: d0 4.5, d1 12.",
    "dials": "0 of 64 lost\nneighbors 57\u00b0 apart in pair 0\n0 slowed",
    "induction": "Step 75: layer 1, head 1 gives 0.25 to what followed last time. Loss 3.00.",
    "pairs": "Position 8 is 001000 in binary. Pair 0 has completed 1.27 circles.",
    "pull": "Weights 0.22, 0.65, 0.13, gradient 0.229 of at most 0.25.",
    "ring": "time 32 of 64: a step takes as long as its busiest worker",
    "rotary": "Query at 9, key at 5: rotary score \u22120.3966, additive score 0.2744.",
    "state": "Whom does the dog bite? cat 0.99.",
    "tiles": "query 2\nmaximum\nln 1 \u2192 ln 5 = 1.61\n",
    "wall": "3 of 5 stand still, \u2260 2 change with the absolute position",
}
ENDS = {  # of axes and rows
    "biases": ["0", "distance", "127"],
    "booth": ["128", "tokens read", "384"],
    "dials": [
        "pair 0, the fastest",
        "shaded: seen in training; red: never seen",
        "pair 63",
    ],
    "induction": ["0", "step", "150"],
}
LABELS = "all => all.map((one) => one.ariaLabel)"
READ = "all => Object.fromEntries(all.map((one) => [one.id.slice(9), one.ariaValueText]))"


def test_what_is_said_aloud_is_what_is_shown(page):
    page.wait_for_selector(".explorer-wall output[data-value]")
    places = page.locator(".tiles button").evaluate_all(LABELS)
    assert places[1:3] == [
        "dog, place 5 of 5, output another",
        "bites, place 3 of 5, output another",
    ]
    for _ in range(20):
        page.press(".grip", "ArrowLeft")
    read = [page.get_attribute(".grip", f"aria-value{name}") for name in ("text", "now")]
    assert read == ["190 degrees, length 0.50", "190"]
    for slider in page.locator("[type=range]").all():
        slider.press("ArrowRight")
    move(page, "caches-tokens", 3)
    move(page, "state-gate", 99)
    digits = page.locator(".bit").evaluate_all(LABELS)
    assert digits == [f"{int(n == 3)}, digit of {32 >> n - 1}" for n in range(1, 7)]
    dials = page.get_attribute(".explorer-dials .grid", "aria-label")
    assert dials == "64 dials at 10 tokens, 0 of them red"
    told = page.locator("[type=range]").evaluate_all(READ)
    assert told["biases-setting"] == "1/32"
    assert told["says-length"] == "4,096"
    assert told["ring-step"] == "2 of 4"
    for name, wanted in SAID.items():
        said = page.inner_text(f".explorer-{name} [role=status]")
        assert wanted in said, name
    for name, wanted in ENDS.items():
        ends = page.locator(f".explorer-{name} :is(.under span, .ends small)")
        assert ends.all_inner_texts()[:3] == wanted


def test_it_fits_a_phone_and_leaves_paper_to_the_twin(browser, page, folder):
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert not page.is_visible("text=pairs on paper")
    page.emulate_media(media="print")
    assert page.is_visible("text=pairs on paper")
    assert not page.is_visible(".explorer-pairs .live")
    plain = browser.new_page(java_script_enabled=False)
    plain.goto((folder / "index.html").as_uri())
    assert plain.is_visible("text=rotary on paper")
    plain.close()


def test_the_scripts_of_what_moves_stay_small():
    scripts = {*SCRIPTS.iterdir(), *STATIC.glob("decoder*.js")} - {SCRIPTS / "scope.js"}
    assert sum(script.stat().st_size for script in scripts) < 78 * 1024
