"""What the study has found, in `docs/_records/studies`: a file for each task."""

import json
import os
from pathlib import Path

import numpy as np
from scipy.stats import t as student

FOLDER = Path(__file__).parents[3] / "docs" / "_records" / "studies"


def load(task, folder=FOLDER):
    """The record of a task, or the beginning of one."""
    path = folder / f"{task}.json"
    if path.is_file():
        return json.loads(path.read_text("utf-8"))
    return {"made_from": None, "cells": {}}


def save(task, made_from, name, entry, folder=FOLDER):
    """Add a cell to the record: who reads the file finds the old one or the new one."""
    record = load(task, folder)
    if record["made_from"] != made_from:
        record = {"made_from": made_from, "cells": {}}
    record["cells"][name] = entry
    record["cells"] = dict(sorted(record["cells"].items()))
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{task}.new"
    lines = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value)}"
        for key, value in record["cells"].items()
    )
    head = json.dumps(made_from)
    fresh.write_text(
        f'{{\n "made_from": {head},\n "cells": {{\n{lines}\n }}\n}}\n', "utf-8"
    )
    os.replace(fresh, folder / f"{task}.json")


def interval(numbers):
    """The mean of a number per seed, and how far its 95 % interval reaches to each side, by Student's t."""
    numbers = np.asarray(numbers, float)
    spread = numbers.std(axis=0, ddof=1) / np.sqrt(len(numbers))
    return numbers.mean(axis=0), student.ppf(0.975, len(numbers) - 1) * spread
