"""The explorers show the library's numbers, obey keys, and leave their twin to paper and to no script."""

import re
import shutil

import numpy as np
import pytest

from posattn import reference
from tests.build.books import ROOT

STATIC = ROOT / "docs" / "_static"
PAGE = """<!doctype html><meta charset="utf-8"><title>Explorers</title>
<link rel="stylesheet" href="book.css">
<div class="explorer explorer-pairs"><div class="figure">pairs on paper</div></div>
<div class="explorer explorer-rotary"><div class="figure">rotary on paper</div></div>
<div class="explorer explorer-biases"><div class="figure">biases on paper</div></div>
<div class="explorer explorer-wavelengths"><div class="figure">wavelengths on paper</div></div>
<script src="explorers.js" defer></script>"""
Q, K = np.array([[1, 0, 0.5, 0.5]]), np.array([[0.8, 0.6, 0.6, -0.2]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorers")
    (folder / "index.html").write_text(PAGE)
    for name in ("explorers.js", "book.css"):
        shutil.copy(STATIC / name, folder)
    return folder


@pytest.fixture
def page(browser, folder):
    page = browser.new_page(viewport={"width": 375, "height": 800})
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((folder / "index.html").as_uri())
    for box in page.locator(".explorer").all():
        box.scroll_into_view_if_needed()  # which builds it
    page.wait_for_function("!document.querySelector('.explorer:not(.is-live)')")
    yield page
    assert faults == []
    page.close()


def move(page, name, value):
    """Move a slider as a finger would, up to the event."""
    page.eval_on_selector(
        f"#explorer-{name}",
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')) }",
        value,
    )


def shown(page, explorer, name):
    """What an explorer shows: its number in full, and as printed."""
    place = page.locator(f".explorer-{explorer} output[data-name='{name}']")
    return float(place.get_attribute("data-value")), number(place.inner_text())


def number(text):
    return float(text.replace("\N{MINUS SIGN}", "-"))


def heights(line):
    return [float(point.split()[1]) for point in line.get_attribute("d")[2:].split(" L ")]


@pytest.mark.parametrize(("position", "choice"), [(6, 2), (45, 0)])
def test_the_pairs_show_the_encoding(page, position, choice):
    move(page, "pairs-position", position)
    move(page, "pairs-base", choice)
    row = reference.sinusoidal_encoding(64, 8, base=10.0 ** (choice + 1))[position]
    for j in range(4):
        for hand, wanted in (("sin", row[2 * j]), ("cos", row[2 * j + 1])):
            full, printed = shown(page, "pairs", f"{hand}-{j}")
            assert full == pytest.approx(wanted, abs=1e-12)
            assert printed == pytest.approx(wanted, abs=5.1e-5)
    tip = page.locator(".explorer-pairs .tip").nth(1)
    point = [float(tip.get_attribute(name)) / 40 for name in ("cx", "cy")]
    assert point == pytest.approx([row[2], -row[3]], abs=2e-4)
    assert "".join(page.locator(".bit").all_inner_texts()) == f"{position:06b}"


def scores(shift, offset):
    i, j = np.array([shift + 8]), np.array([shift + 8 - offset])
    table = reference.sinusoidal_encoding
    rotary = reference.rotate(Q, i) @ reference.rotate(K, j).T / 2
    additive = (Q + table(i, 4)) @ (K + table(j, 4)).T / 2
    return {"rotary": rotary.item(), "additive": additive.item()}


@pytest.mark.parametrize(("shift", "offset"), [(17, 6), (63, -8)])
def test_the_scores_are_those_of_the_library(page, shift, offset):
    move(page, "rotary-offset", offset)
    move(page, "rotary-shift", shift)
    for name, wanted in scores(shift, offset).items():
        full, printed = shown(page, "rotary", name)
        assert full == pytest.approx(wanted, abs=1e-12)
        assert printed == pytest.approx(wanted, abs=5.1e-5)
    for line in page.locator(".explorer-rotary .curve").all():
        assert 0 <= min(heights(line)) <= max(heights(line)) <= 96


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
    wanted = {
        "bias": (bias[distance], 5.1e-3),
        "weight": (weights[distance], 5.1e-5),
        "half": ((weights.cumsum() < 0.5).sum() + 1, 0),
    }
    for name, (value, last_digit) in wanted.items():
        full, printed = shown(page, "biases", name)
        assert full == pytest.approx(value, abs=1e-11)
        assert printed == pytest.approx(value, abs=last_digit)
    for plot, values in enumerate((bias, weights)):
        box = page.locator(".explorer-biases .axes").nth(plot)
        low, high = (number(box.locator(end).inner_text()) for end in (".low", ".high"))
        assert low <= min(values) <= max(values) <= high
        shares = [(78 - y) / 74 for y in heights(box.locator(".curve"))]
        assert shares == pytest.approx((values - low) / (high - low), abs=1e-3)


LENGTHS = [2**power for power in range(11, 18)]
FACTORS = [2.0**power for power in range(6)]
BASES = [1e4, 1e5, 5e5, 1e6, 1e7]


def slowed_by(method, base, factor, trained):
    """The library's frequencies of a head of width 128, and its attention factor."""
    options = {"base": base, "factor": factor}
    ways = {
        "no scaling": lambda: reference.frequencies(128, base=base),
        "position interpolation": lambda: reference.position_interpolation(128, **options),
        "NTK-aware": lambda: reference.ntk_aware(128, **options),
        "dynamic NTK": lambda: reference.dynamic_ntk(
            128, **options, length=int(factor * trained), trained_length=trained
        ),
        "YaRN": lambda: reference.yarn(128, **options, trained_length=trained),
        "llama3": lambda: reference.llama3(128, **options, trained_length=trained),
    }
    made = ways[method]()
    return made if isinstance(made, tuple) else (made, 1.0)


@pytest.mark.parametrize(
    ("method", "trained", "factor", "base"),
    [
        ("no scaling", 2, 2, 0),
        ("position interpolation", 2, 3, 2),
        ("NTK-aware", 2, 2, 0),
        ("dynamic NTK", 1, 1, 1),
        ("YaRN", 6, 5, 4),
        ("llama3", 0, 5, 3),
    ],
)
def test_the_wavelengths_are_those_of_the_library(page, method, trained, factor, base):
    for name, value in (("trained", trained), ("factor", factor), ("base", base)):
        move(page, f"wavelengths-{name}", value)
    move(page, "wavelengths-method", method)
    length, times, base = LENGTHS[trained], FACTORS[factor], BASES[base]
    slowed, attention = slowed_by(method, base, times, length)
    seen = length * reference.frequencies(128, base=base)
    reached = times * length * slowed
    wanted = {
        "leaving": ((seen < 2 * np.pi) & (reached > seen * (1 + 1e-9))).sum(),
        "step": slowed[0],
        "seen": np.degrees(seen[-1]),
        "reached": np.degrees(reached[-1]),
        "attention": attention,
    }
    for name, number in wanted.items():
        full, printed = shown(page, "wavelengths", name)
        assert full == pytest.approx(number, rel=1e-9)
        assert printed == pytest.approx(number, abs=0.051)
    lines = page.locator(".explorer-wavelengths .curve")
    for line, angles in zip(lines.all(), (seen, reached), strict=True):
        rotations = angles / (2 * np.pi)
        assert heights(line) == pytest.approx(15 * (6 - np.log10(rotations)), abs=0.006)
    assert page.locator(".explorer-wavelengths circle.new").count() == wanted["leaving"]


def test_keys_move_a_slider_and_choose_a_method(page):
    page.focus("#explorer-wavelengths-method")
    page.keyboard.press("N")
    assert "NTK-aware" in page.inner_text(".explorer-wavelengths .said")
    page.focus(".explorer-biases [type=radio]:checked")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".explorer-biases .said").startswith("T5, 0.50 a bucket")
    page.focus("#explorer-pairs-position")
    page.keyboard.press("ArrowRight")
    assert "Position 6 is 000110" in page.inner_text(".explorer-pairs .said")


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


PLACE = re.compile(
    r"^:::\{container\} explorer explorer-(\w+)\n(.*?)^:::", re.DOTALL | re.MULTILINE
)


def test_each_place_of_an_explorer_holds_a_twin_and_names_one_that_the_script_has():
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    places = [place for page in pages for place in PLACE.findall(page)]
    assert len(places) == sum(page.count("explorer explorer-") for page in pages) > 1
    script = (STATIC / "explorers.js").read_text("utf-8")
    assert len(script) < 20 * 1024
    known = re.search(r"const builders = \{ (.*?) \}", script)[1].split(", ")
    assert {name for name, _ in places} == {*known}
    assert all(twin.strip() for _, twin in places)
