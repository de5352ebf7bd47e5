"""Attention whose memory grows with the length, not with its square: some queries and keys at a time.

A softmax over tiles of keys keeps the largest score so far and rescales what it has summed when a larger
one comes; the backward pass computes the scores of each tile again.
Where weights of all keys are needed at once, the definition is computed for some queries at a time.
"""

import math
from functools import partial

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


def attend(query, key, value, mask, causal, bias, where, scale, dropout_rate, rng):
    """Attention, from what is checked, with memory that grows with the length."""
    parts = attention.biases(bias)
    _check(query, key, parts, where)
    rate = contract.dropout_rate(dropout_rate)
    contract.rng(rng, rng is None or attention.is_key(rng), "JAX key")
    by_rows = (rng is not None and rate > 0) or any(map(_needs_all_keys, parts))
    scale = None if scale is None else contract.scale(scale)
    options = {"causal": causal, "scale": scale, "rate": rate}
    options["sizes"] = _sizes(query, key, by_rows)
    run = _rows if by_rows else _tiles
    if all(isinstance(leaf, Array | np.ndarray) for leaf in jax.tree.leaves(parts)):
        return run(query, key, value, mask, parts, where, rng, **options)
    plugged = partial(run.__wrapped__, **options)  # of functions that JAX cannot compare

    def once(query, key, value, mask, where, rng):
        return plugged(query, key, value, mask, parts, where, rng)

    return jax.jit(once)(query, key, value, mask, where, rng)


def _is_array(part):
    return not (callable(part) or hasattr(part, "scores"))


def _needs_all_keys(part):
    """Whether a bias reads other keys than those of its tile: if it does not say, it may."""
    content = hasattr(part, "scores")
    return content and (getattr(part, "needs_all_keys", True) or hasattr(part, "values"))


