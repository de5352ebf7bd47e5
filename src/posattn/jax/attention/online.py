"""A softmax over tiles of keys, which keeps the largest score so far and rescales what it has summed.

Two passes visit the tiles, forward and backward; the second computes the scores of each tile again.
"""

from dataclasses import replace
from functools import partial, reduce
from itertools import compress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from posattn import contract
from posattn.jax.attention import definition
from posattn.jax.attention.call import Positions
from posattn.jax.attention.masks import all_of, of_pairs, parts_of, zero_unattended

__all__ = []


class Given(NamedTuple):
    """What attention is computed from, a tile of it, where that lies, or its gradients."""

    query: Any
    key: Any
    value: Any
    query_positions: Any
    key_positions: Any
    masks: tuple
    biases: tuple
    sinks: Any = None
    enclosed: tuple = ((), ())  # what functions among the masks and the biases enclose


def passes(call, sizes):
    """What attention is computed from, and two functions that visit its tiles, forward and backward.

    Each goes on with what is known from other keys, so that these may come in several parts.
    """
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    rows, columns = sizes
    wide = _wide(call.query)
    positions = Positions(*map(jnp.asarray, call.positions))
    call = _alike(replace(call, positions=positions))
    query, masks, parts = call.query, parts_of(call.mask), call.biases

    def query_tile(i):
        """Where queries lie; the last tile begins earlier, so that it is whole."""
        return jnp.minimum(i * rows, n_q - rows), rows

    def key_tile(j):
        return jnp.minimum(j * columns, n_k - columns), columns

    def places(given, row, column):
        """Where the tile lies."""
        tokens = {-2: row}, {-2: column}, {-2: column}, {-1: row}, {-1: column}
        masks, biases = (
            tuple(pair_place(x, row, column) for x in xs)
            for xs in (given.masks, given.biases)
        )
        whole = jax.tree.map(lambda _: {}, (given.sinks, given.enclosed))
        return Given(*tokens, masks, biases, *whole)

    def tile_of(given, row, column, seen=None):
        """A tile, and zeros for keys that its queries do not see: there may be NaN in them."""
        tile = jax.tree.map(cut, given, places(given, row, column))
        query, key, value = (x.astype(wide) for x in tile[:3])
        if masks and seen is not None:
            key, value = (zero_unattended(x, seen) for x in (key, value))
        return tile._replace(query=query, key=key, value=value)

    def see(tile):
        mask = all_of(_filled(masks, tile.masks))
        positions = tile.query_positions, tile.key_positions
        return of_pairs(mask, positions, (*query.shape[:-2], rows, columns))

    def score(tile):
        positions = Positions(tile.query_positions, tile.key_positions)
        every = _filled(parts, tile.biases)
        return definition.score(
            replace(call, query=tile.query, key=tile.key, positions=positions, biases=every)
        )

    arrays = (tuple(filter(is_array, xs)) for xs in (masks, parts))
    given = Given(query, call.key, call.value, *call.positions, *arrays, call.sinks)
    first = tile_of(given, (0, rows), (0, columns))
    see, of_masks = _opened(see, first, 0)
    score, of_biases = _opened(score, first, 1)
    for x in filter(_moves, of_biases):
        contract.same_everywhere(jax.typeof(_zero(x)) != jax.typeof(_zero(query)))
    given = given._replace(enclosed=(of_masks, of_biases))

    def each_tile(given, i, step, state):
        """Take each tile of keys that queries may attend to, with what they see there."""
        row = query_tile(i)

        def tile(j, state):
            column = key_tile(j)
            seen = [past(row, column, n_q, n_k)] if call.causal else []
            if n_k % columns:  # the last tile begins earlier, so that it is whole
                seen.append(column[0] + jnp.arange(columns) >= j * columns)
            if n_q % rows:  # what its queries see was counted before, and a sink only once
                seen.append((row[0] + jnp.arange(rows) >= i * rows)[:, None])
            if masks:
                seen.append(see(tile_of(given, row, column)))
            seen = reduce(jnp.logical_and, seen) if seen else None
            visit = partial(step, row, column, seen)
            if not masks:
                return visit(state)
            return lax.cond(jnp.any(seen), visit, lambda state: state, state)

        last = jnp.clip(row[0] + rows + n_k - n_q, 0, n_k) if call.causal else n_k
        return lax.fori_loop(0, (last + columns - 1) // columns, tile, state)

    def forward(given, state):
        """Go on with the largest score of each query, and sums of exponentials and of values."""

        def step(row, column, seen, state):
            tile = tile_of(given, row, column, seen)
            peak, total, mixed = state
            s = _hidden(score(tile), seen)
            top = jnp.maximum(peak, s.max(-1, keepdims=True))
            e, shrink = jnp.exp(s - top), jnp.exp(peak - top)
            mixed = mixed * shrink + definition.by_head(e, tile.value)
            return top, total * shrink + e.sum(-1, keepdims=True), mixed

        def block(i, state):
            here = {-2: query_tile(i)}
            found = each_tile(given, i, step, tuple(cut(x, here) for x in state))
            return tuple(_put(x, y, here) for x, y in zip(state, found, strict=True))

        return lax.fori_loop(0, -(-n_q // rows), block, state)

    def backward(given, known, sums):
        """Go on with sums of gradients, from `(d_out, log_total, mean)` of each query."""

        def block(i, sums):
            d, log_total, mean = (cut(x, {-2: query_tile(i)}) for x in known)
            d = d.astype(wide)

            def step(row, column, seen, sums):
                tile = tile_of(given, row, column, seen)
                s, pull_back = jax.vjp(score, tile)
                weights = jnp.exp(_hidden(s, seen) - log_total)
                d_weights, d_value = jax.vjp(definition.by_head, weights, tile.value)[1](d)
                (found,) = pull_back(weights * (d_weights - mean))
                found, place = found._replace(value=d_value), places(given, row, column)
                return _each(
                    lambda x, y, at: _put(x, cut(x, at) + y, at), sums, found, place
                )

            return each_tile(given, i, step, sums)

        return lax.fori_loop(0, -(-n_q // rows), block, sums)

    return given, forward, backward


def attention_of(given, forward, backward):
    """Attention, from a pass over all tiles, and its gradients, from another one."""
    wide = _wide(given.query)
    zeros = partial(jnp.zeros_like, dtype=wide)

    def spread(sinks):
        return sinks.astype(wide)[..., None, None]

    def attended(given):
        query, value = given.query, given.value
        total = zeros(query[..., :1])  # spread over devices as the queries are
        mixed = jnp.broadcast_to(total, (*query.shape[:-1], value.shape[-1]))
        peak = jnp.full_like(total, jnp.finfo(wide).min)
        if given.sinks is not None:
            peak = jnp.maximum(peak, spread(given.sinks))
            total = jnp.exp(spread(given.sinks) - peak)
        peak, total, mixed = forward(given, (peak, total, mixed))
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
        sums = jax.tree.map(lambda x: zeros(x) if _moves(x) else None, given)
        sums = backward(given, (d_out, log_total, mean), sums)
        if given.sinks is not None:
            level, pull_back = jax.vjp(lambda x: zeros(log_total) + spread(x), given.sinks)
            (slopes,) = pull_back(-jnp.exp(level - log_total) * mean)
            sums = sums._replace(sinks=slopes)
        return (_each(lambda x, y: x.astype(y.dtype), sums, given),)

    run.defvjp(run_forward, run_backward)
    return run(given)


def _zero(tree):
    """A zero that varies over the devices of `jax.shard_map` where something in a tree does."""
    arrays = [x for x in jax.tree.leaves(tree) if isinstance(x, Array | np.ndarray)]
    return sum(jnp.zeros_like(x, int, shape=()) for x in arrays)


def _alike(tree):
    """Let all arrays of a tree vary where one of them does, and their gradients with them."""
    zero = _zero(tree)

    def vary(x):
        return x + zero.astype(x.dtype) if isinstance(x, Array | np.ndarray) else x

    return jax.tree.map(vary, tree)


def _moves(x):
    return jnp.issubdtype(x.dtype, jnp.floating)


def _each(function, sums, *others):
    """Apply a function to each sum that there is, and to what belongs to it."""

    def one(x, *xs):
        return None if x is None else function(x, *xs)

    return jax.tree.map(one, sums, *others, is_leaf=lambda x: x is None)


def _opened(function, tile, which):
    """A function of a tile that finds there what it is traced with, and that."""
    traced = jax.make_jaxpr(function)(tile)
    is_traced = [isinstance(x, jax.core.Tracer) for x in traced.consts]

    def run(tile):
        leaves = jax.tree.leaves(tile._replace(enclosed=((), ())))
        inside = iter(tile.enclosed[which])
        consts = [
            next(inside) if t else x for x, t in zip(traced.consts, is_traced, strict=True)
        ]
        (result,) = jax.core.eval_jaxpr(traced.jaxpr, consts, *leaves)
        return result

    return run, tuple(compress(traced.consts, is_traced))


def _filled(plugged, arrays):
    """What is plugged in, with the tiles of its arrays."""
    tiles = iter(arrays)
    return [next(tiles) if is_array(x) else x for x in plugged]


def _hidden(scores, seen):
    return scores if seen is None else jnp.where(seen, scores, -jnp.inf)


def _wide(query):
    return jnp.promote_types(query.dtype, jnp.float32)


def is_array(part):
    """Whether a mask or a part of a bias holds a number for each pair, rather than computing it."""
    return not (callable(part) or hasattr(part, "scores"))


def cut(x, place):
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


def pair_place(x, row, column):
    """Where the tile of a mask or of a bias lies, which queries may share."""
    return {-1: column} if x.shape[-2] == 1 else {-2: row, -1: column}


def past(row, column, n_q, n_k):
    """Which keys of a tile do not stand after its queries."""
    at_query = row[0] + jnp.arange(row[1])[:, None] + (n_k - n_q)
    return column[0] + jnp.arange(column[1]) <= at_query
