"""Ask every library, or those named, in an environment of its own; write what it makes of our vectors."""

import argparse
import datetime
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.nightly.conformance import records
from tests.nightly.conformance.libraries import LIBRARIES, REFUSED

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = ROOT / ".nox" / "conformance"
VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


def python_of(name):
    """The Python of a library's environment, which is made if it is not there."""
    place = ENVIRONMENTS / name
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (place / "installed").exists():
        venv.create(place, clear=True, with_pip=True)
        for step in LIBRARIES[name]:
            command = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *step]
            subprocess.run(command, check=True)
        (place / "installed").touch()
    return python


def ask(name):
    """What a library makes of our vectors, as plain data."""
    python = python_of(name)
    told = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    options = {
        "env": {**os.environ, **told},
        "cwd": ROOT,
        "text": True,
        "stdout": subprocess.PIPE,
    }
    module = name.replace("-", "_")
    checks = subprocess.run(
        [python, "-m", "tests.nightly.conformance.inside", module], check=True, **options
    )
    version = subprocess.run([python, "-c", VERSION, name], check=True, **options)
    return {
        "library": name,
        "version": version.stdout.strip(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "checks": json.loads(checks.stdout.splitlines()[-1]),
    }


def main(arguments=None):
    """Ask the libraries that are named, or all; a record is written when a library is done."""
    parser = argparse.ArgumentParser(
        prog="nox -s record -- conformance", description=__doc__
    )
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(LIBRARIES))
    names = parser.parse_args(arguments).names or list(LIBRARIES)
    if unknown := [name for name in names if name not in LIBRARIES]:
        parser.error(f"{unknown[0]!r} must be one of {', '.join(LIBRARIES)}")
    records.write(records.REFUSED, REFUSED)
    failed = []
    for name in names:
        try:
            record = ask(name)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name}: {error}", flush=True)
            continue
        records.write(records.FOLDER / f"{name}.json", record)
        count = {
            key: sum(check[key] for check in record["checks"])
            for key in ("run", "passed", "failed")
        }
        print(f"{name} {record['version']}: {count}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
