"""The projections of a layer of attention: drawn, applied to its input, and rotated, head by head."""

import numpy as np

from posattn import contract
from posattn.reference.attention.attention import positions_of
from posattn.reference.attention.heads import split_heads

__all__ = []


ROLES = ("query", "key", "value", "output", "gate")


def drawn(rng, shapes, use_bias, use_output_bias):
    """The arrays of a layer by field: weights within Glorot's bounds, and zeros for offsets."""
    use_output_bias = use_bias if use_output_bias is None else use_output_bias
    made = {}
    for role, shape in zip(ROLES, shapes, strict=False):
        made[f"{role}_weight"] = rng.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape))
        if use_output_bias if role == "output" else use_bias:
            made[f"{role}_bias"] = np.zeros(shape[1])
    return made


def affine(x, weight, bias):
    """Project a sequence."""
    return x @ weight if bias is None else x @ weight + bias


def gated(layer, out, query):
    """The output of the heads, each entry times a sigmoid of what the layer's gate makes of the query."""
    if layer.gate_weight is None:
        return out
    opened = affine(query, layer.gate_weight, layer.gate_bias)
    return out * (1 + np.tanh(opened / 2)) / 2


def queries_and_keys(layer, query, key, value, query_positions, key_positions):
    """The heads of queries and keys, not yet rotated, what has the values, and where the first two stand."""
    if key is None:
        key = query
        key_positions = query_positions if key_positions is None else key_positions
    value = key if value is None else value
    contract.layer_weights(layer)
    widths = layer.query_weight.shape[0], layer.key_weight.shape[0]
    contract.layer_inputs(query, key, value, *widths)
    q = split_heads(affine(query, layer.query_weight, layer.query_bias), layer.num_heads)
    k = affine(key, layer.key_weight, layer.key_bias)
    k = split_heads(k, layer.num_kv_heads or layer.num_heads)
    q = q if layer.query_norm is None else layer.query_norm(q)
    k = k if layer.key_norm is None else layer.key_norm(k)
    return q, k, value, positions_of(q, k, query_positions, key_positions)


def values(layer, value):
    """The heads of values."""
    v = affine(value, layer.value_weight, layer.value_bias)
    v = split_heads(v, layer.num_kv_heads or layer.num_heads)
    return v if layer.value_norm is None else layer.value_norm(v)


def rotated(rotate, which, x, positions, coordinates=None):
    """The queries (0) or the keys (1) of all heads, rotated."""
    rotate = rotate[which] if isinstance(rotate, list | tuple) else rotate
    if rotate is None:
        return x
    at = positions[..., None, :] if coordinates is None else coordinates[..., None, :, :]
    return rotate(x, at)


def sinks_and_cap(layer):
    """What the layer says of its weights: its sinks and its cap, where it has them."""
    given = {"sinks": layer.sinks, "soft_cap": layer.soft_cap}
    return {name: x for name, x in given.items() if x is not None}
