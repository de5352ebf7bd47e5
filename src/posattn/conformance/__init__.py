"""Conformance vectors, and a checker that runs somebody's own function on them.

The vectors are JSON files in the folder `vectors`, described by `schema.json`, so that any language
reads them.
`python -m posattn check mymodule:function --scheme rotary` says which cases a function fails, and
why where the fault is a known one; `assert_conforms` does the same in a test.
"""

from posattn.conformance.checker import assert_conforms, check
from posattn.conformance.report import Report
from posattn.conformance.testing import conforms
from posattn.conformance.vectors import UsageError, load, names

__all__ = ["Report", "UsageError", "assert_conforms", "check", "conforms", "load", "names"]


def __getattr__(name):
    """Import `planned` when it is asked for: it needs the reference, and the rest does not."""
    if name != "planned":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from posattn.conformance.layers import planned

    return planned
