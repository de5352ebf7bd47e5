"""Make pytest collect a test for each case of what `posattn.conformance.conforms` returns.

pytest loads this wherever posattn is installed, so it imports nothing that pytest has not.
"""

import inspect

import pytest


def pytest_pycollect_makeitem(collector, name, obj):
    """Give such a test the parameter `case`, with the names of its cases, and let pytest go on."""
    ours = inspect.isfunction(obj) and "posattn" in vars(obj)
    if not ours or "__signature__" in vars(obj) or not collector.funcnamefilter(name):
        return
    try:
        names = obj.posattn.names()
    except ValueError as error:  # a `UsageError`
        raise collector.CollectError(f"{name}: {error}") from None
    taken = ["self", "case"] if isinstance(collector, pytest.Class) else ["case"]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    obj.__signature__ = inspect.Signature([inspect.Parameter(x, kind) for x in taken])
    options = obj.posattn.options
    why = f"named in {options.get('expected_failures')}"
    known = pytest.mark.xfail(reason=why, strict=bool(options.get("strict")))
    cases = [pytest.param(name, marks=known if fails else ()) for name, fails in names]
    pytest.mark.parametrize("case", cases)(obj)
