"""Attention whose memory grows with the length, not with its square: some queries and keys at a time.

Where weights of all keys are needed at once, the definition is computed for some queries at a time.
"""

import math
from dataclasses import replace
from functools import partial
from itertools import filterfalse

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from posattn import contract
from posattn.jax.attention import definition
from posattn.jax.attention.call import Positions
from posattn.jax.attention.masks import all_of, of_pairs, parts_of, zero_unattended
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


def at_once(call):
    """Whether all pairs of queries and keys may be held at once, or must be: where sizes are open.

    So are positions that JAX does not hold exactly: NumPy's, of 64 bits.
    """
    sizes = *call.query.shape[:-1], call.key.shape[-2]
    if any(map(contract.is_symbolic, sizes)) or sizes[-2] * sizes[-1] <= SMALL:
        return True
    known = (p for p in call.positions if isinstance(p, np.ndarray))
    return any((p.astype(jax.dtypes.canonicalize_dtype(p.dtype)) != p).any() for p in known)


def attend(call):
    """Attention with memory that grows with the length."""
    check(call)
    thinned = call.rng is not None and call.dropout_rate > 0
    if not thinned:
        call = replace(call, rng=None)
    by_rows = thinned or any(map(needs_all_keys, call.biases))
    sizes = sizes_of(call.query, call.key, by_rows)
    run = _rows if by_rows else _tiles
    plugged = call.mask, call.biases
    if all(isinstance(leaf, Array | np.ndarray) for leaf in jax.tree.leaves(plugged)):
        return run(call, sizes=sizes)
    mask, parts = plugged  # functions that JAX cannot compare

    def once(call):
        return run.__wrapped__(replace(call, mask=mask, biases=parts), sizes=sizes)

    return jax.jit(once)(replace(call, mask=None, biases=[]))


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


def check(call):
    """Reject masks and biases that do not fit, as the definition does, by one query and by one key."""
    shape = *call.query.shape[:-1], call.key.shape[-2]
    masks = parts_of(call.mask)
    for mask in filter(is_array, masks):
        contract.mask(mask, shape)
    for part in filter(is_array, call.biases):
        contract.bias(part, shape)
    mask = all_of(filterfalse(is_array, masks))
    parts = list(filterfalse(is_array, call.biases))
    for rows, columns in [(slice(1), slice(None)), (slice(None), slice(1))]:
        q, k = call.query[..., rows, :], call.key[..., columns, :]
        query_positions, key_positions = call.positions
        at = Positions(query_positions[..., rows], key_positions[..., columns])
        shape = *q.shape[:-1], k.shape[-2]
        few = replace(call, biases=parts, positions=at)
        jax.eval_shape(lambda at, shape=shape: of_pairs(mask, at, shape), at)
        jax.eval_shape(
            lambda q, k, few=few: definition.score(replace(few, query=q, key=k)), q, k
        )


@partial(jax.jit, static_argnames="sizes")
def _rows(call, *, sizes):
    """The definition, for some queries and all keys at a time."""
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    rows, _ = sizes
    blocks = -(-n_q // rows)
    query_positions, key_positions = map(jnp.asarray, call.positions)

    def place(i):
        return jnp.minimum(i * rows, n_q - rows), rows

    def at(i):
        return Positions(cut(query_positions, {-1: place(i)}), key_positions)

    def cut_rows(x, row):
        return cut(x, pair_place(x, row, (0, n_k))) if is_array(x) else x

    def seen(i):
        row = place(i)
        tiles = [cut_rows(mask, row) for mask in parts_of(call.mask)]
        if call.causal:
            tiles.append(past(row, (0, n_k), n_q, n_k))
        return of_pairs(all_of(tiles), at(i), (*call.query.shape[:-2], rows, n_k))

    def attended(i):
        return jnp.any(seen(i), axis=-2, keepdims=True)

    key, value = call.key, call.value
    if call.mask is not None and not call.finite:
        by_anybody = lax.fori_loop(1, blocks, lambda i, x: x | attended(i), attended(0))
        key, value = (zero_unattended(x, by_anybody) for x in (key, value))

    @jax.checkpoint
    def block(i):
        row = place(i)
        some = replace(
            call,
            query=cut(call.query, {-2: row}),
            key=key,
            value=value,
            mask=seen(i),
            biases=[cut_rows(part, row) for part in call.biases],
            positions=at(i),
            rng=None if call.rng is None else jax.random.fold_in(call.rng, i),
            causal=False,
            finite=True,
        )
        return definition.attend(some)

    blocks = lax.map(block, jnp.arange(blocks))
    out = jnp.moveaxis(blocks, 0, -3).reshape(*call.query.shape[:-2], -1, blocks.shape[-1])
    whole = n_q - n_q % rows  # the last block begins earlier, so that it is whole
    return jnp.concatenate(
        [out[..., :whole, :], out[..., out.shape[-2] - n_q % rows :, :]], -2
    )


@partial(jax.jit, static_argnames="sizes")
def _tiles(call, *, sizes):
    """A softmax over tiles of keys, for a tile of queries after the other."""
    return attention_of(*passes(call, sizes))
