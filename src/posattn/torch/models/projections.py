"""The projections of a layer of attention: from what it is called with to heads, rotated by position."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.cache import following
from posattn.torch.attention.call import Positions, biases, positions_of
from posattn.torch.attention.heads import split_heads
from posattn.torch.attention.masks import all_of, for_heads, of_pairs, where_not_cached
from posattn.torch.models.head_norm import normed
from posattn.torch.position.axial import RotaryAxes
from posattn.torch.position.rotary import Rotary, rotate_alike

__all__ = []


class Inputs(NamedTuple):
    """What a layer is called with, as its call describes it."""

    query: Tensor
    key: Tensor | None = None
    value: Tensor | None = None
    mask: Any = None
    causal: bool = False
    bias: Any = None
    query_positions: Tensor | None = None
    key_positions: Tensor | None = None
    coordinates: Tensor | None = None


class Heads(NamedTuple):
    """What heads attend with.

    Args:
        query: `(*batch, h, n_q, d_h)`.
        key: `(*batch, h_kv, n_k, d_h)`.
        value: `(*batch, h_kv, n_k, d_h)`; None where only the weights are asked for.
        positions: where queries and keys stand.
        aligned: nobody said where: tokens stand at 0, 1, ..., and the queries are the last of them.
        causal: hide the future.
        masks: of a cache, of the layer and of the call; one that hides nothing is None.
        biases: what is added to the scores.
        finite: the keys and values to which nobody attends hold no NaN and no infinity.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None
    positions: Positions
    aligned: bool
    causal: bool
    masks: tuple
    biases: list
    finite: bool = False


class Given(nn.Module):
    """A scheme that is no module, in a list with others that are."""

    def __init__(self, scheme):
        super().__init__()
        self.scheme = scheme

    def forward(self, *arrays):
        """Call it."""
        return self.scheme(*arrays)

    def extra_repr(self) -> str:
        """What the layer was given."""
        return repr(self.scheme)


def registered(scheme):
    """Make a list with modules in it a module, so that what they learn is trained, moved and saved."""
    parts = scheme if isinstance(scheme, list | tuple) else ()
    if not any(isinstance(part, nn.Module) for part in parts):
        return scheme
    return nn.ModuleList(s if isinstance(s, nn.Module) else Given(s) for s in scheme)


def as_given(schemes):
    """What `registered` was given."""
    if not isinstance(schemes, nn.ModuleList):
        return schemes
    return [s.scheme if isinstance(s, Given) else s for s in schemes]


def project(layer, inputs, cache=None):
    """Make heads of queries, keys and values."""
    if cache is None:
        contract.placed(inputs.query_positions, layer.rotate, layer.attention)
    else:
        inputs = after(cache, inputs)
    heads = queries_and_keys(layer, inputs, cache)
    return heads._replace(value=values(layer, sequences(inputs)[2]))


def after(cache, inputs):
    """The inputs, whose tokens follow those of a cache if nothing else is given."""
    contract.cached(
        cache,
        inputs.query,
        key=inputs.key,
        value=inputs.value,
        key_positions=inputs.key_positions,
    )
    if inputs.query_positions is not None:
        return inputs
    return inputs._replace(query_positions=following(cache, inputs.query.shape[-2]))


def sequences(inputs):
    """What is projected: keys of the queries' sequence and values of the keys', if these are not given."""
    query, key, value = inputs[:3]
    key = query if key is None else key
    return query, key, key if value is None else value


def queries_and_keys(layer, inputs, cache=None):
    """Make heads of queries and keys, and rotate them: not the keys that a cache keeps as they are."""
    query, key, value = sequences(inputs)
    autocast = autocasts(query.device.type)
    contract.layer_inputs(query, key, value, layer.dim, layer.kv_dim, mixed=autocast)
    same_dtype("query", query, layer.query)
    q = split_heads(layer.query(query), layer.num_heads)
    k = split_heads(layer.key(key), layer.num_kv_heads)
    q = q if layer.query_norm is None else layer.query_norm(q).to(q.dtype)
    k = k if layer.key_norm is None else layer.key_norm(k).to(k.dtype)
    at, key_at = inputs.query_positions, inputs.key_positions
    aligned = at is None and key_at is None
    key_at = at if key_at is None and inputs.key is None else key_at
    positions = positions_of(q, k, at, key_at)
    contract.layer_coordinates(inputs.coordinates, query.shape, inputs.key, cache)
    now = cache is None or cache.rotated
    q, k = rotated_pair(layer, q, k, positions, inputs.coordinates, now)
    masks = where_not_cached(layer.mask, cache), inputs.mask
    added = [*biases(as_given(layer.bias)), *biases(inputs.bias)]
    return Heads(q, k, None, positions, aligned, inputs.causal, masks, added)


def borrowed(layer, inputs, lent):
    """Heads with the layer's own queries, and keys and values of an earlier layer."""
    q = split_heads(layer.query(inputs.query), layer.num_heads)
    q = q if layer.query_norm is None else layer.query_norm(q).to(q.dtype)
    at = lent.positions.query
    return lent._replace(query=rotated(as_given(layer.rotate), 0, q, at))


