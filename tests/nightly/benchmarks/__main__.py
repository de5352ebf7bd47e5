"""The command: `python -m tests.nightly.benchmarks [--again] [part ...]`."""

import gc
import hashlib
import importlib
import inspect
import json
import os
import sys
from functools import partial
from time import perf_counter

from tests.nightly import recording
from tests.nightly.benchmarks import machine, measuring, records, tables


def cases_of(parts):
    """The cases of some parts."""
    modules = (importlib.import_module(f"tests.nightly.benchmarks.{p}") for p in parts)
    return [case for module in modules for case in module.cases()]


def key(case, about):
    """Changes with whatever a case's result belongs to, the library apart."""
    module = importlib.import_module(f"tests.nightly.benchmarks.{case.part}")
    said = [case.part, case.name, case.setting, json.dumps(about, sort_keys=True)]
    said += [inspect.getsource(module), inspect.getsource(measuring)]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:8]


def load(path, about):
    """What is recorded of this machine, or the beginning of it."""
    known = recording.read(path, {"cases": {}})
    return {"device": machine.device(), "machine": about, "cases": known["cases"]}


def save(path, about, entry):
    """Add a case to the file, or replace it there: who reads the file finds the old one or the new one."""
    record = load(path, about)  # another run may have added to it
    record["cases"][f"{entry['part']}/{entry['name']}"] = entry
    recording.write(path, record)


def measure_all(cases, path, about, again=False, say=print):
    """Measure what is not recorded yet, and record each case at once; return whether all is right."""
    good = True
    for number, case in enumerate(cases, start=1):
        name = f"{case.part}/{case.name}"
        head = f"[{number:2}/{len(cases)}] {name}:"
        marks = {"case": key(case, about), "library": records.fingerprint(case.code)}
        known = load(path, about)["cases"].get(name, {})
        if not again and "ratio" in known and marks.items() <= known.items():
            say(head, "recorded before")
            continue
        start = perf_counter()
        try:
            found = measuring.run(case)
        except (measuring.NotHere, ImportError) as reason:
            say(head, "left out,", reason)
            continue
        except Exception as failure:
            say(head, f"FAILED, {type(failure).__name__}: {failure}".splitlines()[0])
            good = False
            continue
        finally:
            gc.collect()
        entry = {"part": case.part, "name": case.name, "setting": case.setting}
        entry |= {"code": list(case.code), **marks}
        entry |= {"date": recording.today(), **found}
        save(path, about, entry)
        good &= not found["wrong"]
        say(head, told(entry), f"({perf_counter() - start:.0f} s)")
    return good


def told(entry):
    """A case in a line."""
    said = [
        f"WRONG by {error:.1e} (bound {entry['bound']:.0e}), not measured: {name}"
        for name, error in entry["wrong"].items()
    ]
    for peer, ratio in entry.get("ratio", {}).items():
        times = ratio and f"{ratio[1]:.2f} [{ratio[0]:.2f}, {ratio[2]:.2f}]"
        said.append(f"{times or 'too much'} of {peer}")
    if "rounds" in entry:
        said.append(f"{entry['rounds']} rounds")
    return "; ".join(said)


def main(arguments=None):
    """Measure the parts that are named, or all; return the exit code."""
    again = {"action": "store_true", "help": "measure what is recorded, too"}
    given = recording.asked("bench", main.__doc__, records.PARTS, arguments, again=again)
    about = machine.describe()
    path = records.FOLDER / f"{machine.kind(about)}.json"
    say = partial(print, flush=True)
    said = f"{about['name']}, {about['cores']} cores; recorded in {os.path.relpath(path)}"
    say(said)
    measuring.keep_memory()
    try:
        good = measure_all(cases_of(given.chosen), path, about, given.again, say)
    except KeyboardInterrupt:
        say("\nstopped; what was measured is kept, and the same command goes on from here")
        return 130
    finally:
        tables.write()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
