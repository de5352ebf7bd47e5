"""Build all that is published twice, and compare the bytes: `nox -s release -- --book`.

Both builds start from the last commit, in new folders below `build/reproduce`. Folder, user, rights of new
files, time, local day, language and the order of Python's sets differ.
"""

import os
import shutil
import subprocess
import sys
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
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", "build/release"],
    ):
        subprocess.run(command, cwd=folder, env=known, umask=umask, check=True)
    return folder / "build"


def difference(one, other):
    """Which files differ below two folders, in the words of diff, or nothing."""
    command = ["diff", "--recursive", "--brief", "--exclude=work", str(one), str(other)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


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
        return f"two builds must give the same bytes:\n{found}"
    print("the same bytes twice")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
