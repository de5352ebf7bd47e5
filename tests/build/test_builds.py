"""Builds: one at a time, whole or not at all, the same bytes, and nothing from a network."""

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sphinxcontrib import katex

from tests.build.books import ROOT


def script(name):
    """A script of `.ci` as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


builds, reproduce, budgets, parts = map(script, ("builds", "reproduce", "budgets", "parts"))
SECOND = f"""
import sys
sys.path.insert(0, {str(ROOT / ".ci")!r})
import builds
sys.exit(builds.alone())
"""


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


def test_a_second_build_in_a_folder_is_told_to_wait(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".nox").mkdir()
    assert builds.alone() is None
    assert builds.alone() is None  # which a second session of the same command does
    with ThreadPoolExecutor() as writers:
        assert writers.submit(builds.alone).result() is None

    command = [sys.executable, "-c", SECOND]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    builds.LOCK.release(force=True)
    third = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.stderr == f"{builds.BUSY}\n"
    assert (third.returncode, third.stderr) == (0, "")


def test_a_full_disk_is_said_before_a_build_begins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builds, "ROOM", 10**9)
    assert builds.alone().startswith("a build needs 1000000000 MB of free space, got ")


def test_a_result_replaces_the_last_one_as_a_whole(tmp_path):
    made, place = filled(tmp_path / "work", "first"), tmp_path / "html"
    builds.publish(made, place)
    (made / "a.html").write_text("second")
    (made / "inner" / "b.html").unlink()
    builds.publish(made, place)
    assert files(place) == {"a.html": "second"}  # and nothing for Sphinx only
    assert sorted(path.name for path in tmp_path.iterdir()) == ["html", "work"]


def test_files_of_two_builds_that_differ_are_named(tmp_path):
    one, other = (filled(tmp_path / name, "first\n") for name in "ab")
    (one / "work").mkdir()
    assert reproduce.difference(one, other) == ""
    (other / "inner" / "b.html").write_text("second\n")
    (other / "more.html").touch()
    said = reproduce.difference(one, other)
    assert f"{other}/inner/b.html differ" in said
    assert "more.html" in said


def test_the_style_is_of_the_katex_that_renders():
    style = (ROOT / "docs" / "_static" / "katex" / "katex.min.css").read_text("utf-8")
    assert f'content:"{katex.katex_version}"' in style
    code = Path(katex.SRC_DIR, "katex.min.js").read_text("utf-8")
    assert f'version:"{katex.katex_version}"' in code


def test_all_that_is_built_carries_one_date_and_the_users_if_there_is_one():
    assert int(builds.settings({})["SOURCE_DATE_EPOCH"]) > 0
    assert builds.settings({"SOURCE_DATE_EPOCH": "1"})["SOURCE_DATE_EPOCH"] == "1"


def test_a_budget_that_is_exceeded_fails_and_says_by_how_much(monkeypatch, capsys):
    limits = {"test-lines": 10**9, "source-lines": 10**9, "book-words": 10**9}
    monkeypatch.setattr(budgets, "counts", lambda: limits)
    assert budgets.main() == 1
    assert "remove 9" in capsys.readouterr().err


def test_parts_run_until_one_fails_and_memory_is_seen(monkeypatch, capsys):
    code = "import time; held = bytearray(200 * 2**20); time.sleep(3)"
    _, seconds, memory = parts.watched([sys.executable, "-c", code])
    assert seconds > 2
    assert 0.15 < memory < 1
    monkeypatch.setattr(parts, "watched", lambda command: ("docs" in command, 60.0, 1.0))
    assert parts.main(["lint", "docs", "tests"])
    said = capsys.readouterr().out
    assert "lint" in said
    assert "tests" not in said
