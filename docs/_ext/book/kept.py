"""What the cells of a page print and name: kept with a hash of all that they may use.

While the cells of a page, the library, the records and the versions stay as they are, nothing runs again.
Tests of the page read what was kept.
"""

import hashlib
import pickle
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
# by cells, and what runs them
USED = ("src/posattn", "docs/_records", "constraints.txt", "docs/_ext/book/kernels.py")


@cache
def state(*names):
    """A hash of all files below some places of the project."""
    digest = hashlib.sha256()
    for top in (ROOT / name for name in names):
        for path in sorted([top, *top.rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:24]


def place(folder, sources):
    """The file for what some cells compute, as they are and with what they use as it is."""
    code = "\0".join(sources).encode()
    return Path(folder, state(*USED), hashlib.sha256(code).hexdigest()[:24])


def load(folder, sources):
    """What was kept of some cells: the outputs and the pickled names of each; or None."""
    path = place(folder, sources)
    return pickle.loads(path.read_bytes()) if path.is_file() else None


def glued(outputs):
    """What a cell glues: its texts by name."""
    metadata = [(output, output.get("metadata", {}).get("scrapbook")) for output in outputs]
    return {
        how["name"]: output.data.get(f"{how['mime_prefix']}text/plain")
        for output, how in metadata
        if how
    }