def _sizes(query, key, by_rows):
    """How many queries and keys make a tile."""
    *batch, n_q, _ = query.shape
    n_k = key.shape[-2]
    many = max(math.prod(batch), 1)
    if by_rows:
        return min(n_q, max(TILE // (many * n_k), 1)), n_k
    side = max(min(SIDE, math.isqrt(TILE // many)), 16)
    return min(n_q, side), min(n_k, side)


def _check(query, key, parts, where):
    """Reject biases that do not fit, as the definition does, by one query and by one key."""
    for rows, columns in [(slice(1), slice(None)), (slice(None), slice(1))]:
        for part in parts:
            if _is_array(part):
                contract.bias(part, (*query.shape[:-1], key.shape[-2]))
                continue
            q, k = query[..., rows, :], key[..., columns, :]
            at = where[0][..., rows], where[1][..., columns]
            jax.eval_shape(partial(attention.score, bias=part, where=at, scale=1.0), q, k)


def _cut(x, place):
    """The part of `x` at a place: from where on, and how many, along some axes."""
    for axis, (start, size) in place.items():
        x = lax.dynamic_slice_in_dim(x, start, size, axis)
    return x


def _add(x, part, place):
    """Add to the part of `x` at a place."""
    start = [0] * x.ndim
    for axis, (first, _) in place.items():
        start[axis] = first
    return lax.dynamic_update_slice(x, _cut(x, place) + part.astype(x.dtype), start)


def _pair_place(x, row, column):
    """Where the tile of a mask or of a bias lies, which queries may share."""
    return {-1: column} if x.shape[-2] == 1 else {-2: row, -1: column}


_STATIC = ("causal", "scale", "rate", "sizes")


@partial(jax.jit, static_argnames=_STATIC)
def _rows(query, key, value, mask, parts, where, rng, *, causal, scale, rate, sizes):
    """The definition, for some queries and all keys at a time."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    rows, _ = sizes
    key, value = _attended(key, value, mask, causal, n_q)

    @jax.checkpoint
    def block(i):
        row = jnp.minimum(i * rows, n_q - rows), rows
        seen = _seen(mask, causal, row, (0, n_k), n_q, n_k)
        bias = [
            _cut(p, _pair_place(p, row, (0, n_k))) if _is_array(p) else p for p in parts
        ]
        q, at = _cut(query, {-2: row}), (_cut(jnp.asarray(where[0]), {-1: row}), where[1])
        drawn = None if rng is None else jax.random.fold_in(rng, i)
        return attention.mix(q, key, value, seen, bias, at, scale, rate, drawn)

    blocks = lax.map(block, jnp.arange(-(-n_q // rows)))
    out = jnp.moveaxis(blocks, 0, -3).reshape(*query.shape[:-2], -1, blocks.shape[-1])
    whole = n_q - n_q % rows  # the last block begins earlier, so that it is whole
    return jnp.concatenate(
        [out[..., :whole, :], out[..., out.shape[-2] - n_q % rows :, :]], -2
    )


@partial(jax.jit, static_argnames=_STATIC)
def _tiles(query, key, value, mask, parts, where, rng, *, causal, scale, rate, sizes):
    """A softmax over tiles of keys, for a tile of queries after the other."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    rows, columns = sizes
    wide = jnp.promote_types(query.dtype, jnp.float32)
    low = jnp.finfo(wide).min
    key, value = _attended(key, value, mask, causal, n_q)
    arrays = [part for part in parts if _is_array(part)]

    def score(q, k, query_positions, key_positions, *tiles):
        tile = iter(tiles)
        bias = [next(tile) if _is_array(part) else part for part in parts]
        return attention.score(q, k, bias, (query_positions, key_positions), scale)

    def places(row, column):
        """Where the arguments of `score` lie in those of the whole."""
        tokens = {-2: row}, {-2: column}, {-1: row}, {-1: column}
        return *tokens, *(_pair_place(x, row, column) for x in arrays)

    def of_tile(whole, row, column):
        tile = map(_cut, whole, places(row, column))
        return next(tile).astype(wide), next(tile).astype(wide), *tile

    whole = query, key, *map(jnp.asarray, where), *arrays
    traced = jax.make_jaxpr(score)(*of_tile(whole, (0, rows), (0, columns)))

    def scores(*arguments):
        inside, tile = arguments[: len(traced.consts)], arguments[len(traced.consts) :]
        (result,) = jax.core.eval_jaxpr(traced.jaxpr, inside, *tile)
        return result

    def query_tile(i):
        return jnp.minimum(i * rows, n_q - rows), rows

    def key_tile(j):
        return jnp.minimum(j * columns, n_k - columns), columns

    def last_tile(row):
        """How many tiles of keys a tile of queries may attend to."""
        seen = jnp.clip(row[0] + rows + n_k - n_q, 0, n_k) if causal else n_k
        return (seen + columns - 1) // columns

    def each_tile(i, mask, step, state):
        """Take each tile of keys that queries may attend to, with what they see there."""
        row = query_tile(i)

        def tile(j, state):
            column = key_tile(j)
            seen = _seen(mask, causal, row, column, n_q, n_k)
            if n_k % columns:  # the last tile begins earlier, so that it is whole
                fresh = column[0] + jnp.arange(columns) >= j * columns
                seen = fresh if seen is None else seen & fresh
            if mask is None:
                return step(seen, column, state)
            return lax.cond(
                jnp.any(seen), partial(step, seen, column), lambda state: state, state
            )

        return lax.fori_loop(0, last_tile(row), tile, state)

    def forward(whole, value, mask, inside):
        batch = query.shape[:-2]

        def block(i, carry):
            row = query_tile(i)

            def step(seen, column, state):
                peak, total, mixed = state
                s = scores(*inside, *of_tile(whole, row, column))
                s = s if seen is None else jnp.where(seen, s, -jnp.inf)
                top = jnp.maximum(peak, s.max(-1, keepdims=True))
                e, shrink = jnp.exp(s - top), jnp.exp(peak - top)
                v = _cut(value, {-2: column}).astype(wide)
                mixed = mixed * shrink + attention.by_head(e, v)
                return top, total * shrink + e.sum(-1, keepdims=True), mixed

            one, width = (*batch, rows, 1), (*batch, rows, value.shape[-1])
            state = jnp.full(one, low, wide), jnp.zeros(one, wide), jnp.zeros(width, wide)
            peak, total, mixed = each_tile(i, mask, step, state)
            total = jnp.where(total == 0, 1, total)
            found = mixed / total, peak + jnp.log(total)
            return tuple(
                lax.dynamic_update_slice_in_dim(x, y.astype(x.dtype), row[0], x.ndim - 2)
                for x, y in zip(carry, found, strict=True)
            )

        out = jnp.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
        log_total = jnp.zeros((*query.shape[:-1], 1), wide)
        return lax.fori_loop(0, -(-n_q // rows), block, (out, log_total))

    def backward(saved, d_out):
        whole, value, mask, inside, out, log_total = saved
        given = *inside, *whole
        moving = [jnp.issubdtype(x.dtype, jnp.floating) for x in given]
        along = jnp.sum(d_out.astype(wide) * out.astype(wide), -1, keepdims=True)

        def block(i, sums):
            row = query_tile(i)
            here = {-2: row}
            d, total, mean = (_cut(x, here) for x in (d_out, log_total, along))
            if n_q % rows:
                again = (row[0] + jnp.arange(rows) < i * rows)[:, None]
                total = jnp.where(again, jnp.inf, total)  # weights of 0: it was counted
            d = d.astype(wide)

            def step(seen, column, sums):
                tile = *inside, *of_tile(whole, row, column)
                s, pull_back = jax.vjp(scores, *tile)
                s = s if seen is None else jnp.where(seen, s, -jnp.inf)
                weights, v = jnp.exp(s - total), _cut(value, {-2: column}).astype(wide)
                d_weights, d_value = jax.vjp(attention.by_head, weights, v)[1](d)
                found = pull_back(weights * (d_weights - mean))
                at = *({} for _ in inside), *places(row, column)
                added = [
                    _add(x, y, place) if moves else x
                    for x, y, place, moves in zip(sums[:-1], found, at, moving, strict=True)
                ]
                return *added, _add(sums[-1], d_value, {-2: column})

            return each_tile(i, mask, step, sums)

        sums = (
            *(
                jnp.zeros(x.shape if moves else (), wide)
                for x, moves in zip(given, moving, strict=True)
            ),
            jnp.zeros(value.shape, wide),
        )
        sums = lax.fori_loop(0, -(-n_q // rows), block, sums)
        *found, d_value = (
            x.astype(y.dtype) if moves else None
            for x, y, moves in zip(sums, (*given, value), (*moving, True), strict=True)
        )
        return tuple(found[len(inside) :]), d_value, None, tuple(found[: len(inside)])

    @jax.custom_vjp
    def run(whole, value, mask, inside):
        return forward(whole, value, mask, inside)[0]

    def run_forward(whole, value, mask, inside):
        out, log_total = forward(whole, value, mask, inside)
        return out, (whole, value, mask, inside, out, log_total)

    run.defvjp(run_forward, backward)
    return run(whole, value, mask, tuple(traced.consts))


def _attended(key, value, mask, causal, n_q):
    """Keys and values, zeros where no query may attend to them."""
    if mask is None:
        return key, value
    seen = _seen(mask, causal, (0, n_q), (0, key.shape[-2]), n_q, key.shape[-2])
    return attention.zero_unattended(key, seen), attention.zero_unattended(value, seen)


def _seen(mask, causal, row, column, n_q, n_k):
    """The tile of a mask, without the future if `causal`."""
    seen = None if mask is None else _cut(mask, _pair_place(mask, row, column))
    if causal:
        at_query = row[0] + jnp.arange(row[1])[:, None] + (n_k - n_q)
        past = column[0] + jnp.arange(column[1]) <= at_query
        seen = past if seen is None else seen & past
    return seen
