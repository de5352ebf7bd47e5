"""Read the vectors. NumPy is all that this needs, and any Python from 3.8."""

import json
from pathlib import Path

import numpy as np

__all__ = ["decode", "load", "names"]

FOLDER = Path(__file__).with_name("vectors")


def names():
    """The names of all sets of vectors, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(name):
    """Return one set of vectors, with NumPy arrays for the arrays in it.

    Args:
        name: one of `names()`.

    Returns:
        A dict as `schema.json` describes it.

    Raises:
        ValueError: if there is no such set.

    Examples:
        >>> load("sinusoidal")["function"]
        'sinusoidal_encoding'
    """
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}, got {name!r}")
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text, object_hook=decode)


def decode(entry):
    """Turn the JSON form of an array, `{"dtype", "shape", "data"}`, into an array.

    Numbers that JSON lacks are strings in it: `"nan"`, `"inf"` and `"-inf"`.

    Examples:
        >>> decode({"dtype": "float64", "shape": [1, 2], "data": [0.5, "inf"]})
        array([[0.5, inf]])
    """
    if set(entry) != {"dtype", "shape", "data"}:
        return entry
    data = [float(x) if isinstance(x, str) else x for x in entry["data"]]
    return np.array(data, entry["dtype"]).reshape(entry["shape"])
