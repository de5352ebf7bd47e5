"""What only a person can judge, by fingerprints: the pictures, and what is told of each scheme.

`python -m tests.looked_at` writes what has changed into build/looked_at, and notes that somebody has looked.
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

from posattn.cards import CARDS

ROOT = Path(__file__).parents[1]
NOTED = Path(__file__).with_suffix(".json")
FOLDER = ROOT / "build" / "looked_at"
EMBEDDED = re.compile(r'"data:image/png;base64,([^"]*)"')
NAME = re.compile(r"\b[a-z][0-9a-f]{10}\b")  # made of all digits of what it names
NUMBER = re.compile(r"-?\d+\.\d+(e-?\d+)?")


def fingerprint(text):
    """Eight digits that change with a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def picture(svg):
    """Eight digits that change where anything moves by 0.01 points, and not with rounding errors."""
    order = {}

    def pixels(found):
        image = Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGBA")
        return fingerprint(f"{image.size} {np.asarray(image).tolist()}")

    def number(found):
        moved = float(found[0]) + 0.00123  # so that no tie is left to rounding
        return f"{round(moved, 2) + 0:.2f}"  # and no zero has a sign

    def name(found):
        return f"name-{order.setdefault(found[0], len(order))}"

    return fingerprint(NUMBER.sub(number, NAME.sub(name, EMBEDDED.sub(pixels, svg))))


def noted(kind):
    """What was looked at, by name: "pictures", but for those that another matplotlib draws, or "cards"."""
    known = json.loads(NOTED.read_text("utf-8")) if NOTED.is_file() else {}
    here = kind != "pictures" or known.get("matplotlib") == matplotlib.__version__
    return known.get(kind, {}) if here else {}


def main():
    """Show what has changed, and note it."""
    from tests.test_figures import LOOKS, as_svg

    drawn = {name: as_svg(draw) for name, draw in LOOKS.items()}
    told = {name: str(card) for name, card in CARDS.items()}
    found = {
        "pictures": {name: picture(svg) for name, svg in drawn.items()},
        "cards": {name: fingerprint(text) for name, text in told.items()},
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kind, ending, texts in (("pictures", "svg", drawn), ("cards", "txt", told)):
        known = noted(kind)
        for name, text in texts.items():
            if found[kind][name] != known.get(name):
                place = FOLDER / f"{name}.{ending}"
                place.write_text(text, "utf-8")
                print(place)
    found = {"matplotlib": matplotlib.__version__, **found}
    NOTED.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
