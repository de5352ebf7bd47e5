"""ONNX Runtime, its own `MultiHeadAttention`, `GroupQueryAttention` and `RotaryEmbedding`."""

import numpy as np
from onnxruntime import InferenceSession

from tests.nightly.world.graphs import _graph

INSTALL = ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.32.0"]


def _run(line, outputs="y", **inputs):
    model = _graph(f"com.microsoft.{line}", inputs, outputs=outputs)
    return InferenceSession(model).run(None, inputs)[0]


def _merged(x):
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(len(x), x.shape[2], -1)


def _split(y):
    return y.reshape(*y.shape[:2], 2, 16).swapaxes(1, 2)


def _heads(query, key, value, inputs="", options="", **more):
    line = f"MultiHeadAttention <num_heads = 2{options}> (query, key, value{inputs})"
    given = {"query": _merged(query), "key": _merged(key), "value": _merged(value)}
    return _split(_run(line, **given, **more))


def _groups(query, key, value, past=0, options="", bias=None):
    """Queries and keys after `past` keys, of which each example has a cache."""
    names = "query, key, value, past_key, past_value, lengths, total"
    given = {"query": _merged(query), "key": _merged(key[:, :, past:])}
    given |= {"value": _merged(value[:, :, past:])}
    cache = {"past_key": key[:, :, :past], "past_value": value[:, :, :past]}
    lengths = np.full(len(query), key.shape[2] - 1, "i4")
    given |= cache | {"lengths": lengths, "total": np.array(key.shape[2], "i4")}
    if bias is not None:
        given["bias"], names = bias, f"{names}, , , , bias"
    line = f"GroupQueryAttention <num_heads = 2, kv_num_heads = 2{options}> ({names})"
    return _split(_run(line, outputs="y, present_key, present_value", **given))


def _tables(dim=16, length=16):
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
    return {"cos": np.cos(angles).astype("f4"), "sin": np.sin(angles).astype("f4")}


PROBES = {
    "causal": lambda last, key, value: _heads(last, key, value, options=", unidirectional = 1"),
    "true": lambda query, key, value, mask: _heads(query, key, value, ", , mask", mask=mask[0].astype("i4")),
    "scale": lambda query, key, value: _heads(query, key, value),
}  # fmt: skip


def empty_row(query, key, value, empty):
    return _heads(query, key, value, ", , empty", empty=empty[0].astype("i4"))


def soft_cap(query, key, value, mask, cap):
    bias = np.where(mask, 0, -np.inf).astype("f4").reshape(6, 1, 1, 6)
    each = query[0].swapaxes(0, 1)[:, :, None]  # six examples, each of the last query
    keys, values = (np.repeat(x, 6, 0) for x in (key, value))
    options = f", softcap = {cap:.1f}"
    return _groups(each, keys, values, 5, options, bias)[:, :, 0].swapaxes(0, 1)[None]


def sliding(query, key, value, window):
    return _groups(query, key, value, options=f", local_window_size = {window}")


def cached(query, key, value):
    once = _groups(query, key, value)[:, :, 4:]
    return once, _groups(query[:, :, 4:], key, value, past=4)


def rotated(x, positions):
    line = "RotaryEmbedding (x, positions, cos, sin)"
    return _run(line, x=x, positions=positions[None], **_tables())


def partly(x, positions, part):
    line = f"RotaryEmbedding <rotary_embedding_dim = {part}, num_heads = 2> (x, positions, cos, sin)"
    return _run(line, x=x, positions=positions[None], **_tables(part))


def shifted(x, offset):
    line = "RotaryEmbedding (x, offset, cos, sin)"
    return _run(line, x=x, offset=np.array([offset]), **_tables())
