"""Do to the build of a small book what happens to builds, and look at what is left: CI does so each night.

It is killed at many moments, run twice at once, and given a full disk and a folder that may not be written,
all in a folder with a space and an accent in its name.
"""

import fcntl
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from builds import BUSY, LOCK
from reproduce import difference

ROOT = Path(__file__).parents[1]
KILLS = 20
HEAD = """---
file_format: mystnb
kernelspec: {name: python3, display_name: Python 3, language: python}
---
"""
CELL = "```{code-cell} python\nprint('version', %s)\n```\n"
PAGES = {
    "index.md": HEAD + "# Book\n\n" + CELL + "\n```{toctree}\npage\n```\n",
    "page.md": HEAD + "# Page\n\n$x^2$\n\n" + CELL,
    "slides/index.md": "---\norphan: true\n---\n# Slides\n\nversion %s\n",
}
SETTINGS = """
for name in ("benchmarks", "checks", "claims", "gates", "prose"):  # of the whole book
    extensions.remove(name)
kernel_imports = []
html_baseurl = ""
"""
MOUNTED = ["unshare", "--map-root-user", "--mount", "sh", "-euc"]


class Book:
    """A small book with the project's own commands, in a folder below `home`."""

    def __init__(self, home, nox):
        self.nox, self.folder = nox, home / "a bóok"
        for name in ("noxfile.py", "pyproject.toml", "constraints.txt"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder)
        for name in (".ci", "docs/_ext", "docs/_static"):
            shutil.copytree(ROOT / name, self.folder / name)
        (self.folder / "conf.py").write_text(
            (ROOT / "conf.py").read_text("utf-8") + SETTINGS
        )
        (self.folder / "references.bib").touch()
        (self.folder / "src").symlink_to(ROOT / "src")
        (self.folder / ".nox").mkdir()
        (self.folder / ".nox" / "environment").symlink_to(sys.prefix)

    def write(self, version):
        """Let every page print this version."""
        for name, text in PAGES.items():
            path = self.folder / "docs" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("%s", str(version)), encoding="utf-8")

    def start(self, before=()):
        """Start a build in a group of its own."""
        command = [*before, self.nox, "-m", "nox", "--session", "docs"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        known = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        return subprocess.Popen(
            command, cwd=self.folder, env=known, start_new_session=True, **pipes
        )

    def build(self, before=()):
        """Build; return the exit code and what was said."""
        with self.start(before) as process:
            said = process.communicate()[0]
        return process.returncode, said

    def wait(self):
        """Wait until nothing builds: what a command has started may outlive it."""
        with open(self.folder / LOCK, "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    def finished(self):
        """Build, which must pass."""
        code, said = self.build()
        expect(code == 0, "a build that nothing disturbs must pass", said)

    def site(self):
        """The version that the site prints and its files, or nothing if there is no site."""
        place = self.folder / "build" / "html"
        if not place.is_dir():
            return None, ()
        pages = [place / Path(name).with_suffix(".html") for name in PAGES]
        text = "".join(re.sub("<[^>]+>", "", page.read_text("utf-8")) for page in pages)
        found = set(re.findall(r"version (\d+)", text))
        expect(len(found) == 1, "the pages must be of one build", f"{found}")
        return int(found.pop()), sorted(str(p.relative_to(place)) for p in place.rglob("*"))


def expect(holds, wanted, said):
    """End with what was said, unless it holds."""
    if not holds:
        sys.exit(f"{wanted}, got\n{said}")


def kill(book):
    """Kill a build at many moments, half the time with all that it has started."""
    start = time.monotonic()
    book.finished()
    length, (_, files) = time.monotonic() - start, book.site()
    moments = random.Random(7)
    left = []
    for version in range(1, KILLS + 1):
        old, _ = book.site()
        book.write(version)
        process = book.start()
        time.sleep(moments.uniform(0, 1.1 * length))
        if version % 2:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        book.wait()
        new, now = book.site()
        expect(new in (old, version), "the site must be the last one or the new one", new)
        expect(now == files, "no file may be missing", sorted(set(files) ^ set(now)))
        left.append("new" if new == version else "old")
    book.finished()
    expect(book.site() == (KILLS, files), "the next build must be whole", book.site())
    print(f"killed {KILLS} times within {length:.0f} s: {' '.join(left)}")


def twice(book, version):
    """Start two builds at once: one passes, and the other says in a line why it does not."""
    book.write(version)
    first, second = book.start(), book.start()
    said = [process.communicate()[0] for process in (first, second)]
    codes = [process.returncode for process in (first, second)]
    expect(sorted(codes) == [0, 1], "one of two must pass", "\n".join(said))
    refused = said[codes.index(1)]
    expect(refused.count(BUSY) == 1 and "Traceback" not in refused, BUSY, refused)
    expect(book.site()[0] == version, "the site must be new", book.site())
    print("twice at once: one passes, and the other says why not")


def mounted(book, version, mount, wanted):
    """Build where something is mounted so that the build cannot pass, and says so in a line."""
    old, files = book.site()
    book.write(version)
    code, said = book.build([*MOUNTED, f'{mount}\nexec "$@"', "sh"])
    if "unshare:" in said:
        sys.exit(f"this needs leave to mount: {said}")
    last = [line for line in said.splitlines() if line.startswith("nox > Session docs")]
    expect(code == 1 and wanted in last[-1], wanted, said)
    expect(book.site() == (old, files), "the site must be the last one", book.site())
    book.finished()
    expect(book.site() == (version, files), "the next build must be whole", book.site())
    print(f"{wanted}: said, and the site stays")


def main(nox):
    """Do all of it."""
    with tempfile.TemporaryDirectory() as home:
        book = Book(Path(home), nox)
        book.write(0)
        kill(book)
        twice(book, KILLS + 1)
        read_only = 'mount --bind "$PWD" "$PWD"; mount -o remount,bind,ro "$PWD"; cd "$PWD"'
        mounted(book, KILLS + 2, read_only, "Read-only file system")
        full = "mount -t tmpfs -o size=100m none build"
        mounted(book, KILLS + 3, full, "a build needs 500 MB of free space, got 104 MB")
        fills = (
            "mount -t tmpfs -o size=600m none build; "
            "(until [ -d build/work/html ]; do sleep 0.1; done; yes > build/filler) &"
        )
        mounted(book, KILLS + 4, fills, "the disk is full")
        fresh = Book(Path(home, "elsewhere"), nox)
        fresh.write(KILLS + 4)
        fresh.finished()
        unlike = difference(*(b.folder / "build" / "html" for b in (book, fresh)))
        expect(
            unlike is None,
            "after all of this the site must be that of a new folder",
            unlike,
        )
        print(
            "after all of this the site has the bytes of one that is built in a new folder"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