def autocasts(kind):
    """Whether PyTorch chooses the dtype of each operation on devices of a kind."""
    return kind != "meta" and torch.is_autocast_enabled(kind)


def floating_weight(linear):
    """The weight of a projection; None if it is quantized, which may keep anything under that name."""
    weight = getattr(linear, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.is_floating_point() else None


def same_dtype(name, x, linear):
    """Reject an input of another dtype than the weights, unless autocast or quantized weights cast it."""
    weight = floating_weight(linear)
    if not (autocasts(x.device.type) or weight is None):
        contract.floating(name, x, like=weight, owner="the weights")


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


def grown(query, temperature, positions):
    """Queries of each head times `a log(p + 1) + b`, whose a and b are `(2, h)`; padding counts as at 0."""
    if temperature is None:
        return query
    wide = torch.promote_types(query.dtype, torch.float32)
    length = positions.clamp(min=0).to(wide).log1p()[..., None, :]
    a, b = temperature[..., None]
    return query * (a * length.to(a.dtype) + b).to(query.dtype)[..., None]


def values(layer, value):
    """The heads of values."""
    v = split_heads(layer.value(value), layer.num_kv_heads)
    return v if layer.value_norm is None else layer.value_norm(v).to(v.dtype)


def rotated(rotate, which, x, positions, coordinates=None):
    """The queries (0) or the keys (1) of all heads, rotated."""
    rotate = rotate[which] if isinstance(rotate, list | tuple) else rotate
    if rotate is None:
        return x
    if coordinates is not None:
        return rotate(x, coordinates[..., None, :, :])
    at = positions[..., None, :]
    if isinstance(rotate, RotaryAxes):  # of text, which stands at one place on all axes
        at = at[..., None].expand(*at.shape, len(rotate.frequencies))
    return rotate(x, at)


def rotated_pair(layer, query, key, positions, coordinates, keys):
    """The queries and keys of all heads, rotated: the keys too if they are to be rotated now."""
    rotate = as_given(layer.rotate)
    alike = coordinates is None and positions.query is positions.key
    if keys and alike and isinstance(rotate, Rotary):
        return rotate_alike(rotate, query, key, positions.query[..., None, :])
    query = rotated(rotate, 0, query, positions.query, coordinates)
    return query, rotated(rotate, 1, key, positions.key, coordinates) if keys else key


def mask_of(heads):
    """What the masks of heads let see together."""
    shape = *heads.query.shape[:-1], heads.key.shape[-2]
    masks = [for_heads(mask, shape) for mask in heads.masks]
    return all_of(masks, heads.positions, shape)


def chosen(layer, x, heads, cache):
    """The keys that each query reads, as the layer's indexer selects them, and the cache with its keys."""
    key = layer.indexer.keys(x, heads.positions.query)
    if cache is not None:
        index = cache.index.append(key, heads.positions.query)
        cache, key = cache, index.latent[..., : heads.key.shape[-2], :]
    shape = *heads.query.shape[:-1], key.shape[-2]
    seen = of_pairs(mask_of(heads), heads.positions, shape)
    at = heads.positions
    select = layer.indexer(
        x, x, key, at.query, key_positions=at.key, mask=seen, causal=heads.causal
    )
    return select, cache


def options_of(layer, heads):
    """What an attention is told, but for positions."""
    said = {"mask": mask_of(heads), "causal": heads.causal, "bias": heads.biases}
    given = {"sinks": layer.sinks, "soft_cap": layer.soft_cap}
    there = {name: x for name, x in given.items() if x is not None}
    return said | {"scale": layer.scale} | there


def latent_parts(layer, x, query_positions):
    """Queries in two parts, what is kept of tokens, where they stand, and what indexer and gate read."""
    same_dtype("x", x, layer.query)
    narrow = wide = x
    if layer.query_norm is not None:
        raw = layer.query_down(x)
        narrow = normed(layer.query_norm, raw)
        wide = torch.cat([narrow, raw], dim=-1) if layer.raw else narrow
    query = split_heads(layer.query(wide), layer.num_heads)
    positions = positions_of(query, query, query_positions, query_positions)
    query = grown(query, layer.temperature, positions.query)
    content, rotation = query.split([layer.content_dim, layer.rotary_dim], dim=-1)
    kept = [query[..., 0, :, :0]]
    if not layer.lent:
        latent, key = layer.kv_down(x).split([layer.kv_rank, layer.rotary_dim], dim=-1)
        key = rotated(layer.rotate, 1, key[..., None, :, :], positions.key)
        kept = [normed(layer.kv_norm, latent), key[..., 0, :, :]]
    if layer.indexer is not None:
        kept.append(layer.indexer.keys(x, positions.key).to(query.dtype))
    kept = torch.cat(kept, dim=-1)
    rotation = rotated(layer.rotate, 0, rotation, positions.query)
    return content, rotation, kept, positions, narrow, wide if layer.raw else x
