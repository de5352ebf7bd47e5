"""Ask other libraries, each in an environment of its own, what they make of our vectors, and record it."""

import json
import sys

from tests.nightly import recording
from tests.nightly.conformance import records
from tests.nightly.conformance.libraries import LIBRARIES


def recorded(name):
    """Ask a library, and write its record."""
    python, module = recording.environment(LIBRARIES[name]), name.replace("-", "_")
    checks = recording.run(python, "-m", "tests.nightly.conformance.inside", module)
    version = recording.run(python, "-c", recording.VERSION, name)
    record = {"library": name, "version": version, "date": recording.today()}
    record["checks"] = json.loads(checks)
    recording.write(records.FOLDER / f"{name}.json", record)
    keys = ("run", "passed", "failed")
    count = {key: sum(check[key] for check in record["checks"]) for key in keys}
    return f"{name} {version}: {count}"


def main(arguments=None):
    """Ask the libraries that are named, or all; a record is written when a library is done."""
    given = recording.asked("conformance", __doc__, list(LIBRARIES), arguments)
    return recording.each(given.chosen, recorded)


if __name__ == "__main__":
    sys.exit(main())
