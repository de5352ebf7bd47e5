"""What keeps a build whole: one at a time, a read that ended well, and results that appear at once."""

import errno
import hashlib
import os
import shutil
import sys
from itertools import chain
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows nobody is kept out
    fcntl = None

BUILD, LOCK = Path("build"), Path(".nox", "lock")
BUSY = "another command builds in this folder: try again when it has ended"
ROOM, MB = 500, 10**6  # what all builds together take, and some more
MARK = "ended-well"  # among the pages that were read
NOT_FOR_READERS = shutil.ignore_patterns(".buildinfo*", ".doctrees")
held = []


def settings(known):
    """What all that is started shall know: the date of PDFs and EPUB, and a language that every Linux has.

    Under others Sphinx may not start, or Java not find a file.
    """
    epoch = {"SOURCE_DATE_EPOCH": known.get("SOURCE_DATE_EPOCH", "1795219200")}
    return epoch | ({"LC_ALL": "C.UTF-8"} if sys.platform == "linux" else {})


def alone():
    """Hold the folder until this process and all that it starts have ended, however they end."""
    if held:
        return
    BUILD.mkdir(exist_ok=True)
    free = shutil.disk_usage(BUILD).free // MB
    if free < ROOM:
        needed = f"a build needs {ROOM} MB of free space, got {free} MB"
        raise OSError(errno.ENOSPC, needed, BUILD)
    if fcntl is not None:
        lock = os.open(LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise BlockingIOError(errno.EAGAIN, BUSY) from None
        os.dup2(lock, 0)  # what is started inherits its standard input
    held.append(True)


def full():
    """Whether the disk has no room any more."""
    return BUILD.is_dir() and shutil.disk_usage(BUILD).free < 10 * MB


def line(refused):
    """What an `OSError` says in one line, or the first of those that `shutil` has gathered."""
    if isinstance(refused, shutil.Error):
        return refused.args[0][0][-1]
    return ": ".join(map(str, filter(None, (refused.strerror, refused.filename))))


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
    """What a project asks for, alone and with these extras, without markers."""
    texts = [
        project["dependencies"],
        *(project["optional-dependencies"][e] for e in extras),
    ]
    return [text.partition(";")[0] for text in chain.from_iterable(texts)]


def trusted(doctrees):
    """Forget pages whose reading did not end well, since its warnings must come again; return its mark."""
    mark = doctrees / MARK
    if not mark.is_file():
        remove(doctrees)
    mark.unlink(missing_ok=True)
    return mark


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
