"""Graphs of one operator of ONNX, for engines that run them, and the adapters that these engines share."""

from types import SimpleNamespace

import numpy as np
from onnx import TensorProto, helper

from posattn.conformance.adapters import attention_of_heads, rotation_of_heads
from tests.nightly.conformance.adapting import because

OURS = {"framework": "numpy", "dtype": "float32"}
OUTPUTS = ["out", "present_key", "present_value"]
CORNER = because(
    "more queries than keys",
    whose="convention",
    why="`is_causal` aligns the first query with the first key that is not past, as is documented; "
    "we align the last ones",
)


def described(name, x):
    """What a graph says of an input."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    return helper.make_tensor_value_info(name, kind, x.shape)


def graph(operator, inputs, outputs=("out",), domain="", opset=23, **attributes):
    """A model that has only this operator, and what it is given; inputs that are None are left out."""
    attributes = {name: x for name, x in attributes.items() if x is not None}
    names = [name if x is not None else "" for name, x in inputs.items()]
    node = helper.make_node(operator, names, outputs, domain=domain, **attributes)
    given = {name: x for name, x in inputs.items() if x is not None}
    out = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    inputs = [*map(described, given, given.values())]
    made = helper.make_graph([node], operator, inputs, out)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(made, opset_imports=opsets[: 1 + bool(domain)], ir_version=11)
    return model, given


def added(mask, bias):
    """A mask, or a mask and a bias in one."""
    return mask if bias is None else np.where(mask, bias, np.float32(-np.inf))


def cached(query, key, value):
    """Inputs whose keys before the first query are past, in an operator that counts them so."""
    past = max(key.shape[-2] - query.shape[-2], 0)
    inputs = {"Q": query, "K": key[..., past:, :], "V": value[..., past:, :], "mask": None}
    cache = {"past_key": key[..., :past, :], "past_value": value[..., :past, :]}
    return inputs | cache if past else inputs


def rotated(run, x, positions, base, rotary_dim, **layout):
    """The rotation by tables of all positions, or by a row for each token where some are fractions."""
    dim = rotary_dim or x.shape[-1]
    whole = positions.dtype.kind == "i"
    rows = np.arange(positions.max(initial=0) + 1) if whole else positions
    angles = rows[..., None] * base ** (-np.arange(0, dim, 2) / dim)
    tables = {"cos": np.cos(angles).astype("f4"), "sin": np.sin(angles).astype("f4")}
    inputs = {"X": x, **tables, "position_ids": positions if whole else None}
    return run("RotaryEmbedding", inputs, rotary_embedding_dim=rotary_dim, **layout)


def adapters(run):
    """The adapters of `run(operator, inputs, **attributes)`, which returns the first output."""

    def halves(x, positions, *, base=10000.0, rotary_dim=None):
        """`RotaryEmbedding`."""
        return rotated(run, x, positions, base, rotary_dim)

    def neighbors(x, positions, *, base=10000.0, rotary_dim=None):
        """`RotaryEmbedding` with `interleaved`."""
        return rotated(run, x, positions, base, rotary_dim, interleaved=1)

    def masked(query, key, value, *, mask, bias=None, scale=None):
        """`Attention` with `attn_mask`."""
        inputs = {"Q": query, "K": key, "V": value, "mask": added(mask, bias)}
        return run("Attention", inputs, scale=scale)

    def is_causal(query, key, value, *, mask=None, scale=None):
        """`Attention` with `is_causal`; keys before the first query are `past_key`."""
        inputs = cached(query, key, value) | {"mask": mask}
        outputs = OUTPUTS[: 3 if "past_key" in inputs else 1]
        return run("Attention", inputs, outputs, scale=scale, is_causal=1)

    def windowed(query, key, value, *, window, scale=None):
        """`Attention` of opset 25 with `left_window_size` and `is_causal`, and a past."""
        inputs = cached(query, key, value)
        outputs = OUTPUTS[: 3 if "past_key" in inputs else 1]
        options = {"scale": scale, "is_causal": 1, "left_window_size": window - 1}
        return run("Attention", inputs, outputs, opset=25, **options)

    def capped(query, key, value, *, mask, bias=None, scale=None, soft_cap):
        """`Attention` with `softcap`."""
        inputs = {"Q": query, "K": key, "V": value, "mask": added(mask, bias)}
        return run("Attention", inputs, scale=scale, softcap=soft_cap)

    found = {made.__name__: rotation_of_heads(made) for made in (halves, neighbors)}
    others = masked, is_causal, windowed, capped
    found |= {made.__name__: attention_of_heads(made) for made in others}
    return SimpleNamespace(**found)
