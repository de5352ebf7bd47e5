"""A release: what is in it, what it says of itself, and what it refuses."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import posattn
from tests.build.books import ROOT

SCRIPT = ROOT / ".ci" / "release.py"
SPECIFICATION = importlib.util.spec_from_file_location("release", SCRIPT)
release = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(release)

PARTS = ("pyproject.toml", "README.md", "LICENSE", "CITATION.cff", ".gitignore")
CHANGELOG = "# Changelog\n\n## [{version}] - 2026-03-04\n\n- A line.\n"
WITH = {
    "GIT_AUTHOR_DATE": "2026-03-04T23:30:00+0000",
    "GIT_COMMITTER_DATE": "2026-03-04T23:30:00+0000",
    "SOURCE_DATE_EPOCH": "0",  # which the commit overrides
}


def repository(folder, version=posattn.__version__):
    """A clean repository with the library, a changelog, and files that nobody should get."""
    for part in PARTS:
        shutil.copy(ROOT / part, folder / part)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    (folder / "CHANGELOG.md").write_text(CHANGELOG.format(version=version))
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text("# Book\n")
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "All"]):
        subprocess.run(
            [*command, *arguments], cwd=folder, env=os.environ | WITH, check=True
        )
    (folder / "src" / "posattn" / "__pycache__").mkdir()
    (folder / "src" / "posattn" / "__pycache__" / "left.pyc").touch()
    return folder


def run(folder):
    """Build the release of a repository."""
    command = [sys.executable, SCRIPT, "build/release"]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | WITH,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = repository(tmp_path_factory.mktemp("release"))
    answer = run(folder)
    assert answer.returncode == 0, answer.stderr
    return folder / "build" / "release"


@pytest.fixture(scope="module")
def wheel(made):
    (path,) = made.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


SOURCES = {
    str(path.relative_to(ROOT / "src"))
    for path in (ROOT / "src" / "posattn").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
DATED = f"posattn-{posattn.__version__}"


def test_wheel_and_sdist_have_the_library_and_nothing_else(made, wheel):
    licences = {"licenses/LICENSE", "licenses/src/posattn/figures/fonts/OFL.txt"}
    about = licences | {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}
    names = {f"{DATED}.dist-info/{name}" for name in about}
    assert set(wheel.namelist()) == SOURCES | names
    assert {"posattn/py.typed", "posattn/conformance/schema.json"} <= SOURCES
    (path,) = made.glob("*.tar.gz")
    with tarfile.open(path) as opened:
        names = {member.name for member in opened}
    about = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", ".gitignore"}
    assert names == {f"{DATED}/{name}" for name in about | {f"src/{s}" for s in SOURCES}}


def test_files_have_the_time_of_the_commit(wheel):
    assert {entry.date_time for entry in wheel.infolist()} == {(2026, 3, 4, 23, 30, 0)}


def test_a_tree_with_changes_is_refused(tmp_path):
    folder = repository(tmp_path)
    (folder / "src" / "posattn" / "new.py").touch()
    answer = run(folder)
    assert answer.returncode == 1
    assert "the working tree must be clean, got\n?? src/posattn/new.py" in answer.stderr
    assert not (folder / "build").exists()


def test_a_version_that_the_changelog_lacks_is_refused(tmp_path):
    answer = run(repository(tmp_path, version="9.9.9"))
    assert answer.returncode == 1
    assert "all files must name one version: " in answer.stderr
    assert "CHANGELOG.md has 9.9.9" in answer.stderr


def test_library_and_citation_name_the_same_version(monkeypatch):
    monkeypatch.chdir(ROOT)
    named = release.versions()
    assert named["src/posattn/__init__.py"] == named["CITATION.cff"] == posattn.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", posattn.__version__)
