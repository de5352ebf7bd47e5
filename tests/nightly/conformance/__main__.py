"""Ask other libraries, each in an environment of its own, what they make of our vectors, and record it."""

import json
import sys

from tests.nightly import recording
from tests.nightly.conformance import records
from tests.nightly.world.__main__ import told


def recorded(name):
    """Ask a library, and write its record."""
    row, module = records.LIBRARIES[name], name.replace("-", "_")
    python = recording.environment([*told(row)[1], ["jaxtyping"]])  # of our reference
    said = recording.run(python, "-m", "tests.nightly.conformance.inside", module)
    version = recording.run(python, "-c", recording.VERSION, name).partition("+")[0]
    record = {"library": name, "row": row, "version": version, "date": recording.today()}
    record["checks"] = json.loads(said)
    for check in record["checks"]:
        check["vectors"] = records.fingerprint(check["scheme"])
    recording.write(records.FOLDER / f"{name}.json", record)
    keys = ("run", "passed", "failed")
    count = {key: sum(check[key] for check in record["checks"]) for key in keys}
    return f"{name} {version}: {count}"


def main(arguments=None):
    """Ask the libraries that are named, or all; a record is written when a library is done."""
    known = list(records.LIBRARIES)
    given = recording.asked("conformance", __doc__, known, arguments)
    return recording.each(given.chosen, recorded)


if __name__ == "__main__":
    sys.exit(main())
