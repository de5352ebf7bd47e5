"""What the cells of a page name and glue, kept for the page's tests, so that no page runs twice.

Jupyter's kernel loads this module as an IPython extension, and writes the file when it ends. The file is
named after the cells and all that they depend on: whoever looks for it finds what this code computed.
"""

import atexit
import io
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import cloudpickle

from . import dependencies

FOLDER = "BOOK_NAMES"  # the environment variable that says where
MOST = 2**22  # bytes of one value
OURS = {"In", "Out", "exit", "get_ipython", "open", "quit"}  # which IPython names
kept = None


class Kept:
    """What a kernel has run so far."""

    def __init__(self, shell):
        self.shell, self.sources, self.cells, self.glued = shell, [], [], {}
        self.before = {}

    def watch_glue(self):
        """Note what is glued, and glue it."""
        import myst_nb

        glue = myst_nb.glue

        def noted(name, value, display=True):
            self.glued[name] = value
            glue(name, value, display)

        myst_nb.glue = noted

    def note(self, result):
        """Note the names that a cell has made, and their values as they are now."""
        names = self.shell.user_ns.items()
        now = {n: v for n, v in names if not n.startswith("_") and n not in OURS}
        new = {n: v for n, v in now.items() if self.before.get(n, self.before) is not v}
        self.sources.append(result.info.raw_cell)
        self.cells.append(pickled(new))
        self.before = now

    def write(self):
        """Write what was noted, at once: a kernel that takes long to end is killed."""
        place = Path(os.environ[FOLDER], f"{dependencies.fingerprint(self.sources)}.pickle")
        found = {"cells": self.cells, "glued": pickled(self.glued)}
        fresh = place.with_suffix(f".{os.getpid()}")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(pickle.dumps(found))
        os.replace(fresh, place)


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


def load(folder, sources):
    """What was kept of some cells, as they are and with the library as it is, or None."""
    path = Path(folder, f"{dependencies.fingerprint(sources)}.pickle")
    return pickle.loads(path.read_bytes()) if path.is_file() else None


def save():
    """Write what the kernel has kept, once."""
    global kept
    if kept is not None:
        kept.write()
        kept = None


def load_ipython_extension(shell):
    """Begin to keep; a forked kernel calls `save` itself, since it runs nothing at its exit."""
    global kept
    if FOLDER in os.environ:
        kept = Kept(shell)
        kept.watch_glue()
        shell.events.register("post_run_cell", kept.note)
        atexit.register(save)
