"""The command: `python -m tests.nightly.numerics [part ...]`."""

import math
import sys
from time import perf_counter

from tests.nightly import recording
from tests.nightly.benchmarks import machine
from tests.nightly.numerics import cases, measuring, tables


def save(path, case, found):
    """Add a case to the file, or replace it there; cases stand in the order of the page."""
    record = recording.read(path, {"cases": {}})
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
    recording.write(path, record)


def rounded(found):
    """Errors with three digits, and nothing for those that are no number."""
    return {
        dtype: {
            who: [float(f"{e:.3g}") if math.isfinite(e) else None for e in errors]
            for who, errors in columns.items()
        }
        for dtype, columns in found.items()
    }


def measure_all(chosen, path, say=print):
    """Measure some cases and record each at once."""
    for number, case in enumerate(chosen, start=1):
        found = {}
        for length in case.lengths:
            start = perf_counter()
            found[length] = measuring.worst(case, length)
            took = perf_counter() - start
            say(
                f"[{number:2}/{len(chosen)}] {case.name}, {length:,}: {told(found[length])}"
            )
            say(f"{'':8}({took:.0f} s)")
        save(path, case, found)


def told(found):
    """What a line says of a length: the largest error of ours for each dtype."""
    return ", ".join(
        f"{dtype} {max(errors[0] for errors in columns.values()):.3g}"
        for dtype, columns in found.items()
    )


def main(arguments=None):
    """Measure the parts that are named, or all; return the exit code."""
    every = {case.name: case for case in cases.cases()}
    given = recording.asked("numerics", __doc__, [*every], arguments, begins=True)
    chosen = [every[name] for name in given.chosen]
    measure_all(chosen, tables.FILE, lambda said: print(said, flush=True))
    tables.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
