"""What the study has found, in `docs/_records/studies`: a file for each task."""

import json

import numpy as np
from scipy.stats import t as student

from tests.nightly import recording

FOLDER = recording.RECORDS / "studies"


def load(task, folder=FOLDER):
    """The record of a task, or the beginning of one."""
    return recording.read(folder / f"{task}.json", {"made_from": None, "cells": {}})


def save(task, made_from, name, entry, folder=FOLDER):
    """Add a cell to the record: who reads the file finds the old one or the new one."""
    record = load(task, folder)
    if record["made_from"] != made_from:
        record = {"made_from": made_from, "cells": {}}
    record["cells"][name] = entry
    record["cells"] = dict(sorted(record["cells"].items()))
    lines = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value)}"
        for key, value in record["cells"].items()
    )
    head = json.dumps(made_from)
    text = f'{{\n "made_from": {head},\n "cells": {{\n{lines}\n }}\n}}\n'
    recording.write(folder / f"{task}.json", text)


def interval(numbers):
    """The mean of a number per seed, and how far its 95 % interval reaches to each side, by Student's t."""
    numbers = np.asarray(numbers, float)
    spread = numbers.std(axis=0, ddof=1) / np.sqrt(len(numbers))
    return numbers.mean(axis=0), student.ppf(0.975, len(numbers) - 1) * spread
