"""What the libraries made of our vectors, as it was recorded."""

import json
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "docs" / "_records" / "conformance"
REFUSED = FOLDER.with_name("conformance_refused.json")


def read():
    """The records, by library."""
    paths = sorted(FOLDER.glob("*.json"))
    return {path.stem: json.loads(path.read_text("utf-8")) for path in paths}


def write(path, data):
    """Write a record as text that a person reads."""
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
