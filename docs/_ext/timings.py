"""What `nox -s bench` measured: a file in `docs/_bench` for each machine, and whether it still holds.

A measured case names the modules of the library that did the work, and has their fingerprint.
"""

import ast
import hashlib
import json
from pathlib import Path

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "_bench"
SOURCE = DOCS.parent / "src"
PARTS = ("rotate", "attention", "layer", "memory", "decoding")


def machines():
    """What was recorded, a machine each."""
    return [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
    ]


def closure(modules):
    """The files of some modules of the library, and of all that they import from it."""
    found, open_ones = {}, list(modules)
    while open_ones:
        module = open_ones.pop()
        path = SOURCE / (module.replace(".", "/") + ".py")
        if module not in found and path.is_file():
            found[module] = path
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                    open_ones += [node.module, *names]
    return [found[module] for module in sorted(found)]


def code(path):
    """The lines of a file that run: no docstrings, no comments, nothing empty."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0]
            if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                lines[first.lineno - 1 : first.end_lineno] = [""] * (
                    first.end_lineno - first.lineno + 1
                )
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def fingerprint(modules):
    """Eight digits that change with the code of these modules and of what they import."""
    lines = [line for path in closure(modules) for line in (path.stem, *code(path))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def is_stale(entry):
    """Whether the library has changed since an entry was measured."""
    return entry["library"] != fingerprint(entry["code"])
