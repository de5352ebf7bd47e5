"""The keys that models of transformers read: fields of their classes that their code, or the library's, uses.

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
KEY = r"[a-z]\w+"
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
    path = Path(inspect.getsourcefile(known))
    tree, models = ast.parse(path.read_text("utf-8")), [*path.parent.glob("modeling_*.py")]
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    own = {name for method in methods for name in names(method)} | code(models, asked)
    used = own | shared | code(models)
    renamed = known.attribute_map
    fields = {field.name for field in dataclasses.fields(known)} | own | {*renamed}
    found = {name for name in fields & used if re.fullmatch(KEY, name)}
    return found | {k for pair in renamed.items() if used & {*pair} for k in pair}


def written():
    """The text of the file: what all have, and a line for each family."""
    whole = [*ROOT.glob("*.py"), *ROOT.glob("generation/*.py"), *ROOT.glob("loss/*.py")]
    shared = code(whole := [*whole, *ROOT.glob("integrations/*.py")])
    wanted = {*configs.FAMILIES, *MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} & {*CONFIG_MAPPING}
    found = {name: reads(CONFIG_MAPPING[name], shared) for name in sorted(wanted)}
    every = (
        MOVED
        | code(whole, asked)
        | {field.name for field in dataclasses.fields(PreTrainedConfig)}
    )
    often = Counter(key for keys in found.values() for key in keys)
    every |= {key for key, count in often.items() if count > 0.8 * len(found)}
    every = {key for key in every if re.fullmatch(KEY, key)}
    lines = [f'"": {json.dumps(sorted(every))}']
    lines += [
        f'"{name}": {json.dumps(sorted(keys - every))}' for name, keys in found.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
