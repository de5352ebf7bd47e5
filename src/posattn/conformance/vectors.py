"""Read the vectors. NumPy is all that this needs, and any Python from 3.8."""

import difflib
import json
from pathlib import Path

import numpy as np

__all__ = ["UsageError", "decode", "load", "names"]

FOLDER = Path(__file__).with_name("vectors")


# what others call a scheme, which `load` takes too
ALSO = {
    "causal_conv1d": "short_convolution",
    "dsa": "indexer",
    "dynamic": "dynamic_ntk",
    "gated_deltanet": "gated_delta",
    "gdn": "gated_delta",
    "gpt_oss": "sinks",
    "kv_cache": "cache",
    "kda": "kimi_delta",
    "kvcache": "cache",
    "linear": "position_interpolation",
    "mamba2": "linear_attention",
    "mla": "latent",
    "mrope": "mrope_frequencies",
    "msa": "select_blocks",
    "ntk": "ntk_aware",
    "partial": "rotary",
    "phi3": "longrope",
    "pi": "position_interpolation",
    "qsa": "select_groups",
    "ring_buffer": "cache",
    "rope": "rotary",
    "sdpa": "attention",
    "sliding_window": "window_mask",
    "softcap": "soft_cap",
    "softmax": "masked_softmax",
    "su": "longrope",
}


class UsageError(ValueError):
    """A check that cannot be run: an unknown scheme, a function that does not fit, a wrong shape."""


def names():
    """The names of all schemes that have vectors, in alphabetical order.

    Returns:
        A list of strings.

    Examples:
        >>> "rotary" in names()
        True
    """
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load(scheme):
    """Return the vectors of one scheme, with NumPy arrays for the arrays in them.

    Args:
        scheme: one of `names()`, or what others call it, such as `"rope"`.

    Returns:
        A dict as `schema.json` describes it, with what is checked, the parameters of the function,
        and under `"cases"` the inputs, the expected outputs and the tolerances.

    Raises:
        UsageError: if there is no such scheme.

    Examples:
        >>> vectors = load("sinusoidal")
        >>> vectors["function"]
        'sinusoidal_encoding'
        >>> case = vectors["cases"][0]
        >>> case["name"], case["arguments"]
        ('four columns', [4, 4])
        >>> case["expected"][1].round(4)
        array([0.8415, 0.5403, 0.01  , 1.    ])
    """
    name = own_name(scheme)
    if name not in names():
        close = difflib.get_close_matches(str(scheme), [*names(), *ALSO])
        near = f"; did you mean {' or '.join(close)}?" * bool(close)
        raise UsageError(
            f"scheme must be one of `python -m posattn schemes`, got {scheme!r}{near}"
        )
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text, object_hook=decode)


def own_name(scheme):
    """The name of a scheme that others call otherwise."""
    return ALSO.get(str(scheme).lower().replace("-", "_"), scheme)


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
