"""The config scope shows what the command prints, in time, and its dials are those of the plan."""

import gzip
import json
import os
import shutil
import time
from importlib.util import find_spec

import pytest

from docs._ext.book import scope
from posattn.__main__ import main
from posattn.configs import plan
from posattn.configs.traits import strip
from tests.audit.browser import PATIENCE
from tests.audit.site import served
from tests.build.books import ROOT
from tests.conftest import need
from tests.records import FILES

STATIC, RECORDS = ROOT / "docs" / "_static", ROOT / "docs" / "_records" / "configs"
SCRIPTS = STATIC / "explorers" / "scope.js", STATIC / "scope" / "worker.js"
PAGE = """<!doctype html><html lang="en" data-content_root="./"><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'self'; style-src 'self' 'unsafe-inline'">
<link rel="stylesheet" href="book.css"><link rel="icon" href="data:,"><div class="explorer explorer-scope">
<script type="application/json">{"models": [["qwen3", "Q"]]}</script></div>
<script src="panel.js" defer></script><script src="scope.js" defer></script></html>"""
DROP = """([text]) => { const data = new DataTransfer();
    data.items.add(new File([text], "config.json"));
    document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
    const said = document.querySelector(".said"), now = () => performance.now();
    [said.textContent, window.dropped] = ["Reading", now()];
    new MutationObserver(() => { window.shown = now(); }).observe(said, { childList: true }); }"""
WRONG = {"rope_theta": -1}, {"head_dims": 4}, {"model_type": "lama"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    need(find_spec("brython"), "Brython is missing: nox -s docs installs it")
    folder = tmp_path_factory.mktemp("scope")
    (folder / "index.html").write_text(PAGE)
    for name in ("book.css", "explorers/panel.js", "explorers/scope.js"):
        shutil.copy(STATIC / name, folder)
    shutil.copytree(STATIC / "scope", folder / "_static" / "scope")
    (folder / "_static/scope/engine.js").write_text(scope.engine(), "utf-8")
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
    """Drop a file, and return after how many milliseconds its answer is there."""
    page.evaluate(DROP, [text])
    page.locator(".said:not(:has-text('Reading'))").wait_for()
    return page.evaluate("window.shown - window.dropped")


def test_plans_and_errors_are_the_command_s_in_three_seconds_and_then_at_once(
    page, tmp_path, capsys
):
    def slowly(route):  # 10 Mbit/s, which the browser has for pages only, not for workers
        answer = route.fetch()
        time.sleep(len(gzip.compress(answer.body())) / 1.25e6)
        route.fulfill(response=answer)

    page.route("**/engine.js", slowly)
    file, spans = tmp_path / "config.json", []
    for record in [*list(FILES.values())[::6], *(FILES["qwen3"] | w for w in WRONG)]:
        file.write_text(json.dumps(record))
        spans.append(drop(page, file.read_text()))
        wanted = capsys.readouterr() if main(["plan", str(file)]) else None
        if wanted:
            assert f"posattn: {page.text_content('.said')}\n" == wanted.err
            assert not page.is_visible(".strip")
        else:
            assert page.text_content("details > pre") == capsys.readouterr().out[:-1]
            assert page.text_content(".strip").replace(" ", "") == strip(plan(record))
    print("milliseconds to the first strip and to the others:", *map(round, spans))
    idle = os.getloadavg()[0] < os.cpu_count()
    assert (spans[0] < 3000 and sorted(spans)[len(spans) // 2] < 200) or not idle


def test_dials_turn_red_and_yarn_brings_them_back(page, home):
    page.goto(f"{home}/index.html?model=qwen3#layer=2&length=8")  # twice its 40,960 tokens
    page.locator(".pair.lost").nth(22).wait_for()
    said = "At 81,920 tokens, 23 of 64 pairs are new, from 40,960 on."
    assert page.text_content(".said") == said
    assert page.locator(".pair.lost").count() == 23
    page.click("#explorer-scope-yarn")
    page.locator(".said:not(.any)").wait_for()
    added = json.loads(f"{{{page.text_content('.add pre')}}}")
    (rope,) = {layer.rope for layer in plan(FILES["qwen3"] | added).layers}
    assert (rope.method, dict(rope.numbers)["factor"]) == ("yarn", 2)
    assert "yarn=1" in page.url


def test_a_file_travels_in_the_address_behind_the_hash(page, browser):
    drop(page, json.dumps(FILES["qwen3-8b"] | {"nobody": 1}))
    page.wait_for_url("**config=*")
    assert "#" in page.url.partition("config=")[0]
    facts = page.text_content("dl")
    assert "32,768, the max_position_embeddings of its class" in facts
    assert facts.endswith("Read by nobodynobody")
    other = browser.new_page()
    other.goto(page.url)
    other.locator(".read").wait_for(timeout=PATIENCE)
    assert other.text_content("dl") == facts
    other.close()


def test_its_scripts_stay_small():
    assert sum(script.stat().st_size for script in SCRIPTS) < 9 * 1024
