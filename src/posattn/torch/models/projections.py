"""The projections of a layer of attention: their dtypes, what they make of an input, and how it turns."""

import torch
from torch import Tensor

from posattn import contract
from posattn.torch.attention.call import positions_of
from posattn.torch.attention.heads import split_heads
from posattn.torch.position.rotary import Rotary, rotate_alike

__all__ = []


def autocasts(kind):
    """Whether PyTorch chooses the dtype of each operation on devices of a kind."""
    return kind != "meta" and torch.is_autocast_enabled(kind)


def floating_weight(linear):
    """The weight of a projection; None if it is quantized, which may keep anything under that name."""
    weight = getattr(linear, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.is_floating_point() else None


def made_by(linear, dtype, device):
    """The dtype of what a projection returns, and its device, unless others are asked for."""
    weight = floating_weight(linear)
    if device is None:
        device = torch.get_default_device() if weight is None else weight.device
    kind = torch.device(device).type
    if dtype is None and autocasts(kind):
        dtype = torch.get_autocast_dtype(kind)
    elif dtype is None and weight is not None:
        dtype = weight.dtype
    return dtype, device


def gated(layer, out, query):
    """The output of the heads, each entry times a sigmoid of what the layer's gate makes of the query."""
    return out if layer.gate is None else out * layer.gate(query).sigmoid()


def queries_and_keys(layer, query, key, value, query_positions, key_positions):
    """The heads of queries and keys, not yet rotated, what has the values, and where the first two stand."""
    if key is None:
        key = query
        key_positions = query_positions if key_positions is None else key_positions
    value = key if value is None else value
    autocast = autocasts(query.device.type)
    contract.layer_inputs(query, key, value, layer.dim, layer.kv_dim, mixed=autocast)
    weight = floating_weight(layer.query)
    if not (autocast or weight is None):
        contract.floating("query", query, like=weight, owner="the weights")
    q = split_heads(layer.query(query), layer.num_heads)
    k = split_heads(layer.key(key), layer.num_kv_heads)
    q = q if layer.query_norm is None else layer.query_norm(q).to(q.dtype)
    k = k if layer.key_norm is None else layer.key_norm(k).to(k.dtype)
    return q, k, value, positions_of(q, k, query_positions, key_positions)


def values(layer, value):
    """The heads of values."""
    v = split_heads(layer.value(value), layer.num_kv_heads)
    return v if layer.value_norm is None else layer.value_norm(v).to(v.dtype)


def rotated(rotate, which, x, positions, coordinates=None):
    """The queries (0) or the keys (1) of all heads, rotated."""
    rotate = rotate[which] if isinstance(rotate, list | tuple) else rotate
    if rotate is None:
        return x
    at = positions[..., None, :] if coordinates is None else coordinates[..., None, :, :]
    return rotate(x, at)


def rotated_pair(rotate, query, key, where, coordinates, keys):
    """The queries and keys of all heads, rotated: the keys too if they are to be rotated now."""
    alike = coordinates is None and where[0] is where[1]
    if keys and alike and isinstance(rotate, Rotary):
        return rotate_alike(rotate, query, key, where[0][..., None, :])
    query = rotated(rotate, 0, query, where[0], coordinates)
    return query, rotated(rotate, 1, key, where[1], coordinates) if keys else key


def sinks_and_cap(layer):
    """What the layer says of its weights: its sinks and its cap, where it has them."""
    given = {"sinks": layer.sinks, "soft_cap": layer.soft_cap}
    return {name: x for name, x in given.items() if x is not None}
