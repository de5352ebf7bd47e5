"""What the extensions make of small books, as text that was read: who changes one reads what changes.

`python -m tests.build.noted` writes it anew into tests/noted, where git shows the difference.
"""

import base64
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from bs4 import BeautifulSoup
from PIL import Image

from tests.conftest import need

FOLDER = Path(__file__).with_suffix("")
NAMES = ("noted", "slides", "explorers", "notebooks")
BOOKS = [str(FOLDER.with_name(f"test_{name}.py")) for name in NAMES]
MADE_BY = ("furo", "matplotlib", "myst-nb", "sphinx", "sphinx-design", "sphinx-proof")
DRAWN = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
DIGEST = re.compile(r"[0-9a-f]{40,}")  # the name of what a cell drew
EMBEDDED = re.compile(r'"data:image/png;base64,([^"]*)"')
NAME = re.compile(r"\b[a-z][0-9a-f]{10}\b")
NUMBER = re.compile(r"-?\d+\.\d+(e-?\d+)?")
BYTES = re.compile(r'"image/png": "[^"]*"')


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


def compare(name, texts):
    """Compare the files of a book with what was noted of them, or note them."""
    made_by = {package: version(package) for package in MADE_BY}
    lines = [json.dumps(made_by)]
    for file, text in sorted(texts.items()):
        lines += [f"==== {file}", *DIGEST.sub("DIGEST", text).splitlines()]
    lines = [line.rstrip() for line in lines if line.strip()]
    place = FOLDER / f"{name}.txt"
    if os.environ.get("NOTE") == "true":
        FOLDER.mkdir(exist_ok=True)
        place.write_text("\n".join(lines) + "\n", "utf-8")
    known = place.read_text("utf-8").splitlines()
    need(known[0] == lines[0], f"noted with {known[0]}")
    assert lines == known, (
        f"read the difference: python -m tests.build.noted, git diff {FOLDER.name}"
    )


def compare_faults(name, stderr):
    """Compare what a build said of the faults of a book, and of which lines, with what was noted."""
    lines = re.findall(r"\w+\.md:.*(?:WARNING|ERROR): [^/\n]+$", stderr, re.MULTILINE)
    compare(f"faults-{name}", {"said": "\n".join(lines)})


def page(text):
    """The head and the article of a page, a tag in each line; drawings by a fingerprint."""
    text = DRAWN.sub(lambda found: f"<svg>{picture(found[0])}</svg>", text)
    soup = BeautifulSoup(text, "html.parser")
    for script in soup(["script", "style"]):
        script.string = fingerprint(script.text) if script.text.strip() else ""
    for math in soup(class_="katex"):
        math.string = math.find("annotation").text
    article = soup.find("article") or soup.find(class_="reveal") or soup.body
    made = "\n".join(part.prettify() for part in (soup.head, article) if part)
    return re.sub(r"\?v=[0-9a-f]+", "", made)


def tex(text):
    """What stands between the beginning and the end of a document."""
    return text.partition(r"\begin{document}")[2]


def notebook(text):
    """The cells of a notebook, without pictures."""
    cells = json.loads(BYTES.sub('"image/png": ""', text))
    return json.dumps(cells, indent=1, ensure_ascii=False)


def main():
    """Note what is built."""
    command = [sys.executable, "-m", "pytest", "-q", "-k", "what_was_noted", *BOOKS]
    return subprocess.run(
        command, env=os.environ | {"NOTE": "true"}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
