"""Builds: one at a time, whole or not at all, the same bytes, and nothing from a network."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from sphinxcontrib import katex

from docs._ext.book import reading
from tests.build.books import ROOT


def script(name):
    """A script of `.ci` as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


builds, reproduce = script("builds"), script("reproduce")
HOLDS = """
import subprocess, sys
sys.path.insert(0, {ci!r})
from builds import alone
alone()
alone()  # which a second session of the same command does
child = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"])
print(child.pid, flush=True)
child.wait()
"""
TRIES = """
import sys
sys.path.insert(0, {ci!r})
from builds import alone, line
try:
    alone()
except OSError as refused:
    sys.exit(line(refused))
"""


def python(code, folder, *words, **options):
    """Run code in a folder that has `.nox`."""
    (folder / ".nox").mkdir(exist_ok=True)
    command = [sys.executable, "-c", code.format(ci=str(ROOT / ".ci")), *words]
    return subprocess.Popen(command, cwd=folder, text=True, **options)


def refused(folder):
    """What a second command is told, or nothing."""
    with python(TRIES, folder, stderr=subprocess.PIPE) as second:
        return second.communicate(timeout=60)[1]


@pytest.mark.slow
def test_a_folder_is_held_until_all_that_a_command_started_has_ended(tmp_path):
    assert refused(tmp_path) == ""
    with python(HOLDS, tmp_path, stdout=subprocess.PIPE) as first:
        said = sorted(int(first.stdout.readline()) for _ in range(2))  # both run
        busy = f"{builds.BUSY}\n"
        try:
            assert refused(tmp_path) == busy
            first.kill()
            first.wait()
            assert refused(tmp_path) == busy
        finally:
            os.kill(said[1], signal.SIGKILL)
    assert refused(tmp_path) == ""


def filled(folder, text):
    """A folder of this text."""
    (folder / "inner").mkdir(parents=True)
    for name in ("a.html", "inner/b.html", ".buildinfo"):
        (folder / name).write_text(text)
    return folder


def files(folder):
    """The texts below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


BUILDS = """
import sys, time
sys.path.insert(0, {ci!r})
from builds import BUILD, alone, line, publish
version, pause = sys.argv[1:]
try:
    alone()
except OSError as refused:
    sys.exit(line(refused))
made = BUILD / "work"
made.mkdir(exist_ok=True)
for name in ("index.html", "page.html"):
    if version == "broken" and name == "page.html":
        sys.exit("a page is wrong")
    (made / name).write_text(version)
    time.sleep(float(pause))
publish(made, BUILD / "html")
"""


def book(folder, version, pause=0.0):
    """Start to build a book of two pages, as the sessions of nox do."""
    words = [version, str(pause)]
    return python(BUILDS, folder, *words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def folder(tmp_path):
    """A folder with the site of a first build."""
    made = tmp_path / "a bóok"
    made.mkdir()
    with book(made, "first") as build:
        said = build.communicate(timeout=60)[0]
    assert build.returncode == 0, said
    return made


@pytest.mark.slow
def test_a_build_that_fails_or_is_killed_leaves_the_last_good_site(folder):
    first = {"index.html": "first", "page.html": "first"}
    with book(folder, "broken") as build:
        said = build.communicate(timeout=60)[0]
    assert build.returncode == 1
    assert "a page is wrong" in said
    assert files(folder / "build" / "html") == first
    with book(folder, "second", pause=600) as build:
        until(lambda: (folder / "build" / "work" / "index.html").read_text() == "second")
        build.kill()
    assert files(folder / "build" / "html") == first
    with book(folder, "third") as build:
        build.communicate(timeout=60)
    assert set(files(folder / "build" / "html").values()) == {"third"}
    assert sorted(p.name for p in (folder / "build").iterdir()) == ["html", "work"]


@pytest.mark.slow
def test_two_builds_at_once_do_not_mix_and_one_says_why_it_does_not_run(folder):
    with book(folder, "second", pause=3) as build:
        until(lambda: (folder / "build" / "work" / "index.html").read_text() == "second")
        with book(folder, "third") as other:
            said = other.communicate(timeout=60)[0]
        build.communicate(timeout=60)
    assert (build.returncode, other.returncode) == (0, 1)
    assert said.count(builds.BUSY) == 1
    assert set(files(folder / "build" / "html").values()) == {"second"}


def until(holds):
    """Wait for half a minute at most."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_pages_are_read_again_unless_the_last_reading_ended_well(tmp_path):
    pages = tmp_path / "doctrees"
    mark = builds.trusted(pages)  # the first time
    pages.mkdir()
    (pages / "page.doctree").touch()
    mark.touch()
    builds.trusted(pages)
    assert [path.name for path in pages.iterdir()] == ["page.doctree"]
    builds.trusted(pages)  # which did not end: nobody has left the mark
    assert not pages.exists()


def test_files_of_two_builds_that_differ_are_named(tmp_path):
    one, other = (filled(tmp_path / name, "first\n") for name in "ab")
    (one / "work").mkdir()
    assert reproduce.difference(one, other) == ""
    (other / "inner" / "b.html").write_text("second\n")
    (other / "more.html").touch()
    said = reproduce.difference(one, other)
    assert f"{other}/inner/b.html differ" in said
    assert "more.html" in said


@pytest.mark.slow
def test_packages_that_npm_cannot_fetch_are_an_error_in_a_line_and_leave_nothing(tmp_path):
    code = (
        "import pathlib\nfrom tests.audit import npm\n"
        f"npm.HOME = pathlib.Path({str(tmp_path / 'home')!r})\nnpm.install()\n"
    )
    nowhere = {"npm_config_registry": "http://127.0.0.1:9", "npm_config_fetch_retries": "0"}
    nowhere |= {"npm_config_cache": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("npm could not fetch the packages: ")
    assert "127.0.0.1:9" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "home").exists()


def test_the_style_is_of_the_katex_that_renders():
    style = (ROOT / "docs" / "_static" / "katex" / "katex.min.css").read_text("utf-8")
    assert f'content:"{katex.katex_version}"' in style
    code = Path(katex.SRC_DIR, "katex.min.js").read_text("utf-8")
    assert f'version:"{katex.katex_version}"' in code


def test_all_that_is_built_carries_one_date_and_the_users_if_there_is_one():
    assert int(builds.settings({})["SOURCE_DATE_EPOCH"]) > 0
    assert builds.settings({"SOURCE_DATE_EPOCH": "1"})["SOURCE_DATE_EPOCH"] == "1"


def test_a_page_is_read_again_when_code_or_a_recording_changes():
    env = MagicMock()
    reading.depend_on_code(SimpleNamespace(env=env, srcdir=ROOT / "docs"), None)
    known = {Path(call.args[0]).resolve() for call in env.note_dependency.call_args_list}
    folders = ("src/posattn", "docs/_ext/book", "docs/_ports")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    assert known == {p.resolve() for p in found if p.suffix in {".py", ".json"}}
    assert {p.suffix for p in known} == {".py", ".json"}
