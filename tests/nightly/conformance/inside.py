"""Runs where a library is installed: `python -m tests.nightly.conformance.inside NAME` prints checks."""

import importlib
import inspect
import json
import sys
from collections import Counter
from dataclasses import replace

from posattn.conformance import UsageError, check, load
from posattn.conformance.checker import place_of


def examine(adapter):
    """Check one adapter, and count what fails with the tolerance that float32 angles need; as plain data."""
    scheme, options, reasons = adapter.against
    try:
        report = check(adapter, scheme, tolerance="exact", **options)
    except UsageError as error:
        raise UsageError(f"{adapter.__name__}: {error}") from None
    failing = [case for case in report.to_dict()["cases"] if case["outcome"] == "failed"]
    found = ((reason, explained(reason, failing)) for reason in reasons)
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
        "found": [
            {
                "whose": reason.whose,
                "why": reason.why,
                "shown": reason.shown,
                "cases": cases,
            }
            for reason, cases in found
            if cases
        ],
    }


def in_float32(run, scheme):
    """A run with the tolerance of `float32-angles`: a library that keeps tables is not asked twice."""
    angle = 2.0**-23 * float(place_of(load(scheme), run.case))
    return replace(run, tolerance=run.tolerance + angle)


def explained(reason, failing):
    """What is wrong with the failing cases of a reason, by their names."""
    return {
        case["name"]: case.get("raised")
        or " ".join(case.get("complaints", ()))
        or "{:.5g} for {:.5g}".format(*(float(case[key]) for key in ("got", "expected")))
        for case in failing
        if any(word in case["name"] for word in reason.words)
    }


if __name__ == "__main__":
    module = importlib.import_module(f"tests.nightly.conformance.{sys.argv[1]}")
    marked = [each for each in vars(module).values() if hasattr(each, "against")]
    marked.sort(key=lambda each: inspect.getsourcelines(each)[1])
    # a last line, after what a library says
    sys.stdout.write("\n" + json.dumps([examine(adapter) for adapter in marked]))
