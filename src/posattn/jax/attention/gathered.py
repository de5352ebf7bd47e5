"""Attention to selected keys: they are gathered for some queries at a time, and again for their gradients."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from posattn.jax.attention.definition import normalised
from posattn.jax.attention.masks import of_pairs

__all__ = []

# by which factor what is selected must be fewer, and of how many keys: below, all at once are faster
FEWER, LONG = 4, 2**13
HELD = 2**20  # numbers of keys that are gathered together


def suits(call):
    """Whether a call selects few keys of many, and nothing else happens to its scores."""
    n_k, count = call.key.shape[-2], call.select.shape[-1]
    plain = not call.biases and call.soft_cap is None and call.rng is None
    return plain and count > 0 and count * FEWER <= n_k >= LONG


def attend(call):
    """Attention, some queries at a time."""
    query, n_k, select = call.query, call.key.shape[-2], jnp.asarray(call.select)
    mask = of_pairs(call.mask, call.positions, (*query.shape[:-1], n_k))
    held = HELD // (select.shape[-1] * query.shape[-1])
    rows = max(1, min(query.shape[-2], held))
    return _gathered(replace(call, mask=None, select=select), mask, rows=rows)


@partial(jax.jit, static_argnames="rows")  # else a call would compile its loops again
def _gathered(call, mask, *, rows):
    """The same with an array for a mask, and so many queries."""
    query, key, value, select = call.query, call.key, call.value, call.select
    if query.ndim == 2:
        query, key, value = query[None], key[None], value[None]
    select = select if select.ndim == query.ndim else select[..., None, :, :]
    *batch, heads, n_q, _ = query.shape
    n_k, count = key.shape[-2], select.shape[-1]
    parts = max(key.shape[-3], select.shape[-3])
    groups, seen = (*batch, parts, heads // parts), _once(select, n_k)
    if call.causal:
        seen = seen & (select <= jnp.arange(n_k - n_q, n_k)[:, None])
    select = jnp.clip(select, 0, n_k - 1)
    seen, select = (_of_parts(x, (*batch, parts, n_q, count)) for x in (seen, select))
    seen = seen[..., None, :, :]
    if mask is not None:
        mask = jnp.broadcast_to(mask, (*query.shape[:-1], n_k)).reshape(*groups, n_q, n_k)
        seen = seen & jnp.take_along_axis(mask, select[..., None, :, :], axis=-1)

    def cut(x, *lead):
        """Blocks of rows, the last with rows that see nothing, of each example and part."""
        x = x.reshape(-1, *lead, n_q, x.shape[-1])
        ends = [(0, 0)] * (x.ndim - 2) + [(0, -n_q % rows), (0, 0)]
        x = jnp.pad(x, ends).reshape(len(x), *lead, -1, rows, x.shape[-1])
        return jnp.moveaxis(x, -3, 1)

    @jax.checkpoint
    def block(key, value, sinks, query, places, seen):
        """The output of some queries, which nothing reaches that they may not attend to."""
        wide, some = jnp.promote_types(query.dtype, jnp.float32), seen.any(0)[..., None]
        key, value = (jnp.where(some, x[places], 0).astype(wide) for x in (key, value))
        scores = jnp.einsum("hrd,rkd->hrk", query.astype(wide), key) * call.scale
        return jnp.einsum("hrk,rkd->hrd", normalised(scores, seen, sinks), value)

    def example(given):
        return lax.map(lambda some: block(*given[:3], *some), given[3:])

    own = [_of_parts(x, (*batch, parts, *x.shape[-2:])) for x in (key, value)]
    own = [x.reshape(-1, *x.shape[-2:]) for x in own]
    sinks = call.sinks
    if sinks is not None:
        sinks = jnp.broadcast_to(sinks.reshape(groups[-2:]), groups).reshape(-1, groups[-1])
    blocks = cut(query, groups[-1]), cut(select), cut(seen, seen.shape[-3])
    out = jnp.moveaxis(lax.map(example, (*own, sinks, *blocks)), 1, -3)
    out = out.reshape(*batch, heads, -1, value.shape[-1])[..., :n_q, :].astype(query.dtype)
    return out.reshape(*call.query.shape[:-1], -1)


def _of_parts(x, shape):
    """An array of each part, whose heads may serve several."""
    x = jnp.repeat(x, shape[-3] // x.shape[-3], axis=-3)
    return jnp.broadcast_to(x, shape)


def _once(select, n_k):
    """Which entries are keys that have not come before in their row."""
    before, after = select[..., :-1], select[..., 1:]

    def by_order():
        order = jnp.argsort(select, axis=-1)
        ordered = jnp.take_along_axis(select, order, axis=-1)
        fresh = ordered[..., 1:] != ordered[..., :-1]
        first = jnp.pad(
            fresh, [(0, 0)] * (select.ndim - 1) + [(1, 0)], constant_values=True
        )
        return jnp.put_along_axis(jnp.zeros_like(first), order, first, -1, inplace=False)

    rises = jnp.all((after > before) & (before >= 0) | (after < 0))  # as of `select_keys`
    once = lax.cond(rises, lambda: jnp.ones(select.shape, bool), by_order)
    return once & (select >= 0) & (select < n_k)
