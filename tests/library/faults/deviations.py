"""How far each known fault is from what is right, case by case: who changes a fault, changes this.

`python -m tests.library.faults.deviations` notes it anew in deviations.json: read the difference there.
"""

import json
import warnings
from pathlib import Path

import numpy as np

from posattn.conformance.faults import FAULTS
from posattn.conformance.faults.registry import Near
from posattn.conformance.report import as_list
from posattn.conformance.vectors import load, names

NOTED = Path(__file__).with_suffix(".json")


def deviations(scheme):
    """What each fault of a scheme does in each of its cases, by the fault's name."""
    cases = load(scheme)["cases"]
    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for fault in FAULTS:
            if scheme in fault.schemes:
                made = fault.start()
                found[fault.name] = " ".join(deviation(made, case) for case in cases)
    return found


def deviation(made, case):
    """The largest error, signed, in two digits, or 0 up to rounding, or what is raised, or the shape."""
    try:
        value = made(*case["arguments"], **case["keywords"])
    except Exception as error:
        return type(error).__name__
    value, slack = value if isinstance(value, Near) else (value, 0.0)
    pairs = [*zip(as_list(value), as_list(case["expected"]), strict=True)]
    if any(np.shape(got) != np.shape(right) for got, right in pairs):
        return "x".join(str(np.shape(got)) for got, _ in pairs).replace(" ", "")
    errors = np.concatenate([np.ravel(got - 1.0 * right) for got, right in pairs])
    worst = np.max(np.abs(errors), initial=0.0)
    small = max(case["tolerance"]["float64"], 1e-6, 2 * np.max(slack, initial=0.0))
    if worst <= small:
        return "0"
    # the first of those that only rounding tells apart, and a little more than it: no tie is left
    first = errors[np.abs(errors) >= (1 - 1e-6) * worst][0] if np.isfinite(worst) else worst
    return f"{first * (1 + 1e-6):.2g}"


def main():
    """Note what there is."""
    found = {scheme: deviations(scheme) for scheme in names()}
    NOTED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
