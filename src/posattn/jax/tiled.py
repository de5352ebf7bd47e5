"""Attention whose memory grows with the length, not with its square: some queries and keys at a time.

A softmax over tiles of keys keeps the largest score so far and rescales what it has summed when a larger
one comes; the backward pass computes the scores of each tile again.
Where weights of all keys are needed at once, the definition is computed for some queries at a time.
"""

import math
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from posattn import contract
from posattn.jax import attention

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


def is_array(part):
    """Whether a mask or a part of a bias holds a number for each pair, rather than computing it."""
    return not (callable(part) or hasattr(part, "scores"))


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


def _cut(x, place):
    """The part of `x` at a place: from where on, and how many, along some axes."""
    for axis, (start, size) in place.items():
        x = lax.dynamic_slice_in_dim(x, start, size, axis)
    return x


def _put(x, part, place):
    """Put something at a place of `x`."""
    start = [0] * x.ndim
    for axis, (first, _) in place.items():
        start[axis] = first
    return lax.dynamic_update_slice(x, part.astype(x.dtype), start)


def _pair_place(x, row, column):
    """Where the tile of a mask or of a bias lies, which queries may share."""
    return {-1: column} if x.shape[-2] == 1 else {-2: row, -1: column}


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
        return _cut(query_positions, {-1: place(i)}), key_positions

    def seen(i):
        row = place(i)
        cut = [m if callable(m) else _cut(m, _pair_place(m, row, (0, n_k))) for m in masks]
        if causal:
            cut.append(_past(row, (0, n_k), n_q, n_k))
        return attention.all_of(cut, at(i), (*query.shape[:-2], rows, n_k))

    if masks:

        def attended(i):
            return jnp.any(seen(i), axis=-2, keepdims=True)

        by_anybody = lax.fori_loop(1, blocks, lambda i, x: x | attended(i), attended(0))
        key, value = (attention.zero_unattended(x, by_anybody) for x in (key, value))

    @jax.checkpoint
    def block(i):
        row = place(i)
        bias = [_cut(p, _pair_place(p, row, (0, n_k))) if is_array(p) else p for p in parts]
        drawn = None if rng is None else jax.random.fold_in(rng, i)
        q = _cut(query, {-2: row})
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
    given, forward, backward = passes(*arguments)
    return attention_of(alike(given), forward, backward)


class Given(NamedTuple):
    """What attention is computed from, a tile of it, where that lies, or its gradients."""

    query: Any
    key: Any
    value: Any
    query_positions: Any
    key_positions: Any
    masks: tuple
    biases: tuple
    enclosed: tuple = ((), ())  # what functions among the masks and the biases enclose


