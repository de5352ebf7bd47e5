"""Ask each engine, or those named, for its logits of small models, and record which twin it equals."""

import argparse
import datetime
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from posattn.conformance.twins import judge, write
from tests.nightly.twins.engines import INSTALL
from tests.nightly.world.__main__ import environment

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "docs" / "_records"
ENGINES = Path(__file__).with_name("engines.py")
MODELS = (
    *("llama-3.1", "gemma-2-27b", "gemma-3-4b", "mistral-0.1", "qwen3", "phi-4-mini"),
    *("smollm3", "gpt-oss", "pythia", "phi-3.5-vision", "gpt2", "olmo-2", "aya-23"),
)


def asked(engine, model, folder):
    """One line of the record."""
    steps = [[package] for package in INSTALL[engine].split()]
    done = subprocess.run(
        [environment(steps, newest=False), ENGINES, engine, folder],
        **{"capture_output": True, "text": True, "check": False},
    )
    name, _, version = steps[-1][0].partition("==")
    line = {"engine": name, "version": version, "model": model}
    line["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    if done.returncode:
        error = next(x for x in reversed(done.stderr.splitlines()) if x.strip())
        return line | {"setting": None, "verdict": f"It raises {error:.160}"}
    found = judge(folder, np.load(folder / f"{engine}.npy"))
    setting = " Or: ".join(found.twins) or None
    return line | {"setting": setting, "verdict": str(found)}


def key(line):
    """What tells the lines of the record apart, in their order."""
    return line["engine"], MODELS.index(line["model"])


def main(arguments=None):
    """Ask, and write the record after each model; the lines of engines and models not asked stay."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.nightly.twins", description=__doc__
    )
    parser.add_argument("engines", nargs="*", metavar="engine", help=", ".join(INSTALL))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    chosen, path = parser.parse_args(arguments), RECORDS / "twins.json"
    if unknown := set(chosen.engines) - set(INSTALL):
        parser.error(f"{min(unknown)!r} must be one of {', '.join(INSTALL)}")
    old = json.loads(path.read_text("utf-8")) if path.is_file() else []
    lines = {key(line): line for line in old}
    for model in chosen.models:
        with tempfile.TemporaryDirectory() as place:
            write(RECORDS / "configs" / f"{model}.json", place)
            for name in chosen.engines or INSTALL:
                line = asked(name, model, Path(place))
                lines[key(line)] = line
                print(*line.values(), sep=" | ", flush=True)
        text = json.dumps([lines[k] for k in sorted(lines)], indent=1, ensure_ascii=False)
        path.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
