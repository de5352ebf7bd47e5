"""Ask each engine, or those named, for its logits of small models, and record which twin it equals."""

import datetime
import json
import subprocess
import sys
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


def main(names):
    """Write the record."""
    path, names = RECORDS / "twins.json", names or list(INSTALL)
    old = json.loads(path.read_text("utf-8")) if path.is_file() else []
    packages = {INSTALL[name].split()[-1].partition("==")[0] for name in names}
    lines = [line for line in old if line["engine"] not in packages]
    with tempfile.TemporaryDirectory() as place:
        for model in MODELS:
            folder = Path(place) / model
            write(RECORDS / "configs" / f"{model}.json", folder)
            for name in names:
                lines.append(asked(name, model, folder))
                print(*lines[-1].values(), sep=" | ", flush=True)
    lines.sort(key=lambda line: (line["engine"], MODELS.index(line["model"])))
    path.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
