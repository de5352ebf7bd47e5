"""The command: `python -m tests.nightly.benchmarks [--again] [part ...]`."""

import gc
import hashlib
import importlib
import inspect
import json
import os
import sys
from functools import partial

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


def measure_all(cases, path, about, again=False, say=print):
    """Measure what is not recorded yet, and record each case at once; return the exit code."""

    def marks(case):
        return {"case": key(case, about), "library": records.fingerprint(case.code)}

    def is_recorded(case):
        known = load(path, about)["cases"].get(f"{case.part}/{case.name}", {})
        return not again and "ratio" in known and marks(case).items() <= known.items()

    def run(case):
        try:
            return measuring.run(case)
        finally:
            gc.collect()

    def save(case, found):
        entry = {"part": case.part, "name": case.name, "setting": case.setting}
        entry |= {"code": list(case.code), **marks(case)}
        entry |= {"date": recording.today(), **found}
        record = load(path, about)  # another run may have added to it
        record["cases"][f"{case.part}/{case.name}"] = entry
        recording.write(path, record)
        wrong.extend(found["wrong"])
        return told(entry)

    wrong = []
    return recording.resume(cases, is_recorded, run, save, say=say) or int(bool(wrong))


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
    say(f"{about['name']}, {about['cores']} cores; recorded in {os.path.relpath(path)}")
    measuring.keep_memory()
    code = measure_all(cases_of(given.chosen), path, about, given.again, say)
    tables.write()
    return code


if __name__ == "__main__":
    sys.exit(main())