def passes(query, key, value, masks, parts, where, causal, scale, sizes):
    """What attention is computed from, and two functions that visit its tiles, forward and backward.

    Each goes on with what is known from other keys, so that these may come in several parts.
    """
    n_q, n_k = query.shape[-2], key.shape[-2]
    rows, columns = sizes
    wide = _wide(query)

    def query_tile(i):
        return jnp.minimum(i * rows, n_q - rows), rows

    def key_tile(j):
        return jnp.minimum(j * columns, n_k - columns), columns

    def places(given, row, column):
        """Where the tile lies."""
        tokens = {-2: row}, {-2: column}, {-2: column}, {-1: row}, {-1: column}
        masks, biases = (
            tuple(_pair_place(x, row, column) for x in xs)
            for xs in (given.masks, given.biases)
        )
        return Given(*tokens, masks, biases, jax.tree.map(lambda _: {}, given.enclosed))

    def tile_of(given, row, column, seen=None):
        """A tile, and zeros for keys that its queries do not see: there may be NaN in them."""
        tile = jax.tree.map(_cut, given, places(given, row, column))
        query, key, value = (x.astype(wide) for x in tile[:3])
        if masks and seen is not None:
            key, value = (attention.zero_unattended(x, seen) for x in (key, value))
        return tile._replace(query=query, key=key, value=value)

    def see(tile):
        every, where = _filled(masks, tile.masks), tile[3:5]
        return attention.all_of(every, where, (*query.shape[:-2], rows, columns))

    def score(tile):
        every, where = _filled(parts, tile.biases), tile[3:5]
        return attention.score(tile.query, tile.key, every, where, scale)

    arrays = (tuple(filter(is_array, xs)) for xs in (masks, parts))
    given = Given(query, key, value, *map(jnp.asarray, where), *arrays)
    first = tile_of(given, (0, rows), (0, columns))
    see, of_masks = _opened(see, first, 0)
    score, of_biases = _opened(score, first, 1)

    def each_tile(given, i, step, state):
        """Take each tile of keys that queries may attend to, with what they see there."""
        row = query_tile(i)

        def tile(j, state):
            column = key_tile(j)
            seen = [_past(row, column, n_q, n_k)] if causal else []
            if n_q % rows:  # the last tile begins earlier, so that it is whole
                seen.append((row[0] + jnp.arange(rows) >= i * rows)[:, None])
            if n_k % columns:
                seen.append(column[0] + jnp.arange(columns) >= j * columns)
            if masks:
                seen.append(see(tile_of(given, row, column)))
            seen = reduce(jnp.logical_and, seen) if seen else None
            visit = partial(step, row, column, seen)
            if not masks:
                return visit(state)
            return lax.cond(jnp.any(seen), visit, lambda state: state, state)

        last = jnp.clip(row[0] + rows + n_k - n_q, 0, n_k) if causal else n_k
        return lax.fori_loop(0, (last + columns - 1) // columns, tile, state)

    def forward(given, state):
        """Go on with the largest score of each query, and sums of exponentials and of values."""

        def step(row, column, seen, state):
            tile = tile_of(given, row, column, seen)
            peak, total, mixed = state
            s = _hidden(score(tile), seen)
            top = jnp.maximum(peak, s.max(-1, keepdims=True))
            e, shrink = jnp.exp(s - top), jnp.exp(peak - top)
            mixed = mixed * shrink + attention.by_head(e, tile.value)
            return top, total * shrink + e.sum(-1, keepdims=True), mixed

        def block(i, state):
            here = {-2: query_tile(i)}
            found = each_tile(given, i, step, tuple(_cut(x, here) for x in state))
            return tuple(_put(x, y, here) for x, y in zip(state, found, strict=True))

        return lax.fori_loop(0, -(-n_q // rows), block, state)

    def backward(given, known, sums):
        """Go on with sums of gradients, from `(d_out, log_total, mean)` of each query."""

        def block(i, sums):
            d, log_total, mean = (_cut(x, {-2: query_tile(i)}) for x in known)
            d = d.astype(wide)

            def step(row, column, seen, sums):
                tile = tile_of(given, row, column, seen)
                s, pull_back = jax.vjp(score, tile)
                weights = jnp.exp(_hidden(s, seen) - log_total)
                by_head = jax.vjp(attention.by_head, weights, tile.value)[1]
                d_weights, d_value = by_head(d)
                (found,) = pull_back(weights * (d_weights - mean))
                found, place = found._replace(value=d_value), places(given, row, column)
                return _each(
                    lambda x, y, at: _put(x, _cut(x, at) + y, at), sums, found, place
                )

            return each_tile(given, i, step, sums)

        return lax.fori_loop(0, -(-n_q // rows), block, sums)

    return given._replace(enclosed=(of_masks, of_biases)), forward, backward


def attention_of(given, forward, backward):
    """Attention, from a pass over all tiles, and its gradients, from another one."""
    wide = _wide(given.query)
    zeros = partial(jnp.zeros_like, dtype=wide)

    def attended(given):
        query, value = given.query, given.value
        one = *query.shape[:-1], 1
        peak = jnp.full_like(query, jnp.finfo(wide).min, wide, one)
        mixed = zeros(query, shape=(*query.shape[:-1], value.shape[-1]))
        peak, total, mixed = forward(given, (peak, zeros(query, shape=one), mixed))
        total = jnp.where(total == 0, 1, total)
        return (mixed / total).astype(query.dtype), peak + jnp.log(total)

    @jax.custom_vjp
    def run(given):
        return attended(given)[0]

    def run_forward(given):
        out, log_total = attended(given)
        return out, (given, out, log_total)

    def run_backward(saved, d_out):
        given, out, log_total = saved
        mean = jnp.sum(d_out.astype(wide) * out.astype(wide), -1, keepdims=True)
        sums = jax.tree.map(
            lambda x: zeros(x) if jnp.issubdtype(x.dtype, jnp.floating) else None, given
        )
        sums = backward(given, (d_out, log_total, mean), sums)
        return (_each(lambda x, y: x.astype(y.dtype), sums, given),)

    run.defvjp(run_forward, run_backward)
    return run(given)


def alike(given):
    """Count each array as different on the devices of `jax.shard_map` where any of them is."""
    varying = sum(jnp.zeros_like(x, int, shape=()) for x in jax.tree.leaves(given))
    return jax.tree.map(lambda x: x + varying.astype(x.dtype), given)


def _each(function, sums, *others):
    """Apply a function to each sum that there is, and to what belongs to it."""

    def one(x, *xs):
        return None if x is None else function(x, *xs)

    return jax.tree.map(one, sums, *others, is_leaf=lambda x: x is None)


def _opened(function, tile, which):
    """A function of a tile that encloses nothing, and what it finds in the tile instead."""
    traced = jax.make_jaxpr(function)(tile)

    def run(tile):
        leaves = jax.tree.leaves(tile._replace(enclosed=((), ())))
        (result,) = jax.core.eval_jaxpr(traced.jaxpr, tile.enclosed[which], *leaves)
        return result

    return run, tuple(traced.consts)


def _filled(plugged, arrays):
    """What is plugged in, with the tiles of its arrays."""
    tiles = iter(arrays)
    return [next(tiles) if is_array(x) else x for x in plugged]


def _hidden(scores, seen):
    return scores if seen is None else jnp.where(seen, scores, -jnp.inf)


def _wide(query):
    return jnp.promote_types(query.dtype, jnp.float32)


def _past(row, column, n_q, n_k):
    """Which keys of a tile do not stand after its queries."""
    at_query = row[0] + jnp.arange(row[1])[:, None] + (n_k - n_q)
    return column[0] + jnp.arange(column[1]) <= at_query
