"""The audit: it passes a page with nothing wrong, and names each fault of a bad one."""

import os
import re
from pathlib import Path

import pytest

from tests.audit import __main__ as audit
from tests.audit import browser, chromium, links, node, npm, site
from tests.conftest import need

POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'"
STYLE = """
body { margin: 1rem; overflow-wrap: anywhere; } h1 { font-size: 1.5rem; }
.scroll { overflow-x: auto; } .wide { width: 600px; height: 20px; display: inline-block; }
.sd-tab-content { display: none; } .sd-tab-set > input:checked + label + div { display: block; }
svg { max-width: var(--most, 100%); height: auto; }
"""
TABS = """
<div class="sd-tab-set">
<input type="radio" name="tabs" id="one" checked><label for="one">PyTorch</label>
<div class="sd-tab-content"><p>torch</p></div>
<input type="radio" name="tabs" id="two"><label for="two">JAX</label>
<div class="sd-tab-content"><p>jax</p></div>
</div>
"""
FOLD = "<details><summary>Solution</summary><p>forty-two</p></details>\n"
TABLE = "<table><tr><th>head</th></tr><tr><td class='%s'>entry</td></tr></table>\n"
EQUATION = """<div class="katex-display"><div class="katex-html">
<span class="base wide">x</span></div></div>"""
FIGURE = '<svg class="figure" role="img" aria-label="waves" width="600" height="20"></svg>'
ALL = (
    TABS
    + FOLD
    + f'<div class="scroll" tabindex="0">{TABLE % "wide"}</div>'
    + f'<div class="scroll" tabindex="0">{EQUATION}</div>{FIGURE}'
    + '<p><a href="good.html#top">Above</a></p>'
)


def page(body, policy=POLICY, style=STYLE, head=""):
    """A page that has nothing but this."""
    rule = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>A page</title>{rule}{head}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="A page of the tests"><link rel="icon" href="data:,">
