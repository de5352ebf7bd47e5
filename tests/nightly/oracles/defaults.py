"""The defaults that classes of transformers and diffusers have for the keys that posattn's families read.

`python -m tests.nightly.oracles.defaults` writes src/posattn/configs/defaults.json; checks_configs.py
compares it again.
"""

import ast
import dataclasses
import inspect
import json
import re
from pathlib import Path

import diffusers
import transformers

from posattn import configs

CONFIGS = Path(configs.__file__).parent
FILE = CONFIGS / "defaults.json"
TABLES = ("equal.json", "encoders.json", "diffusion.json", "decoders.json", "told.json")
MODULES = ("decoders.py", "experts.py")
BASES = {  # of classes that rotate each kind of layer by another: the keys of older files
    "gemma3_text": {"rope_theta": "full_attention", "rope_local_base_freq": "sliding_attention"},
    "gemma3n_text": {"rope_theta": "full_attention", "rope_local_base_freq": "sliding_attention"},
    "mimo_v2_flash": {"rope_theta": "full_attention", "swa_rope_theta": "sliding_attention"},
    "step3p5": {"rope_theta": "full_attention"},
    "modernbert": {"global_rope_theta": "full_attention", "local_rope_theta": "sliding_attention"},
    "modernbert-decoder": {"global_rope_theta": "full_attention", "local_rope_theta": "sliding_attention"},
    "olmo3": {"rope_theta": "full_attention"},
    "deepseek_v4": {"rope_theta": "main", "compress_rope_theta": "compress"},
}  # fmt: skip


def names_read():
    """All strings that the families' code and data could take for the name of a key."""
    tables = " ".join((CONFIGS / name).read_text("utf-8") for name in TABLES)
    found = set(re.findall(r'["{*](\w+)(?=["}*])', tables))
    for file in [*CONFIGS.glob("families/*.py"), *(CONFIGS / name for name in MODULES)]:
        nodes = ast.walk(ast.parse(file.read_text("utf-8")))
        told = {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
        found |= told | set(re.findall(r"{(\w+)}", " ".join(told)))
    return found


def rotation(model_type, config):
    """The rope parameters of an empty file, under the keys of a file."""
    found = getattr(config, "rope_parameters", None) or {}
    nested = {kind: value for kind, value in found.items() if isinstance(value, dict)}
    if model_type in BASES:
        bases = {key: nested[kind]["rope_theta"] for key, kind in BASES[model_type].items()}
        share = next(iter(nested.values())).get("partial_rotary_factor")
        return bases if share is None else bases | {"partial_rotary_factor": share}
    method = found.get("rope_type", found.get("type", "default"))
    if nested or method not in ("default", "axial"):
        return {"rope_parameters": found}
    return {
        key: found[key] for key in ("rope_theta", "partial_rotary_factor") if key in found
    }


def defaults():
    """What the file holds."""
    names, families = names_read(), {}
    for model_type in sorted(set(configs.FAMILIES) & set(transformers.CONFIG_MAPPING)):
        known = transformers.CONFIG_MAPPING[model_type]
        values = {
            field.name: field.default
            for field in dataclasses.fields(known)
            if field.name in names - {"rope_parameters", "layer_types"}
            and isinstance(field.default, bool | int | float | str | tuple | None)
        }
        values |= rotation(model_type, known())
        families[model_type] = {
            "class": known.__name__,
            "values": dict(sorted(values.items())),
        }
    for name in sorted(set(configs.FAMILIES) & set(dir(diffusers))):
        parameters = inspect.signature(getattr(diffusers, name).__init__).parameters
        values = {
            key: told.default
            for key, told in parameters.items()
            if key in names and told.default is not inspect.Parameter.empty
        }
        families[name] = {"class": name, "values": dict(sorted(values.items()))}
    versions = {
        library.__name__: library.__version__ for library in (transformers, diffusers)
    }
    return versions | {"families": families}


def written():
    """The text of the file: a line for each family."""
    found = defaults()
    lines = [
        f"{json.dumps(name)}: {json.dumps(value)}"
        for name, value in found["families"].items()
    ]
    versions = json.dumps({key: found[key] for key in found if key != "families"})
    return f'{versions[:-1]}, "families": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
