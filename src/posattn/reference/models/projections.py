"""The projections of a layer of attention: drawn, applied to its input, and turned, head by head."""

import numpy as np

from posattn import contract
from posattn.reference.attention.attention import positions_of
from posattn.reference.attention.heads import split_heads

__all__ = []


def drawn(rng, shapes, used):
    """Weights within Glorot's bounds, and an offset of zeros (or None) for each, as `used` says."""
    weights = [rng.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape)) for shape in shapes]
    offsets = [
        np.zeros(shape[1]) if use else None for shape, use in zip(shapes, used, strict=True)
    ]
    return weights, offsets


def affine(x, weight, bias):
    """Project a sequence."""
    return x @ weight if bias is None else x @ weight + bias


def queries_and_keys(layer, query, key, value, query_positions, key_positions):
    """The heads of queries and keys, not yet turned, what has the values, and where the first two stand."""
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


def turned(rotate, which, x, positions, coordinates=None):
    """The queries (0) or the keys (1) of all heads, rotated."""
    rotate = rotate[which] if isinstance(rotate, list | tuple) else rotate
    if rotate is None:
        return x
    at = positions[..., None, :] if coordinates is None else coordinates[..., None, :, :]
    return rotate(x, at)
