"""The probes of ONNX's operators `Attention` and `RotaryEmbedding`, for whatever runs a model.

A row sets `run`, which takes a model as bytes and its inputs, and returns the first output.
"""

import numpy as np
from onnx.parser import parse_model

run = None


def _graph(line, inputs, opset=24, outputs="y"):
    """A model of one operator, such as `Attention <is_causal = 1> (query, key, value)`, as bytes."""
    kinds = {"float32": "float", "int64": "int64", "int32": "int32", "bool": "bool"}
    given = ", ".join(
        f"{kinds[x.dtype.name]}[{', '.join(map(str, x.shape))}] {name}"
        for name, x in inputs.items()
    )
    opsets = f'["": {opset}, "com.microsoft": 1]'
    text = f"<ir_version: 11, opset_import: {opsets}> g ({given}) => (float[] y)"
    return parse_model(f"{text} {{ {outputs} = {line} }}").SerializeToString()


def _attend(line, opset=24, outputs="y", **inputs):
    return run(_graph(line, inputs, opset, outputs), inputs)


def _rotate(line, x, positions, dim=16):
    angles = positions[None, :, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    inputs = {
        "x": x,
        "cos": np.cos(angles).astype("f4"),
        "sin": np.sin(angles).astype("f4"),
    }
    return run(_graph(line, inputs), inputs)


def causal(last, key, value):
    line = "Attention <is_causal = 1> (last, key, value)"
    return _attend(line, last=last, key=key, value=value)


def empty_row(query, key, value, empty):
    line = "Attention (query, key, value, empty)"
    return _attend(line, query=query, key=key, value=value, empty=empty)


def true(query, key, value, mask):
    line = "Attention (query, key, value, mask)"
    return _attend(line, query=query, key=key, value=value, mask=mask)


def scale(query, key, value):
    line = "Attention (query, key, value)"
    return _attend(line, query=query, key=key, value=value)


def soft_cap(query, key, value, mask, cap):
    line = f"Attention <softcap = {cap:.1f}> (query, key, value, mask)"
    return _attend(line, query=query, key=key, value=value, mask=mask)


def sliding(query, key, value, window):
    line = f"Attention <is_causal = 1, left_window_size = {window}> (query, key, value)"
    return _attend(line, opset=25, query=query, key=key, value=value)


def rotated(x, positions):
    return _rotate("RotaryEmbedding (x, cos, sin)", x, positions)


def partly(x, positions, part):
    line = f"RotaryEmbedding <rotary_embedding_dim = {part}> (x, cos, sin)"
    return _rotate(line, x, positions, part)


def cached(query, key, value):
    line = "Attention <is_causal = 1> (query, key, value)"
    once = _attend(line, query=query, key=key, value=value)[:, :, 4:]
    line = "Attention <is_causal = 1> (query, key, value, , past_key, past_value)"
    new = {"query": query[:, :, 4:], "key": key[:, :, 4:], "value": value[:, :, 4:]}
    past = {"past_key": key[:, :, :4], "past_value": value[:, :, :4]}
    return once, _attend(line, outputs="y, keys, values", **new, **past)
