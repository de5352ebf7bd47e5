"""A configuration with its keys of rotation and dtype in both forms, the older and the newer."""

import json
import os
import tempfile
from pathlib import Path

from posattn.configs.data import data
from posattn.configs.reading import NESTED, content, plan
from posattn.configs.rotation import OUTSIDE, TRAINED

__all__ = ["both_forms", "write_keys"]

FORMS = data(
    "forms.json"
)  # names of bases and parts of a head that only some families have


def both_forms(config):
    """A configuration with old and new keys, such as `rope_theta` beside `rope_parameters`.

    Loaders keep the keys that they know and drop the others; with both forms each finds its own. The plan
    stays the same. What the file leaves to a class's default stays out.

    Args:
        config: what `plan` reads, except a `.gguf` file.

    Returns:
        A dictionary for a `config.json`.

    Raises:
        TypeError: if a value is not of its kind.
        ValueError: if the configuration is not clear, or of an unknown family.

    Examples:
        >>> saved = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "dtype": "float32",
        ...     "num_attention_heads": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
        >>> added = both_forms(saved)
        >>> added["rope_theta"], added["torch_dtype"]
        (500000.0, 'float32')
    """
    values = content(config)
    found = _both(values)
    if plan(found) != plan(values):
        raise ValueError("config has keys of which both forms would give another plan")
    return found


def _both(values):
    """The same keys in both forms, in the parts of a model as well."""
    found = dict(values)
    for name in NESTED:
        if isinstance(found.get(name), dict):
            found[name] = _both(found[name])
    for one, other in (("dtype", "torch_dtype"), ("torch_dtype", "dtype")):
        if found.get(one) is not None:
            found.setdefault(other, found[one])
    family = found.get("model_type")
    new, names = found.get("rope_parameters"), FORMS["names"].get(family, {})
    if new is None:
        new = _newer(found, family, names)
        return found | ({"rope_parameters": new} | _older(new, names) if new else {})
    if not any(isinstance(value, dict) for value in new.values()):
        return found | _older(new, names)
    kinds = FORMS["kinds"].get(family, {})
    for key, kind in kinds.items():
        if kind in new:
            found |= {key: new[kind]["rope_theta"]}
    shared = new.get(kinds.get("rope_theta"), {})
    return found | {k: v for k, v in _older(shared, {}).items() if k not in kinds}


def _older(new, names):
    """What stands outside of the dictionary in the older form, and the rest as `rope_scaling`."""
    found = {names.get(key, key): new[key] for key in OUTSIDE if key in new}
    scaling = {key: value for key, value in new.items() if key not in OUTSIDE}
    method = scaling.get("rope_type", scaling.get("type", "default"))
    if method == "default" and not scaling.keys() - {"rope_type", "type"}:
        return found
    if method == "longrope":  # of which loaders expect the length outside
        found[TRAINED] = scaling[TRAINED]
    return found | {"rope_scaling": scaling | {"rope_type": method, "type": method}}


def _newer(values, family, names):
    """The dictionary of the newer form, or None if the file says nothing that belongs there.

    Some classes have none, and where each kind of layer rotates its own way the class makes it.
    """
    outside = {
        key: value
        for key in OUTSIDE
        if (value := values.get(key, values.get(names.get(key)))) is not None
    }
    scaling = values.get("rope_scaling") or {}
    if family in {*FORMS["older"], *FORMS["kinds"]} or not (outside or scaling):
        return None
    method = scaling.get("rope_type", scaling.get("type", "default"))
    trained = (
        {TRAINED: values[TRAINED]} if method == "longrope" and TRAINED in values else {}
    )
    return {"rope_type": method, **outside, **trained, **scaling}


def write_keys(config, path):
    """Write `both_forms` of a configuration to a new file, whole or not at all.

    Args:
        config: what `plan` reads, except a `.gguf` file.
        path: of a file that does not exist.

    Raises:
        TypeError: if a value is not of its kind.
        ValueError: if the configuration is not clear, or `path` exists or cannot be written.
    """
    text, path = json.dumps(both_forms(config), indent=2), Path(path)
    told = f"path must be that of a new file, got {str(path)!r}"
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8") as made:
            made.write(f"{text}\n")
            made.flush()
            os.chmod(made.name, 0o644)
            os.link(made.name, path)  # which refuses a path that exists
    except OSError as error:
        raise ValueError(f"{told}: {error.strerror}") from None
