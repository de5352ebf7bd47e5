"""The command: `python -m tests.nightly.numerics [part ...]`."""

import math
import sys

from tests.nightly import recording
from tests.nightly.benchmarks import machine
from tests.nightly.numerics import cases, measuring, tables


def save(case, found):
    """Add a case to the file, or replace it there; cases stand in the order of the page."""
    record = recording.read(tables.FILE, {"cases": {}})
    about = machine.describe()
    about["versions"] = {n: about["versions"][n] for n in ("torch", "jax", "numpy")}
    record["machine"] = {key: about[key] for key in ("name", "system", "versions")}
    record["cases"][case.name] = {
        "date": recording.today(),
        "setting": case.setting,
        "unit": case.unit,
        "peer": case.peer,
        "errors": {length: rounded(errors) for length, errors in found.items()},
    }
    order = [case.name for case in cases.cases()]
    record["cases"] = {n: record["cases"][n] for n in order if n in record["cases"]}
    recording.write(tables.FILE, record)
    longest = found[case.lengths[-1]]
    told = (
        f"{dtype} {max(e[0] for e in each.values()):.3g}" for dtype, each in longest.items()
    )
    return f"at {case.lengths[-1]:,}: {', '.join(told)}"


def rounded(found):
    """Errors with three digits, and nothing for those that are no number."""
    return {
        dtype: {
            who: [float(f"{e:.3g}") if math.isfinite(e) else None for e in errors]
            for who, errors in columns.items()
        }
        for dtype, columns in found.items()
    }


def measured(case):
    """The worst errors of a case at each length."""
    return {length: measuring.worst(case, length) for length in case.lengths}


def main(arguments=None):
    """Measure the parts that are named, or all; return the exit code."""
    every = {case.name: case for case in cases.cases()}
    given = recording.asked("numerics", __doc__, [*every], arguments, begins=True)
    chosen = [every[name] for name in given.chosen]
    code = recording.resume(chosen, lambda case: False, measured, save)
    recording.show(tables.FOLDER, tables.views())
    return code


if __name__ == "__main__":
    sys.exit(main())
