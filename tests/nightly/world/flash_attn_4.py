"""FlashAttention 4: its signature and its reference, which need no GPU; its kernels do."""

import ast
import importlib.metadata
import runpy

INSTALL = ["torch==2.13.0 numpy==2.4.6 einops==0.8.2", "--no-deps flash-attn-4==4.0.0b36"]


def _file(name):
    (path,) = (
        x for x in importlib.metadata.files("flash-attn-4") if x.match(f"cute/{name}")
    )
    return path.locate()


def _arguments(name):
    """The names of a function's arguments, read from its source."""
    for node in ast.parse(_file("interface.py").read_text()).body:
        if getattr(node, "name", None) == name:
            return [each.arg for each in node.args.args + node.args.kwonlyargs]


def score_mod():
    """`flash_attn_func` of FlashAttention 4 has no `alibi_slopes`, but a `score_mod` with tensors."""
    arguments = _arguments("flash_attn_func")
    for name in ("alibi_slopes", "softcap", "window_size", "score_mod", "aux_tensors"):
        print(name, name in arguments)


def window_size():
    """The reference in FlashAttention's tests shows a query `window_size[0]` keys beside its own."""
    hidden = runpy.run_path(str(_file("testing.py")))["construct_local_mask"](9, 9, (4, 0))
    print("window_size (4, 0):", (~hidden)[8].sum().item(), "keys")
