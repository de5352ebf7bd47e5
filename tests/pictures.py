"""Fingerprints of pictures: whoever changes one has to look at it.

`python -m tests.pictures` draws what has changed, in build/pictures, and notes that it was looked at.
"""

import base64
import hashlib
import io
import json
import re
import sys
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[1]
NOTED = Path(__file__).with_suffix(".json")
FOLDER = ROOT / "build" / "pictures"
EMBEDDED = re.compile(r'"data:image/png;base64,([^"]*)"')
NAME = re.compile(r"\b[a-z][0-9a-f]{10}\b")  # made of all digits of what it names
NUMBER = re.compile(r"-?\d+\.\d+(e-?\d+)?")


def fingerprint(svg):
    """Eight digits that change where anything moves by 0.01 points, and not with rounding errors."""
    order = {}

    def pixels(found):
        image = Image.open(io.BytesIO(base64.b64decode(found[1])))
        return hashlib.sha256(
            repr(image.size).encode() + np.asarray(image).tobytes()
        ).hexdigest()

    def number(found):
        return (
            f"{round(float(found[0]) + 0.00123, 2) + 0:.2f}"  # no tie is left to rounding
        )

    def name(found):
        return f"name-{order.setdefault(found[0], len(order))}"

    plain = NUMBER.sub(number, NAME.sub(name, EMBEDDED.sub(pixels, svg)))
    return hashlib.sha256(plain.encode()).hexdigest()[:8]


def noted():
    """What was looked at, by name, or nothing where another matplotlib draws otherwise."""
    known = json.loads(NOTED.read_text("utf-8")) if NOTED.is_file() else {}
    return known if known.pop("matplotlib", None) == matplotlib.__version__ else {}


def main():
    """Draw what has changed, and note it."""
    from tests.test_figures import LOOKS, as_svg

    known, found = noted(), {"matplotlib": matplotlib.__version__}
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in LOOKS.items():
        svg = as_svg(draw)
        found[name] = fingerprint(svg)
        if found[name] != known.get(name):
            (FOLDER / f"{name}.svg").write_text(svg, "utf-8")
            print(FOLDER / f"{name}.svg")
    NOTED.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
