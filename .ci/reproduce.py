"""Build all that is published twice, and compare the bytes: `nox -s reproduce`.

Both builds start from the last commit, in new folders below `build/reproduce`. Folder, user, rights of new
files, time, local day, language and the order of Python's sets differ.
"""

import os
import shutil
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

PLACE = Path("build", "reproduce").resolve()
SESSIONS = ("docs", "pdf", "epub")
WAYS = {  # the local days always differ: the zones lie 26 hours apart
    "one": {
        "umask": 0o022,
        "TZ": "Etc/GMT+12",
        "LC_ALL": "C.UTF-8",
        "LANGUAGE": "en",
        "PYTHONHASHSEED": "1",
        "USER": "first",
    },
    "a sécond": {
        "umask": 0o077,
        "TZ": "Pacific/Kiritimati",
        "LC_ALL": "C",  # which every machine has
        "LANGUAGE": "de",
        "PYTHONHASHSEED": "2",
        "USER": "second",
    },
}


def clone(name):
    """Make a folder with the last commit, and a home beside it."""
    folder, home = PLACE / name, PLACE / f"home of {name}"
    home.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", ".", str(folder)], check=True)
    (folder / ".nox").mkdir()
    (folder / ".nox" / "environment").symlink_to(sys.prefix)


def build(name, nox, umask, **settings):
    """Build everything in a folder; return where it is."""
    folder = PLACE / name
    # the environment has this checkout's library, which the folder's must hide
    known = {"HOME": str(PLACE / f"home of {name}"), "PYTHONPATH": str(folder / "src")}
    known = os.environ | known | settings
    for command in (
        [nox, "-m", "nox", "--sessions", *SESSIONS],
        [sys.executable, ".ci/release.py", "build/release"],
    ):
        subprocess.run(command, cwd=folder, env=known, umask=umask, check=True)
    return folder / "build"


def published(folder):
    """The names of the files below a folder; those in `work` are nobody's."""
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    return {name for name in names if not name.startswith("work/")}


def difference(one, other):
    """What differs first below two folders, or nothing."""
    files = [published(folder) for folder in (one, other)]
    for name in sorted(files[0] ^ files[1]):
        return f"only {one if name in files[0] else other} has {name}"
    for name in sorted(files[0]):
        texts = [(folder / name).read_bytes() for folder in (one, other)]
        if texts[0] == texts[1]:
            continue
        lines = zip_longest(
            *(text.splitlines(keepends=True) for text in texts), fillvalue=b""
        )
        for number, pair in enumerate(lines, 1):
            if pair[0] != pair[1]:
                unlike = (k for k, (a, b) in enumerate(zip(*pair, strict=False)) if a != b)
                start = max(next(unlike, min(map(len, pair))) - 40, 0)
                said = "".join(f"\n    {line[start : start + 120]!r}" for line in pair)
                return f"{name} differs in line {number}, from byte {start} on:{said}"
    return None


def main(nox):
    """Build twice and compare."""
    status = ["git", "status", "--porcelain"]
    changes = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    if changes:
        return f"the working tree must be clean, got\n{changes.rstrip()}"
    shutil.rmtree(PLACE, ignore_errors=True)
    for name in WAYS:  # now, whatever is committed meanwhile
        clone(name)
    made = [build(name, nox, **way) for name, way in WAYS.items()]
    if found := difference(*made):
        return f"two builds must give the same bytes, but {found}"
    print(f"{len(published(made[0]))} files, the same bytes twice")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
