"""The config scope shows what the command prints, in time, and its dials are those of the plan."""

import json
import os
import shutil
import sys
from importlib.util import find_spec

import pytest

from posattn.__main__ import main
from posattn.configs import plan
from posattn.configs.traits import strip
from tests.audit.browser import PATIENCE
from tests.audit.site import served
from tests.build.books import ROOT
from tests.conftest import need
from tests.records import FILES

sys.path.insert(0, str(ROOT / "docs" / "_ext"))
STATIC, RECORDS = ROOT / "docs" / "_static", ROOT / "docs" / "_records" / "configs"
SAMPLE = sorted(FILES)[::6]
PAGE = """<!doctype html><html lang="en" data-content_root="./"><meta charset="utf-8"><title>Scope</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'self'; style-src 'self' 'unsafe-inline'">
<link rel="stylesheet" href="book.css"><link rel="icon" href="data:,">
<div class="explorer explorer-scope"><p>on paper</p>
<script type="application/json">{"models": [["qwen3", "Q"]]}</script></div>
<script src="panel.js" defer></script><script src="scope.js" defer></script></html>"""
DROP = """([text]) => { const data = new DataTransfer();
    data.items.add(new File([text], "config.json"));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
    document.querySelector(".said").textContent = "Reading";
    window.dropped = performance.now(); }"""
SLOW = {
    "offline": False,
    "latency": 20,
    "downloadThroughput": 1.25e6,
    "uploadThroughput": 1e6,
}
SLIDE = "(input, k) => { input.value = k; input.dispatchEvent(new Event('input')) }"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    need(find_spec("brython"), "Brython is missing: nox -s docs installs it")
    from book.scope import engine

    folder = tmp_path_factory.mktemp("scope")
    (folder / "index.html").write_text(PAGE)
    for name in ("book.css", "explorers/panel.js", "explorers/scope.js"):
        shutil.copy(STATIC / name, folder)
    shutil.copytree(STATIC / "scope", folder / "_static" / "scope")
    (folder / "_static/scope/engine.js").write_text(engine(), "utf-8")
    shutil.copy(RECORDS / "qwen3.json", folder / "_static/scope")
    with served(folder) as home:
        yield home


@pytest.fixture
def page(browser, home):
    page, faults = browser.new_page(viewport={"width": 375, "height": 800}), []
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith(home) or faults.append(asked.url))
    page.goto(f"{home}/index.html")
    yield page
    assert faults == []
    page.close()


def drop(page, text):
    """Drop a file, and wait for the answer."""
    page.evaluate(DROP, [text])
    page.locator(".said:not(:has-text('Reading'))").wait_for()


def test_the_plan_is_the_command_s_for_one_of_six_records(page, capsys):
    for name in SAMPLE:
        path = RECORDS / f"{name}.json"
        drop(page, path.read_text("utf-8"))
        assert main(["plan", str(path)]) == 0
        assert page.text_content("details > pre") == capsys.readouterr().out.rstrip("\n")
        assert page.text_content(".strip").replace(" ", "") == strip(plan(path))


@pytest.mark.parametrize(
    "change", [{"rope_theta": -1}, {"head_dims": 4}, {"model_type": "lama"}]
)
def test_an_error_is_the_command_s(page, change, tmp_path, capsys):
    wrong = tmp_path / "config.json"
    wrong.write_text(json.dumps(FILES["qwen3"] | change))
    drop(page, wrong.read_text())
    assert main(["plan", str(wrong)]) == 2
    assert f"posattn: {page.text_content('.said')}\n" == capsys.readouterr().err
    assert not page.is_visible(".strip")


def test_dials_turn_red_and_yarn_brings_them_back(page, home):
    page.goto(
        f"{home}/index.html?model=qwen3#layer=2&length=8"
    )  # twice the 40,960 of its file
    page.locator(".read").wait_for()
    assert (
        page.text_content(".said")
        == "At 81,920 tokens, 23 of 64 pairs are new, from 40,960 on."
    )
    assert page.locator(".pair.lost").count() == 23
    page.click("#explorer-scope-yarn")
    page.locator(".said:not(.any)").wait_for()
    added = json.loads(f"{{{page.text_content('.add pre')}}}")
    (rope,) = {layer.rope for layer in plan(FILES["qwen3"] | added).layers}
    assert rope.method == "yarn"
    assert dict(rope.numbers)["factor"] == 2
    assert "yarn=1" in page.url
    page.locator("#explorer-scope-length").evaluate(SLIDE, 0)
    assert "At 40,960 tokens, none" in page.text_content(".said")


def test_a_file_travels_in_the_address_behind_the_hash(page, browser):
    drop(page, json.dumps(FILES["qwen3-8b"] | {"nobody": 1}))
    page.wait_for_url("**config=*")
    assert "32,768, the max_position_embeddings of its class" in page.text_content("dl")
    assert "Read by nobodynobody" in page.text_content("dl")
    other = browser.new_page()
    other.goto(page.url)
    other.locator(".read").wait_for(timeout=PATIENCE)
    assert other.text_content("details > pre") == page.text_content("details > pre")
    other.close()


def test_it_is_there_in_three_seconds_and_then_at_once(page, home):
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", SLOW)
    text = (RECORDS / "qwen3.json").read_text()
    spans = []
    for _ in range(3):
        drop(page, text)
        spans.append(page.evaluate("performance.now() - window.dropped"))
    print("milliseconds from drop to strip:", *map(round, spans))
    idle = os.getloadavg()[0] < os.cpu_count()
    assert spans[0] < 3000 or not idle
    assert spans[-1] < 200 or not idle
    script = STATIC / "explorers" / "scope.js", STATIC / "scope" / "worker.js"
    assert sum(path.stat().st_size for path in script) < 9 * 1024
