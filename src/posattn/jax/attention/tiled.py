"""Attention whose memory grows with the length, not with its square: some queries and keys at a time.

Where weights of all keys are needed at once, the definition is computed for some queries at a time.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from posattn import contract
from posattn.jax.attention import attention
from posattn.jax.attention.online import (
    attention_of,
    cut,
    is_array,
    pair_place,
    passes,
    past,
)

__all__ = []

SMALL = 2**18  # what has no more pairs of queries and keys is done at once
TILE = 2**20  # scores of a tile, over all examples and heads
SIDE = 512  # queries, and keys, of a tile: larger ones leave a processor's cache


def at_once(query, key, where):
    """Whether all pairs of queries and keys may be held at once, or must be: where sizes are open.

    So are positions that JAX does not hold exactly: NumPy's, of 64 bits.
    """
    sizes = *query.shape[:-1], key.shape[-2]
    if any(map(contract.is_symbolic, sizes)) or sizes[-2] * sizes[-1] <= SMALL:
        return True
    known = (p for p in where if isinstance(p, np.ndarray))
    return any((p.astype(jax.dtypes.canonicalize_dtype(p.dtype)) != p).any() for p in known)


def attend(query, key, value, masks, causal, bias, where, scale, dropout_rate, rng):
    """Attention, from what is checked, with memory that grows with the length."""
    parts = attention.biases(bias)
    check(query, key, masks, parts, where)
    rate = contract.dropout_rate(dropout_rate)
    contract.rng(rng, rng is None or attention.is_key(rng), "JAX key")
    by_rows = (rng is not None and rate > 0) or any(map(needs_all_keys, parts))
    scale = None if scale is None else contract.scale(scale)
    options = {"causal": causal, "scale": scale, "rate": rate}
    options["sizes"] = sizes_of(query, key, by_rows)
    run = _rows if by_rows else _tiles
    plugged = masks, parts
    if all(isinstance(leaf, Array | np.ndarray) for leaf in jax.tree.leaves(plugged)):
        return run(query, key, value, *plugged, where, rng, **options)
    open_run = partial(run.__wrapped__, **options)  # of functions that JAX cannot compare

    def once(query, key, value, where, rng):
        return open_run(query, key, value, *plugged, where, rng)

    return jax.jit(once)(query, key, value, where, rng)


def needs_all_keys(part):
    """Whether a bias reads other keys than those of its tile: if it does not say, it may."""
    content = hasattr(part, "scores")
    return content and (getattr(part, "needs_all_keys", True) or hasattr(part, "values"))


def sizes_of(query, key, by_rows):
    """How many queries and keys make a tile."""
    *batch, n_q, _ = query.shape
    n_k = key.shape[-2]
    many = max(math.prod(batch), 1)
    if by_rows:
        return min(n_q, max(TILE // (many * n_k), 1)), n_k
    side = max(min(SIDE, math.isqrt(TILE // many)), 16)
    return min(n_q, side), min(n_k, side)


def check(query, key, masks, parts, where):
    """Reject masks and biases that do not fit, as the definition does, by one query and by one key."""
    shape = *query.shape[:-1], key.shape[-2]
    for mask in masks:
        if is_array(mask):
            contract.mask(mask, shape)
    for part in parts:
        if is_array(part):
            contract.bias(part, shape)
    masks, parts = ([x for x in given if not is_array(x)] for given in (masks, parts))
    for rows, columns in [(slice(1), slice(None)), (slice(None), slice(1))]:
        q, k = query[..., rows, :], key[..., columns, :]
        at = where[0][..., rows], where[1][..., columns]
        shape = *q.shape[:-1], k.shape[-2]
        jax.eval_shape(lambda at, shape=shape: attention.all_of(masks, at, shape), at)
        jax.eval_shape(partial(attention.score, bias=parts, where=at, scale=1.0), q, k)


_STATIC = ("causal", "scale", "rate", "sizes")


@partial(jax.jit, static_argnames=_STATIC)
def _rows(query, key, value, masks, parts, where, rng, *, causal, scale, rate, sizes):
    """The definition, for some queries and all keys at a time."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    rows, _ = sizes
    blocks = -(-n_q // rows)
    query_positions, key_positions = map(jnp.asarray, where)

    def place(i):
        return jnp.minimum(i * rows, n_q - rows), rows

    def at(i):
        return cut(query_positions, {-1: place(i)}), key_positions

    def seen(i):
        row = place(i)
        tiles = [cut(m, pair_place(m, row, (0, n_k))) if is_array(m) else m for m in masks]
        if causal:
            tiles.append(past(row, (0, n_k), n_q, n_k))
        return attention.all_of(tiles, at(i), (*query.shape[:-2], rows, n_k))

    def attended(i):
        return jnp.any(seen(i), axis=-2, keepdims=True)

    if masks:
        by_anybody = lax.fori_loop(1, blocks, lambda i, x: x | attended(i), attended(0))
        key, value = (attention.zero_unattended(x, by_anybody) for x in (key, value))

    @jax.checkpoint
    def block(i):
        row = place(i)
        bias = [cut(p, pair_place(p, row, (0, n_k))) if is_array(p) else p for p in parts]
        drawn = None if rng is None else jax.random.fold_in(rng, i)
        q = cut(query, {-2: row})
        return attention.mix(q, key, value, seen(i), bias, at(i), scale, rate, drawn)

    blocks = lax.map(block, jnp.arange(blocks))
    out = jnp.moveaxis(blocks, 0, -3).reshape(*query.shape[:-2], -1, blocks.shape[-1])
    whole = n_q - n_q % rows  # the last block begins earlier, so that it is whole
    return jnp.concatenate(
        [out[..., :whole, :], out[..., out.shape[-2] - n_q % rows :, :]], -2
    )


@partial(jax.jit, static_argnames=_STATIC)
def _tiles(query, key, value, masks, parts, where, rng, *, causal, scale, rate, sizes):
    """A softmax over tiles of keys, for a tile of queries after the other."""
    arguments = query, key, value, masks, parts, where, causal, scale, sizes
    return attention_of(*passes(*arguments))
