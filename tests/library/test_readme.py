"""The README: its Python prints what it says, its commands exist and work, its tree is the tree."""

import ast
import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
INDENTED = [line.strip() for line in re.findall(r"^    (\S.*)$", TEXT, re.MULTILINE)]
OURS = [line for line in INDENTED if line.startswith("python -m posattn")]


@pytest.mark.parametrize("block", BLOCKS, ids=["torch", "jax"])
def test_its_python_prints_what_it_says(block):
    said = re.findall(r"^print\(.*\)  # (.+)$", block, re.MULTILINE)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, "README.md", "exec"), {})
    assert said
    assert printed.getvalue().splitlines() == said


@pytest.mark.parametrize("command", OURS)
def test_its_commands_of_the_library_work(command, tmp_path):
    (tmp_path / "mymodule.py").write_text("from posattn.torch import rotate as function\n")
    (tmp_path / "folder").mkdir()
    record = ROOT / "docs" / "_records" / "configs" / "gemma-3.json"
    shutil.copy(record, tmp_path / "folder" / "config.json")
    words = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_sessions_exist():
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    sessions = {f.name for f in tree.body if isinstance(f, ast.FunctionDef)}
    for name in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"nox -s ([\w-]+)", (ROOT / name).read_text(encoding="utf-8"))
        assert len(named) > 5
        assert set(named) <= sessions


def test_its_tree_of_the_package_is_the_tree():
    drawn = set(re.findall(r"^    (\w+(?:\.py|(?=/)))/? ", TEXT, re.MULTILINE))
    package = ROOT / "src" / "posattn"
    folders = {
        p.name for p in package.iterdir() if p.is_dir() and not p.name.startswith("__")
    }
    assert folders <= drawn
    assert all((package / name).exists() for name in drawn)
