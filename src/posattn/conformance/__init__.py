"""Conformance vectors, and a checker that runs somebody's own function on them.

The vectors are JSON files in the folder `vectors`, described by `schema.json`, so that any language
reads them.
`python -m posattn check mymodule:function --scheme rotary` says which cases a function fails, and
why where the fault is a known one; `assert_conforms` does the same in a test.
"""

import importlib

from posattn.conformance.checker import assert_conforms, check
from posattn.conformance.report import Report
from posattn.conformance.testing import conforms
from posattn.conformance.vectors import UsageError, load, names

__all__ = ["Report", "UsageError", "assert_conforms", "check", "conforms", "load", "names"]


def __getattr__(name):
    """Import what needs the reference, or PyTorch, when it is asked for: the rest needs neither."""
    places = {"diagnose": "diagnosis", "planned": "layers", "survives": "survival"}
    if name not in places:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{places[name]}"), name)
