"""What a library's module consists of: adapters, and what anybody can see without the checker."""

import ast
import contextlib
import inspect
import io
import textwrap
from collections import Counter
from dataclasses import replace

from posattn.conformance import UsageError, check, load
from posattn.conformance.checker import place_of

WHOSE = ("library", "precision", "convention")  # what a difference is put down to


def because(*names, whose, why):
    """Mark a function that shows a difference with parts of the failing cases' names, and the reason."""

    def mark(shown):
        shown.because = {"names": names, "whose": whose, "why": why}
        return shown

    return mark


LEAKS = "a weight of zero times NaN is NaN, and we ask for the value to be left out"
NAN_LEAKS = because("NaN", whose="convention", why=LEAKS)
ROUNDED = "it makes large angles in float32, which rounds them"
FLOAT32 = because("2**20", whose="precision", why=ROUNDED)


def against(scheme, *found, framework, dtype=None, **settings):
    """Mark an adapter with the scheme that it is checked against and the keywords that it stands for.

    `found` are the functions that show why it fails where it does.
    """

    def mark(adapter):
        options = {"framework": framework, "dtype": dtype, "settings": settings}
        adapter.against = (scheme, options, found)
        return adapter

    return mark


def adapters_of(module):
    """The adapters of a module, in the order of its text."""
    marked = [each for each in vars(module).values() if hasattr(each, "against")]
    return sorted(marked, key=lambda each: inspect.getsourcelines(each)[1])


def examine(adapter):
    """Check one adapter, and count what fails with the tolerance that float32 angles need; as plain data."""
    scheme, options, found = adapter.against
    try:
        report = check(adapter, scheme, tolerance="exact", **options)
    except UsageError as error:
        raise UsageError(f"{adapter.__name__}: {error}") from None
    failing = [case for case in report.to_dict()["cases"] if case["outcome"] == "failed"]
    return {
        "adapter": adapter.__name__,
        "what": inspect.getdoc(adapter),
        "scheme": scheme,
        **options,
        "run": len(report.runs),
        "passed": len(report.runs) - len(failing),
        "failed": len(failing),
        "failed_with_float32_angles": sum(
            in_float32(run, scheme).failed for run in report.runs
        ),
        "skipped": dict(Counter(report.skipped.values())),
        "causes": [cause.sentence for cause in report.causes],
        "failing": failing,
        "found": [told(shown, failing) for shown in found if explained(shown, failing)],
    }


def in_float32(run, scheme):
    """A run with the tolerance of `float32-angles`: a library that keeps tables is not asked twice."""
    angle = 2.0**-23 * float(place_of(load(scheme), run.case))
    return replace(run, tolerance=run.tolerance + angle)


def explained(shown, failing):
    """The names of the failing cases that a function shows the reason of."""
    parts = shown.because["names"]
    return [case["name"] for case in failing if any(part in case["name"] for part in parts)]


def snippet(shown):
    """The lines of a function, after the imports of its module that they need."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(shown))).body
    function.decorator_list, lines = [], []
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    for node in ast.parse(inspect.getsource(inspect.getmodule(shown))).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            kept = [x for x in node.names if (x.asname or x.name.split(".")[0]) in names]
            node.names = kept
            lines += [node] * bool(kept)
    return "\n".join(map(ast.unparse, [*lines, *function.body]))


def told(shown, failing):
    """A reason as plain data: the cases, whose it is, a sentence, a snippet and what it prints."""
    code = snippet(shown)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(code, {})
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    why = {"whose": shown.because["whose"], "why": shown.because["why"]}
    return {
        **why,
        "cases": explained(shown, failing),
        "code": code,
        "prints": printed.getvalue().strip(),
    }
