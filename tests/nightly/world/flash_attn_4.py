"""FlashAttention 4: its signature, which a machine without a GPU can read and not run."""

import ast
import importlib.metadata

INSTALL = ["numpy==2.4.6", "--no-deps flash-attn-4==4.0.0b36"]


def _arguments(name):
    """The names of a function's arguments, read from its source."""
    files = importlib.metadata.files("flash-attn-4")
    (path,) = (path for path in files if path.match("flash_attn/cute/interface.py"))
    for node in ast.parse(path.read_text()).body:
        if getattr(node, "name", None) == name:
            return [each.arg for each in node.args.args + node.args.kwonlyargs]


def score_mod():
    """`flash_attn_func` of FlashAttention 4 has no `alibi_slopes`, but a `score_mod` with tensors."""
    arguments = _arguments("flash_attn_func")
    for name in ("alibi_slopes", "softcap", "window_size", "score_mod", "aux_tensors"):
        print(name, name in arguments)
