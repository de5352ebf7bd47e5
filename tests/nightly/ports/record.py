"""What the pages show of the ports: cells in `docs/_ports`, and what they printed when they last ran.

`python tests/nightly/ports/record.py mlx` runs the cells of MLX, in an environment that has MLX, and writes
beside each script what its cells printed, with the versions and a hash of all that was run.
It runs on Python 3.8 too, the last that MXNet knows.
"""

import contextlib
import hashlib
import io
import json
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
SCRIPTS = DOCS / "_ports"
PORTS = ("tensorflow", "mlx", "mxnet")
DATA = re.compile(r"^```\{code-cell\} python\n:tags: \[data\]\n\n?(.*?)^```", re.M | re.S)


def cells(script):
    """The cells of a script, which begin with `# %%`."""
    return [cell.strip() for cell in script.read_text(encoding="utf-8").split("# %%\n")[1:]]


def data(script):
    """The cells of the script's page that are tagged `data`: both frameworks and all ports use them."""
    (page,) = DOCS.rglob(f"{script.parent.name}.md")
    return DATA.findall(page.read_text(encoding="utf-8"))


def fingerprint(script):
    """Hash what a recording is computed from: cells, data and the port."""
    port = DOCS.parent / "src" / "posattn" / "ports" / script.name
    parts = [*data(script), *cells(script), port.read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def load(script):
    """The recording beside a script, or None where there is none or something has changed since."""
    recording = script.with_suffix(".json")
    if recording.is_file():
        recorded = json.loads(recording.read_text(encoding="utf-8"))
        if recorded["fingerprint"] == fingerprint(script):
            return recorded
    return None


def record(script):
    """Run the cells of a script and write what each of them printed."""
    names, printed = {}, []
    for cell in data(script):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(cell, names)
    for cell in cells(script):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(cell, str(script), "exec"), names)
        printed.append(out.getvalue())
    versions = {package: version(package) for package in (script.stem, "numpy")}
    recorded = {
        "fingerprint": fingerprint(script),
        "versions": {**versions, "python": platform.python_version()},
        "printed": printed,
    }
    text = json.dumps(recorded, indent=2)
    script.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    for path in sorted(SCRIPTS.rglob(sys.argv[1] + ".py")):
        record(path)
        print("recorded", path.relative_to(DOCS))
