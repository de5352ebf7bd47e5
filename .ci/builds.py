"""What every build needs: the folder for itself, results that appear at once, hashes of sources."""

import hashlib
import os
import shutil
import sys
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

BUILD = Path("build")
# held by all threads of this process; the system lets it go when the process ends
LOCK = FileLock(Path(".nox", "lock"), timeout=0, thread_local=False)
BUSY = "another command builds in this folder: try again when it has ended"
ROOM, MB = 500, 10**6  # what all builds together take, and some more
NOT_FOR_READERS = shutil.ignore_patterns(".buildinfo*", ".doctrees")


def settings(known):
    """What every process started here gets: the date of PDFs and EPUB, and a language that every Linux has.

    Under others Sphinx may not start, or Java not find a file.
    """
    epoch = {"SOURCE_DATE_EPOCH": known.get("SOURCE_DATE_EPOCH", "1795219200")}
    return epoch | ({"LC_ALL": "C.UTF-8"} if sys.platform == "linux" else {})


def alone():
    """Hold the folder until this process ends, or say why not."""
    if LOCK.is_locked:
        return None
    BUILD.mkdir(exist_ok=True)
    free = shutil.disk_usage(BUILD).free // MB
    if free < ROOM:
        return f"a build needs {ROOM} MB of free space, got {free} MB in {BUILD.resolve()}"
    try:
        LOCK.acquire()
    except Timeout:
        return BUSY
    return None


def fingerprint(*paths):
    """Hash the files at and below these paths, names and contents."""
    found = [
        file
        for path in map(Path, paths)
        for file in (path.rglob("*") if path.is_dir() else [path])
    ]
    files = sorted(
        file for file in found if file.is_file() and "__pycache__" not in file.parts
    )
    names_and_contents = (
        part for file in files for part in (str(file).encode(), file.read_bytes())
    )
    return hashlib.sha256(b"\0".join(names_and_contents)).hexdigest()


def promised(project, *extras):
    """What a project asks for, by itself and with these extras, without markers."""
    texts = [
        project["dependencies"],
        *(project["optional-dependencies"][e] for e in extras),
    ]
    return [text.partition(";")[0] for text in chain.from_iterable(texts)]


def publish(made, place):
    """Put a result, a file or a folder, in its place as a whole: a failed build leaves the last good one."""
    fresh, old = (place.with_name(place.name + end) for end in (".new", ".old"))
    remove(fresh)
    remove(old)
    place.parent.mkdir(parents=True, exist_ok=True)
    if made.is_dir():
        shutil.copytree(made, fresh, ignore=NOT_FOR_READERS)
    else:
        shutil.copyfile(made, fresh)
    if place.is_dir():
        place.rename(old)
    os.replace(fresh, place)
    remove(old)


def remove(path):
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
