"""What an exception says, and which line of the user's raised it."""

import importlib
import os
import traceback
from pathlib import Path

__all__ = ["said", "where"]

PASSED_OVER = (str(Path(__file__).parent), str(Path(importlib.__file__).parent), "<frozen")


def said(error):
    """The type and the first line of the message of an exception, whatever its `__str__` does."""
    name = type(error).__name__
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    told = f"{name}: {lines[0]}" if lines else name
    return told.encode("utf-8", "backslashreplace").decode()


def where(error):
    """The deepest line of the user's own files that an exception passed, or an empty string.

    Files that are installed are not the user's, unless no others were passed.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(PASSED_OVER)
    ]
    own = [frame for frame in frames if not installed(frame.filename)] or frames[:1]
    if not own:
        return ""
    *_, frame = own
    line = f": {frame.line}" if frame.line else ""
    return f"{shown(frame.filename)}:{frame.lineno}, in {frame.name}{line}"


def installed(filename):
    """Whether a file belongs to Python or to a package that was installed."""
    return "-packages" in filename or filename.startswith(os.path.dirname(os.__file__))


def shown(filename):
    """A file as seen from the current directory."""
    here = os.getcwd() + os.sep
    return filename[len(here) :] if filename.startswith(here) else filename
