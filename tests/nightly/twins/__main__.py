"""Ask each engine, or those named, for its logits of small models, and record which twin it equals."""

import argparse
import datetime
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from posattn.conformance.twins import judge, write
from tests.nightly.twins.engines import INSTALL, NAMES
from tests.nightly.world.__main__ import environment

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "docs" / "_records"
ENGINES = Path(__file__).with_name("engines.py")
RELEASED = json.loads(Path(__file__).with_name("released.json").read_text("utf-8"))
UNASKED = {  # an engine and a model that a small one cannot stand for
    ("llama_cpp", "gemma-2-27b"): "llama.cpp takes the scale from the number of layers, 46"
}
FEW = {"executorch": ("llama-3.1", "gemma-3-4b", "qwen3", "gpt2")}  # to export takes long
SETTINGS = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
MODELS = (
    *("llama-3.1", "gemma-2-27b", "gemma-3-4b", "mistral-0.1", "qwen3", "phi-4-mini"),
    *("smollm3", "gpt-oss", "pythia", "phi-3.5-vision", "gpt2", "olmo-2", "aya-23"),
)


def released(model):
    """The whole config.json of a model: what the book's record leaves out, engines may read."""
    config = json.loads((RECORDS / "configs" / f"{model}.json").read_text("utf-8"))
    config.get("text_config", config).update(RELEASED[model])
    return config


def asked(engine, folders):
    """The lines of the record on an engine, which reads all folders in one process."""
    steps = [[package] for package in INSTALL[engine].split()]
    done = subprocess.run(
        [environment(steps, newest=False), ENGINES, engine, *folders.values()],
        **{"capture_output": True, "text": True, "check": False},
        env=os.environ | SETTINGS,
    )
    name, _, version = steps[-1][0].partition("==")
    head = {"engine": NAMES.get(engine, name), "version": version}
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    for model, folder in folders.items():
        line = {**head, "model": model, "date": day, "setting": None}
        if why := UNASKED.get((engine, model)):
            yield line | {"verdict": f"It is not asked: {why}"}
            continue
        if (folder / f"{engine}.npy").is_file():
            found = judge(folder, np.load(folder / f"{engine}.npy"))
            line["setting"] = " Or: ".join(found.twins) or None
            yield line | {"verdict": str(found)}
            continue
        why = folder / f"{engine}.txt"
        told = why.read_text("utf-8") if why.is_file() else done.stderr[-160:]
        yield line | {"verdict": f"It raises {told:.160}"}


def key(line):
    """What tells the lines of the record apart, in their order."""
    return line["engine"], MODELS.index(line["model"])


def main(arguments=None):
    """Ask, and write the record after each engine; the lines of engines and models not asked stay."""
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
    with tempfile.TemporaryDirectory() as place:
        folders = {model: Path(place, model) for model in chosen.models}
        for model, folder in folders.items():
            write(released(model), folder)
        for name in chosen.engines or INSTALL:
            few = {m: f for m, f in folders.items() if m in FEW.get(name, MODELS)}
            for line in asked(name, few):
                lines[key(line)] = line
                print(*line.values(), sep=" | ", flush=True)
            told = [lines[k] for k in sorted(lines)]
            told = json.dumps(told, indent=1, ensure_ascii=False)
            path.write_text(told + "\n", "utf-8")


if __name__ == "__main__":
    main()
