"""The keys that models of transformers read: fields of their classes that code uses, or that code asks for.

`python -m tests.nightly.oracles.reads` writes src/posattn/configs/reads.json; checks_configs.py compares it.
"""

import ast
import dataclasses
import inspect
import json
import re
from collections import Counter
from pathlib import Path

import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from posattn import configs

FILE = Path(configs.__file__).with_name("reads.json")
ROOT = Path(transformers.__file__).parent
MOVED = {  # which older files have, and the library moves or takes for granted
    *("model_type", "torch_dtype", "rope_theta", "rope_scaling", "partial_rotary_factor"),
    *("transformers_version", "attn_implementation", "auto_map", "quantization_config"),
}


def names(tree):
    """What code may take for the name of a key."""
    nodes = list(ast.walk(tree))
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return found | {str(n.value) for n in nodes if isinstance(n, ast.Constant)}


def asked(tree):
    """The keys that code asks a configuration for, whether its class has them or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("config"):
            yield node.attr
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            yield from names(node.args[1])


def code(paths, find=names):
    """The names in some files."""
    return {name for path in paths for name in find(ast.parse(path.read_text("utf-8")))}


def reads(known, shared):
    """The keys that a class has and code uses, that its own methods use, or that its models ask for."""
    path, renamed = Path(inspect.getsourcefile(known)), known.attribute_map
    nodes, models = (
        ast.walk(ast.parse(path.read_text("utf-8"))),
        [*path.parent.glob("modeling_*.py")],
    )
    own = {n for node in nodes if isinstance(node, ast.FunctionDef) for n in names(node)}
    own |= code(models, asked)
    used = own | shared | code(models)
    fields = {field.name for field in dataclasses.fields(known)} | own | {*renamed}
    return fields & used | {k for pair in renamed.items() if used & {*pair} for k in pair}


def written():
    """The text of the file: what all have, and a line for each family."""
    every = [
        path
        for folder in ("", "generation/", "loss/", "integrations/")
        for path in ROOT.glob(f"{folder}*.py")
    ]
    shared, every = code(every), MOVED | code(every, asked)
    wanted = {*configs.FAMILIES, *MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} & {*CONFIG_MAPPING}
    found = {name: reads(CONFIG_MAPPING[name], shared) for name in sorted(wanted)}
    often = Counter(key for keys in found.values() for key in keys)
    every |= {key for key, count in often.items() if count > 0.8 * len(found)}
    every |= {field.name for field in dataclasses.fields(PreTrainedConfig)}
    lines = {"": every} | {name: keys - every for name, keys in found.items()}
    kept = {
        name: sorted(k for k in keys if re.fullmatch(r"[a-z]\w+", k))
        for name, keys in lines.items()
    }
    return (
        "{\n"
        + ",\n".join(f'"{name}": {json.dumps(keys)}' for name, keys in kept.items())
        + "\n}\n"
    )


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
