"""What the cells of a page print, name and glue: kept with a hash of all that they may use.

While the cells of a page, the library, the records and the versions stay as they are, nothing runs again.
Tests of the page read what was kept. Jupyter's kernel loads this module as an IPython extension.
"""

import hashlib
import io
import os
import pickle
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import cloudpickle

ROOT = Path(__file__).parents[3]
USED = ("src/posattn", "docs/_records", "constraints.txt")  # by cells
WRITES = "BOOK_KEPT"  # the environment variable that says where a kernel writes
MOST = 2**22  # bytes of one value


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
    """What was kept of some cells: outputs, pickled names and pickled glued values of each; or None."""
    path = place(folder, sources)
    return pickle.loads(path.read_bytes()) if path.is_file() else None


def load_ipython_extension(shell):
    """Write what each cell names and glues, and the values as they are when it ends."""
    import myst_nb

    before, glued, glue = {}, {}, myst_nb.glue

    def noted(name, value, display=True):
        glued[name] = value
        glue(name, value, display)

    def note(result):
        own = shell.user_ns.keys() - shell.user_ns_hidden
        now = {n: shell.user_ns[n] for n in own if not n.startswith("_")}
        new = {n: v for n, v in now.items() if before.get(n, before) is not v}
        with open(os.environ[WRITES], "ab") as file:
            pickle.dump((pickled(new), pickled(glued)), file)
        before.clear()
        before.update(now)
        glued.clear()

    myst_nb.glue = noted
    shell.events.register("post_run_cell", note)


def pickled(values):
    """Each value as bytes; one that can't be pickled or is too large is left out."""
    found = {}
    for name, value in values.items():
        buffer = io.BytesIO()
        try:
            cloudpickle.dump(value, buffer)
        except Exception:  # whatever a value's own `__reduce__` raises
            continue
        if buffer.tell() <= MOST:
            found[name] = buffer.getvalue()
    return found


class Names(SimpleNamespace):
    """Names whose values are unpickled when they are asked for."""

    def __init__(self, pickles):
        super().__init__()
        self._pickles = pickles

    def __getattr__(self, name):
        """The value of a name."""
        if name.startswith("_") or name not in self._pickles:
            raise AttributeError(f"no cell has kept {name}")
        value = pickle.loads(self._pickles[name])
        setattr(self, name, value)
        return value
