"""How far a build is, in a line for every few pages, with the time that is left."""

import time
from pathlib import Path


class Progress:
    """What is read so far, of what, and since when."""

    def __init__(self):
        self.start, self.wanted, self.done = time.monotonic(), {}, set()

    def begin(self, app, env, docnames):
        """Weigh each page to be read: long ones take longer."""
        self.start = time.monotonic()
        self.wanted = {name: Path(env.doc2path(name)).stat().st_size for name in docnames}

    def tell(self, app, env, docnames, other):
        """Print what is read when a process hands in its pages; sizes say how long the others take."""
        self.done |= self.wanted.keys() & set(docnames)
        total, passed = sum(self.wanted.values()), time.monotonic() - self.start
        ready = sum(self.wanted[name] for name in self.done)
        if not ready:
            return
        left = passed * (total - ready) / ready
        print(
            f"read {len(self.done)} of {len(self.wanted)} pages, about {left:.0f} s left",
            flush=True,
        )


def setup(app):
    """Register with Sphinx."""
    progress = Progress()
    app.connect("env-before-read-docs", progress.begin)
    app.connect("env-merge-info", progress.tell)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
