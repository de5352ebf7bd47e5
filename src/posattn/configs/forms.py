"""A configuration with its keys of rotation and dtype in both forms, the older and the newer."""

import json
import os
import tempfile
from pathlib import Path

from posattn.configs.data import data
from posattn.configs.gguf import is_gguf
from posattn.configs.reading import NESTED, content, plan
from posattn.configs.rotation import OUTSIDE, TRAINED

FORMS = data("forms.json")  # the names that only some families have


def both_forms(config):
    """A configuration with old and new keys, such as `rope_theta` beside `rope_parameters`, as a dictionary.

    Loaders drop the keys that they don't know; with both forms each finds its own. The plan stays the same.

    A TypeError or a ValueError tells why `plan` cannot read it, or that it is a `.gguf` file.
    """
    if is_gguf(config):
        raise ValueError(f"config must be a config.json or its folder, got {str(config)!r}")
    values = content(config)
    found = _both(values)
    if plan(values) != plan(found):
        raise ValueError("config must have the same plan with both forms of its keys")
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
    names, kinds = (FORMS[name].get(family, {}) for name in ("names", "kinds"))
    new = found.get("rope_parameters")
    if new is None and family not in FORMS["older"] and not kinds:
        new = _newer(found, names)
    new = new or {}
    if not any(isinstance(value, dict) for value in new.values()):
        return found | ({"rope_parameters": new} | _older(new, names) if new else {})
    bases = {key: new[kind]["rope_theta"] for key, kind in kinds.items() if kind in new}
    return found | _older(new.get(kinds.get("rope_theta"), {}), {}) | bases


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


def _newer(values, names):
    """The dictionary of the newer form, or None if the file says nothing that belongs there."""
    outside = {key: values.get(key, values.get(names.get(key))) for key in OUTSIDE}
    given = {key: value for key, value in outside.items() if value is not None}
    given |= values.get("rope_scaling") or {}
    method = given.get("rope_type", given.get("type", "default"))
    if method == "longrope" and TRAINED in values:
        given.setdefault(TRAINED, values[TRAINED])
    return given and given | {"rope_type": method}


def write_keys(config, path):
    """Write `both_forms` of a configuration, whole or not at all; a ValueError tells that `path` exists."""
    text, path = json.dumps(both_forms(config), indent=2), Path(path)
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, encoding="utf-8") as made:
            made.write(f"{text}\n")
            made.flush()
            os.chmod(made.name, 0o644)
            os.link(made.name, path)  # which refuses a path that exists
    except OSError as error:
        told = f"path must be that of a new file, got {str(path)!r}: {error.strerror}"
        raise ValueError(told) from None
