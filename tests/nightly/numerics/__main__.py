"""The command: `python -m tests.nightly.numerics [part ...]`."""

import argparse
import datetime
import json
import math
import os
import sys
from time import perf_counter

from tests.nightly.benchmarks import machine
from tests.nightly.numerics import cases, measuring, tables


def load(path):
    """What is recorded, or the beginning of it."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {"machine": {}, "cases": {}} | known


def save(path, case, found):
    """Add a case to the file, or replace it there; cases stand in the order of the page."""
    record = load(path)
    about = machine.describe()
    about["versions"] = {n: about["versions"][n] for n in ("torch", "jax", "numpy")}
    record["machine"] = {key: about[key] for key in ("name", "system", "versions")}
    record["cases"][case.name] = {
        "date": datetime.date.today().isoformat(),
        "setting": case.setting,
        "unit": case.unit,
        "peer": case.peer,
        "errors": {length: rounded(errors) for length, errors in found.items()},
    }
    order = [case.name for case in cases.cases()]
    record["cases"] = {n: record["cases"][n] for n in order if n in record["cases"]}
    fresh = path.with_suffix(".new")
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    fresh.write_text(text + "\n", encoding="utf-8")
    os.replace(fresh, path)


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
    parser = argparse.ArgumentParser(prog="nox -s record -- numerics", description=__doc__)
    every = cases.cases()
    names = [case.name for case in every]
    parser.add_argument("parts", nargs="*", metavar="part", help="; ".join(names))
    given = parser.parse_args(arguments).parts
    for part in given:
        if not any(name.startswith(part) for name in names):
            parser.error(f"no part begins with {part!r}; there are {'; '.join(names)}")
    chosen = [c for c in every if not given or c.name.startswith(tuple(given))]
    measure_all(chosen, tables.FILE, lambda said: print(said, flush=True))
    tables.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
