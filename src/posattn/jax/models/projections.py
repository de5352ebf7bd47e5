"""The projections of a layer of attention: drawn, applied to its input, and rotated, head by head."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from posattn import contract
from posattn.jax.attention.call import positions_of
from posattn.jax.attention.heads import split_heads

__all__ = []


ROLES = ("query", "key", "value", "output", "gate")


def drawn(rng, shapes, use_bias, use_output_bias, dtype):
    """The arrays of a layer by field: weights within Glorot's bounds, and zeros for offsets."""
    dtype = jnp.result_type(float if dtype is None else dtype)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = jnp.split(jax.random.uniform(rng, (ends[-1],), dtype, -1, 1), ends[:-1])
    use_output_bias = use_bias if use_output_bias is None else use_output_bias
    made = {}
    for role, shape, part in zip(ROLES, shapes, parts, strict=False):
        made[f"{role}_weight"] = part.reshape(shape) * math.sqrt(6 / sum(shape))
        if use_output_bias if role == "output" else use_bias:
            made[f"{role}_bias"] = jnp.zeros(shape[1], dtype)
    return made


def affine(x, weight, bias, sharding=None):
    """Project a sequence."""
    product = jnp.matmul(x, weight, out_sharding=sharding)
    return product if bias is None else product + bias


def gated(layer, out, query):
    """The output of the heads, each entry times a sigmoid of what the layer's gate makes of the query."""
    if layer.gate_weight is None:
        return out
    return out * jax.nn.sigmoid(affine(query, layer.gate_weight, layer.gate_bias))


def queries_and_keys(layer, query, key, value, query_positions, key_positions):
    """The heads of queries and keys, not yet rotated, what has the values, and where the first two stand."""
    if key is None:
        key = query
        key_positions = query_positions if key_positions is None else key_positions
    value = key if value is None else value
    contract.layer_weights(layer)
    widths = layer.query_weight.shape[0], layer.key_weight.shape[0]
    contract.layer_inputs(query, key, value, *widths)
    contract.floating("query", query, like=layer.query_weight, owner="the weights")
    q = split_heads(affine(query, layer.query_weight, layer.query_bias), layer.num_heads)
    k = split_heads(affine(key, layer.key_weight, layer.key_bias), layer.num_kv_heads)
    q = q if layer.query_norm is None else layer.query_norm(q)
    k = k if layer.key_norm is None else layer.key_norm(k)
    return q, k, value, positions_of(q, k, query_positions, key_positions)


def values(layer, value):
    """The heads of values."""
    v = affine(value, layer.value_weight, layer.value_bias)
    v = split_heads(v, layer.num_kv_heads)
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
