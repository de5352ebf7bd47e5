"""What `nox -s record -- bench` measured, a file for each machine in `docs/_records`, and if it holds.

A measured case names the modules of the library that did the work, and has their fingerprint.
"""

import ast
import hashlib
import io
import json
import tokenize
from functools import cache

from tests.nightly.recording import RECORDS, ROOT

FOLDER = RECORDS / "benchmarks"
SOURCE = ROOT / "src"
PARTS = ("rotate", "attention", "layer", "memory", "decoding")


def machines():
    """What was recorded, a machine each."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))]


def closure(modules):
    """The files of some modules of the library, and of all that they import from it."""
    found, awaited = {}, list(modules)
    while awaited:
        module = awaited.pop()
        path = SOURCE / (module.replace(".", "/") + ".py")
        if module not in found and path.is_file():
            found[module] = path
            awaited += parse(path.read_text(encoding="utf-8"))[0]
    return [found[module] for module in sorted(found)]


@cache
def parse(text):
    """The modules that a source imports from, and its lines that take time.

    Docstrings, comments and what is said with an error are left out: rewording them makes no code slower.
    """
    lines, modules = text.splitlines(), []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            modules += [node.module, *names]
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, ast.Raise):
            for line in range(node.lineno - 1, node.end_lineno):
                lines[line] = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return tuple(modules), tuple(line.rstrip() for line in lines if line.strip())


def fingerprint(modules):
    """Eight digits that change with the code of these modules and of what they import."""
    texts = ((path.stem, path.read_text(encoding="utf-8")) for path in closure(modules))
    lines = [line for stem, text in texts for line in (stem, *parse(text)[1])]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def is_stale(entry):
    """Whether the library has changed since an entry was measured."""
    return entry["library"] != fingerprint(entry["code"])
