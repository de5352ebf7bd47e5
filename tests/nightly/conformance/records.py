"""What the libraries made of our vectors, as it was recorded."""

import json

from tests.nightly.recording import RECORDS

FOLDER = RECORDS / "conformance"


def read():
    """The records, by library."""
    paths = sorted(FOLDER.glob("*.json"))
    return {path.stem: json.loads(path.read_text("utf-8")) for path in paths}