<style>{style}</style></head>
<body><main><h1 id="top">A page</h1>{body}</main></body></html>
"""


# Bad pages, whose comments say which check must say what.
BAD = {
    "trouble": page(
        """<script>document.title = "no"</script><script src="trouble.js"></script>
        <button type="button" onfocus="this.id = 1">Go</button>
        <img src="http://127.0.0.2:9/x.png" alt="x"><img src="gone.png" alt="x">
        <!-- policy: console: Executing inline script violates -->
        <!-- policy: console: Executing inline event handler violates -->
        <!-- policy: console: wrong --><!-- policy: error: thrown -->
        <!-- policy: asks for http://127.0.0.2:9/x.png --><!-- policy: gone.png answers 404 -->""",
        policy="img-src *; script-src 'self'",
    ),
    "heavy": page('<script src="heavy.js"></script><!-- weight: more than 300 -->'),
    "wide": page(
        f"""<p class="wide">wide</p><!-- overflow: the page is 616 pixels wide: p.wide “wide” -->
        <div class="scroll" tabindex="0" style="--most: 9in">{FIGURE}</div>
        <!-- overflow: svg.figure “waves” scrolls -->
        <div class="scroll"><a href="#top">x</a>{EQUATION}</div>
        <!-- overflow: div.katex-display “x” scrolls -->
        <div style="overflow: hidden">{TABLE % "wide"}</div><!-- overflow: table “headentry” is cut -->
        <div class="scroll" tabindex="0"><div style="width: 600px">{TABS}</div></div>
        <!-- overflow: div.sd-tab-set “PyTorch torch JAX jax” scrolls -->"""
    ),
    "keys": page(
        FOLD
        + TABS.replace('name="tabs" id="two"', 'name="other" id="two"')
        + """<!-- keyboard: ArrowRight does not turn div.sd-tab-set -->
        <!-- keyboard: summary “Solution” has the focus, and nothing shows it -->
        <!-- keyboard: Enter does not turn summary “Solution” -->
        <!-- keyboard: Space does not turn summary “Solution” -->""",
        style=STYLE + "summary { outline: none; }",
        head='<script src="stop.js" defer></script>',
    ),
    "no-keys": page(
        TABS.replace("<input", '<input tabindex="-1"')
        + FOLD.replace("<summary", '<summary tabindex="-1"')
        + """<div class='explorer'></div><!-- keyboard: div.explorer never lives -->
        <!-- keyboard: Tab does not reach div.sd-tab-set -->
        <!-- keyboard: Tab does not reach summary “Solution” -->"""
    ),
    "pale": page(
        f"""<p class="dark">dark</p>{FOLD}{TABS}
        <!-- axe: (color-contrast): #top --><!-- axe: (color-contrast): .dark -->
        <!-- axe: (color-contrast): details > p -->
        <!-- axe: (color-contrast): .sd-tab-content:nth-child(6) > p -->""",
        style=STYLE
        + """@media (prefers-color-scheme: dark) { .dark { color: #222; background: #000; } }
        @media (max-width: 400px) { h1 { color: #eee; } }
        details p, .sd-tab-content:last-child p { color: #eee; }""",
    ),
    "scripted": page(
        "<p hidden>shy</p><!-- no script: 2 of 3 blocks of text vanish --><script src='turn.js'></script>"
        + TABS
        + """<!-- no script: div.sd-tab-set “PyTorch torch JAX jax” shows 0 panels -->
        <!-- no script: label “JAX” does not open its panel -->""",
        style=STYLE.replace("input:checked + label + div", "div.on"),
    ),
    "moved": Path(__file__).with_name("moved.html").read_text("utf-8"),
}
SCRIPTS = {
    "trouble.js": "console.warn('wrong'); throw new Error('thrown')",
    "stop.js": "document.querySelector('summary').onclick = event => event.preventDefault()",
    "turn.js": """document.querySelector("p").hidden = false;
const inputs = [...document.querySelectorAll("input")];
const turn = () => inputs.forEach(i => i.labels[0].nextElementSibling.classList.toggle("on", i.checked));
onload = () => { inputs.push(...document.querySelectorAll("input")); turn(); };
onchange = turn;""",
}
MISSING = """<p id="top"><a href="good.html#top">1</a> <a href="good.html">2</a> <a href="#top">3</a>
<a href="https://example.org/x">4</a> <a href="gone.html">5</a> <a href="good.html#gone">6</a>
<a href="#nowhere">7</a> <a href="../outside.html">8</a> <img src="gone.png" alt=""></p>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    need(npm.HOME.is_dir(), npm.MISSING)
    folder = tmp_path_factory.mktemp("site")
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    (folder / "heavy.js").write_text(f"//{os.urandom(400 * 1024).hex()}")
    (folder / "good.html").write_text(page(ALL))
    for name, text in BAD.items():
        (folder / f"{name}.html").write_text(text)
    return folder


@pytest.fixture(scope="module")
def look(folder):
    """A function that looks at one of the pages."""
    need(chromium.program(), chromium.MISSING)
    with site.served(folder) as home, chromium.started() as started:
        yield lambda name: browser.faults(started, f"{home}/{name}.html")


def test_a_good_page_passes(look):
    found = look("good")
    assert found.pop("kib") == 1
    assert found == {check: [] for check in {*audit.CHECKS} - {"html", "links"}}


@pytest.mark.parametrize("name", BAD)
def test_each_fault_is_found_by_its_check_and_named(look, name):
    found = look(name)
    for check, words in re.findall("<!-- (.*?): (.*?) -->", BAD[name]):
        assert words in "\n".join(found[check])


def test_errors_of_html_are_found(folder):
    bad = folder / "bad-html.html"
    bad.write_text(page('<p id="top">twice</p><div><p>open</div>'))
    good, wrong = node.lines("validate.mjs", folder / "good.html", bad)
    assert good["faults"] == []
    rules = [fault.rsplit(" ", 1)[1] for fault in wrong["faults"]]
    assert rules == ["(no-implicit-close)"]


def test_dead_links_and_anchors_are_found(tmp_path):
    (tmp_path / "good.html").write_text(page(""))
    (tmp_path / "bad.html").write_text(MISSING)
    assert links.faults(tmp_path, tmp_path / "good.html") == []
    assert links.faults(tmp_path, tmp_path / "bad.html") == [
        "gone.html is no file of the site",
        "good.html#gone: good.html has no element of that name",
        "#nowhere: bad.html has no element of that name",
        "../outside.html is no file of the site",
        "gone.png is no file of the site",
    ]


def test_the_site_is_seen_in_all_eight_states():
    seen = [browser.states(f"/page-{number}.html") for number in range(40)]
    for pair in seen:
        assert all(one != other for one, other in zip(*pair, strict=True))
    assert len({str(state) for pair in seen for state in pair}) == 8


def test_a_low_score_is_a_fault_with_its_reason_unless_it_is_of_speed():
    scores = dict.fromkeys(audit.SCORES, 100) | {"performance": 50, "seo": 90}
    line = {"scores": scores, "reasons": {"seo": ["no description", "no title"]}}
    assert audit.low("good", line) == {"seo": ["90, not 100: no description; no title"]}
    assert not audit.low("search", line)  # not meant to be found


def test_pages_are_chosen_by_name_or_as_the_longest_of_each_folder(tmp_path):
    sizes = {"index": 10, "live": 3, "api/short": 5, "api/long": 9, "position/rotary": 1}
    for name, size in sizes.items():
        path = tmp_path / f"{name}.html"
        path.parent.mkdir(exist_ok=True)
        path.write_text("x" * size)
    found = site.pages(tmp_path)
    assert site.longest(found) == ["api/long", "index", "position/rotary"]
    with pytest.raises(SystemExit, match=r"has no page nowhere; it has .*live"):
        site.pages(tmp_path, ["nowhere"])
