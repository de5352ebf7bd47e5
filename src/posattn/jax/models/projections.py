"""The projections of a layer of attention: from what it is called with to heads, rotated by position."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posattn import contract
from posattn.jax.attention.cache import rule_of
from posattn.jax.attention.call import Positions, biases, positions_of
from posattn.jax.attention.heads import split_heads
from posattn.jax.attention.masks import all_of, for_heads, of_pairs, where_not_cached
from posattn.jax.models.head_norm import normed
from posattn.jax.position.axial import RotaryAxes

__all__ = []


ROLES = ("query", "key", "value", "output", "gate")


class Inputs(NamedTuple):
    """What a layer is called with, as its call describes it."""

    query: Any
    key: Any = None
    value: Any = None
    mask: Any = None
    causal: bool = False
    bias: Any = None
    query_positions: Any = None
    key_positions: Any = None
    coordinates: Any = None


class Heads(NamedTuple):
    """What heads attend with.

    Args:
        query: `(*batch, h, n_q, d_h)`.
        key: `(*batch, h_kv, n_k, d_h)`.
        value: `(*batch, h_kv, n_k, d_h)`; None where only the weights are asked for.
        positions: where queries and keys stand.
        causal: hide the future.
        masks: of a cache, of the layer and of the call; one that hides nothing is None.
        biases: what is added to the scores.
        finite: the keys and values to which nobody attends hold no NaN and no infinity.
    """

    query: Any
    key: Any
    value: Any
    positions: Positions
    causal: bool
    masks: tuple
    biases: list
    finite: bool = False


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


def glorot(keys, shapes, dtype):
    """Weights by field, within Glorot's bounds, of the shapes by name."""
    return {
        f"{name}_weight": math.sqrt(6 / sum(shape))
        * jax.random.uniform(key, shape, dtype, -1, 1)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def affine(x, weight, bias, sharding=None):
    """Project a sequence."""
    product = jnp.matmul(x, weight, out_sharding=sharding)
    return product if bias is None else product + bias


def gated(layer, out, query):
    """The output of the heads, each entry times a sigmoid of what the layer's gate makes of the query."""
    if layer.gate_weight is None:
        return out
    bias = getattr(layer, "gate_bias", None)
    return out * jax.nn.sigmoid(affine(query, layer.gate_weight, bias))


def grown(query, temperature, positions):
    """Queries of each head times `a log(p + 1) + b`, whose a and b are `(2, h)`; padding counts as at 0."""
    if temperature is None:
        return query
    a, b = temperature[..., None]
    length = jnp.log1p(jnp.maximum(positions, 0)).astype(query.dtype)
    return query * (a * length[..., None, :] + b)[..., None]


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
    return inputs._replace(query_positions=cache.next_positions(inputs.query.shape[-2]))


def sequences(inputs):
    """What is projected: keys of the queries' sequence and values of the keys', if these are not given."""
    query, key, value = inputs[:3]
    key = query if key is None else key
    return query, key, key if value is None else value


def queries_and_keys(layer, inputs, cache=None):
    """Make heads of queries and keys, and rotate them: not the keys that a cache keeps as they are."""
    query, key, value = sequences(inputs)
    contract.layer_weights(layer)
    widths = layer.query_weight.shape[0], layer.key_weight.shape[0]
    contract.layer_inputs(query, key, value, *widths)
    contract.floating("query", query, like=layer.query_weight, owner="the weights")
    q = split_heads(affine(query, layer.query_weight, layer.query_bias), layer.num_heads)
    k = split_heads(affine(key, layer.key_weight, layer.key_bias), layer.num_kv_heads)
    q = q if layer.query_norm is None else layer.query_norm(q)
    k = k if layer.key_norm is None else layer.key_norm(k)
    at, key_at = inputs.query_positions, inputs.key_positions
    key_at = at if key_at is None and inputs.key is None else key_at
    positions = positions_of(q, k, at, key_at)
    contract.layer_coordinates(inputs.coordinates, query.shape, inputs.key, cache)
    q = rotated(layer.rotate, 0, q, positions.query, inputs.coordinates)
    if cache is None or cache.rotated:
        k = rotated(layer.rotate, 1, k, positions.key, inputs.coordinates)
    masks = where_not_cached(layer.mask, cache), inputs.mask
    added = [*biases(layer.bias), *biases(inputs.bias)]
    return Heads(q, k, None, positions, inputs.causal, masks, added)


def borrowed(layer, inputs, lent):
    """Heads with the layer's own queries, and keys and values of an earlier layer."""
    q = affine(inputs.query, layer.query_weight, layer.query_bias)
    q = split_heads(q, layer.num_heads)
    q = q if layer.query_norm is None else layer.query_norm(q)
    return lent._replace(query=rotated(layer.rotate, 0, q, lent.positions.query))


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
    if coordinates is not None:
        return rotate(x, coordinates[..., None, :, :])
    at = positions[..., None, :]
    if isinstance(rotate, RotaryAxes):  # of text, which stands at one place on all axes
        at = jnp.stack([at] * len(rotate.frequencies), axis=-1)
    return rotate(x, at)


def remember(layer, heads, cache, follow):
    """Keep the tokens of a call, and let its queries attend to all that is kept up to their own."""
    queries = jnp.asarray(heads.positions.query)
    rule = rule_of(cache, queries, follow, cache.window)
    cache, seen = cache.append(heads.key, heads.value, queries)
    finite = seen is cache and all(mask is None for mask in heads.masks)
    key = seen.key
    if not cache.rotated:
        key = rotated(layer.rotate, 1, key, seen.positions)
    heads = heads._replace(
        key=key,
        value=seen.value,
        positions=Positions(queries, seen.positions),
        masks=(rule(seen), *heads.masks),
        causal=False,
        finite=finite,  # a cache hides nothing but zeros
    )
    return heads, cache


def mask_of(heads):
    """What the masks of heads let see together."""
    shape = *heads.query.shape[:-1], heads.key.shape[-2]
    return all_of([for_heads(mask, shape) for mask in heads.masks])


def chosen(layer, x, heads, cache):
    """The keys that each query reads, as the layer's indexer selects them, and the cache with its keys."""
    key = layer.indexer.keys(x, heads.positions.query)
    if cache is not None:
        index = cache.index.append(key, heads.positions.query)
        cache, key = (
            replace(cache, index=index),
            index.latent[..., : heads.key.shape[-2], :],
        )
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


def latent_parts(layer, x, query_positions, widths):
    """Queries in two parts, what is kept of tokens, where they stand, and what indexer and gate read."""
    contract.floating("x", x, like=layer.query_weight, owner="the weights")
    narrow = wide = x
    if layer.query_down_weight is not None:
        raw = x @ layer.query_down_weight
        narrow = normed(raw, layer.query_norm_weight, layer.eps)
        wide = jnp.concatenate([narrow, raw], axis=-1) if layer.raw else narrow
    query = split_heads(wide @ layer.query_weight, layer.num_heads)
    positions = positions_of(query, query, query_positions, query_positions)
    query = grown(query, layer.temperature, positions.query)
    content, rotation = jnp.split(query, [widths.content], axis=-1)
    kept = [x[..., :0]]
    if layer.kv_down_weight is not None:
        latent, key = jnp.split(x @ layer.kv_down_weight, [widths.rank], axis=-1)
        latent = normed(latent, layer.kv_norm_weight, layer.eps)
        key = rotated(layer.rotate, 1, key[..., None, :, :], positions.key)
        kept = [latent, key[..., 0, :, :]]
    if layer.indexer is not None:
        kept.append(layer.indexer.keys(x, positions.key))
    kept = jnp.concatenate(kept, axis=-1)
    rotation = rotated(layer.rotate, 0, rotation, positions.query)
    return content, rotation, kept, positions, narrow, wide if layer.raw else x
