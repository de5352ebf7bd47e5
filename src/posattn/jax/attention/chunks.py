"""Recurrences in chunks: a state passes through 64 tokens at a time, by products of matrices."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from posattn import contract
from posattn.jax.attention.documents import document_starts

__all__ = []

CHUNK = 64  # a power of 2
SHUT = -1e3  # no dtype tells what such a gate lets through from 0


class Tokens(NamedTuple):
    """What a recurrence reads, with an axis of groups after the heads of keys."""

    query: Array  # (*batch, h_k, 1, n, d_k)
    key: Array
    value: Array  # (*batch, h_k, groups, n, d_v)
    gates: Array  # (*batch, h_k, groups, n, 1 or d_k)
    beta: Array | None  # (*batch, h_k, groups, n, 1)
    mask: Array | None  # (*batch, 1, 1, n, 1)
    starts: Array | None


def recur(sizes, query, key, value, log_gates, beta, state, mask, documents):
    """The outputs and the last state of a recurrence; without `beta`, tokens only add."""
    contract.state(state, sizes.state)
    *batch, _, n, _ = value.shape
    contract.passed(mask, documents, batch, n)
    if log_gates is None:
        log_gates = jnp.zeros(value.shape[:-1], value.dtype)
    if log_gates.ndim < query.ndim:
        log_gates = log_gates[..., None]
    if mask is not None:
        mask = jnp.broadcast_to(mask, (*batch, n))[..., None, None, :, None]
    starts = None
    if documents is not None:
        seen = None if mask is None else mask[..., 0, 0, :, 0]
        starts = document_starts(documents, seen, (*batch, n))[..., None, None, :, None]
    grouped = partial(_grouped, groups=sizes.groups)
    tokens = Tokens(
        query[..., None, :, :],
        key[..., None, :, :],
        grouped(value),
        grouped(log_gates),
        None if beta is None else grouped(beta[..., None]),
        mask,
        starts,
    )
    wide = jnp.promote_types(query.dtype, jnp.float32)
    state = jnp.zeros(sizes.state, wide) if state is None else state.astype(wide)
    output, state = _passed(tokens, grouped(state), sizes.scale)
    return output.reshape(value.shape).astype(query.dtype), state.reshape(sizes.state)


@partial(jax.jit, static_argnums=2)
def _passed(tokens, state, scale):
    """The outputs of all tokens and the last state."""
    n = tokens.value.shape[-2]
    if n == 1:
        state, output = _step(_one, scale, state, tokens)
        return output, state
    step = partial(_step, _chunk, scale)
    state, output = lax.scan(step, state, jax.tree.map(_cut, tokens))
    output = jnp.moveaxis(output, 0, -3)
    return output.reshape(*output.shape[:-3], -1, output.shape[-1])[..., :n, :], state


def _grouped(x, groups):
    """The heads of values, with those that a head of keys serves on an axis of their own."""
    *batch, heads, rows, columns = x.shape
    return x.reshape(*batch, heads // groups, groups, rows, columns)


def _cut(x):
    """The tokens of `(*batch, n, d)` in chunks, `(chunks, *batch, 64, d)`, zeros appended."""
    *batch, n, width = x.shape
    x = jnp.pad(x, [(0, 0)] * len(batch) + [(0, -n % CHUNK), (0, 0)])
    return jnp.moveaxis(x.reshape(*batch, -1, CHUNK, width), -3, 0)


def _step(function, scale, state, tokens):
    """The state after a few tokens and their outputs, in float32 or float64.

    Tokens that are absent are made zeros, so that they change nothing.
    """
    arrays = [None if x is None else x.astype(state.dtype) for x in tokens[:5]]
    arrays[0] = arrays[0] * scale
    arrays[3] = jnp.maximum(arrays[3], SHUT)
    if tokens.mask is not None:
        arrays = [None if x is None else jnp.where(tokens.mask, x, 0) for x in arrays]
    return function(Tokens(*arrays, *tokens[5:]), state)


def _one(tokens, state):
    """The state after a single token and its output, by the recurrence."""
    state = jnp.exp(tokens.gates).mT * state
    written = tokens.value
    if tokens.beta is not None:
        written = tokens.beta * (written - tokens.key @ state)
    state = state + tokens.key.mT * written
    return state, tokens.query @ state


@jax.checkpoint
def _chunk(tokens, state):
    """The state after a chunk and its outputs; the backward pass computes what is between anew.

    What each token writes corrects what the tokens before it have written. That is a triangular
    system, with the state before the chunk on the right-hand side.
    """
    query, key, value, gates, beta, _, starts = tokens
    products = _by_head if gates.shape[-1] == 1 else _by_channel
    reads, shared, since, until = products(query, key, gates)
    if starts is not None:
        number = jnp.cumsum(starts, axis=-2)
        same = number == number.mT
        reads, shared = jnp.where(same, reads, 0), jnp.where(same, shared, 0)
        since = jnp.where(number == 0, since, 0)
        until = jnp.where(number == number[..., -1:, :], until, 0)
    if beta is not None:
        value = _inverse(beta * shared) @ (beta * (value - (key * since) @ state))
    output = (query * since) @ state + reads @ value
    return since[..., -1, :, None] * state + (key * until).mT @ value, output


def _inverse(lower):
    """The inverse of the identity plus a strictly lower matrix, from those of its blocks of 1, 2, ..., 64.

    XLA's `triangular_solve` may never return on a CPU of two cores, inside of a gradient.
    """
    inverse = jnp.ones((*lower.shape[:-1], 1, 1), lower.dtype)
    size = 1
    while size < CHUNK:
        first, second = _halves(inverse)
        pairs = lower.reshape(
            *lower.shape[:-2], -1, 2 * size, CHUNK // (2 * size), 2 * size
        )
        corner = jnp.moveaxis(jnp.diagonal(pairs, axis1=-4, axis2=-2), -1, -3)
        inverse = _joined(first, second, -second @ corner[..., size:, :size] @ first)
        size *= 2
    return inverse[..., 0, :, :]


def _by_head(query, key, gates):
    """How much each query reads of each key that came before, what keys share, and the decays.

    Returns products of queries and keys, of keys and earlier keys, `(64, 64)`, and what the gates let
    through since the chunk began and until it ends, `(64, 1)`.
    """
    past = jnp.tri(CHUNK, dtype=gates.dtype)
    # each entry is summed on its own, over terms of one sign
    between = jnp.cumsum(jnp.tri(CHUNK, k=-1, dtype=gates.dtype) * gates, axis=-2)
    decay = past * jnp.exp(past * between)
    since = jnp.cumsum(gates, axis=-2)
    until = between[
        ..., -1, :, None
    ]  # summed anew, jax 0.10.2 errs on a CPU from 64 heads on
    reads, shared = query @ key.mT * decay, key @ key.mT * decay
    return reads, jnp.tril(shared, -1), jnp.exp(since), jnp.exp(until)


def _by_channel(query, key, gates):
    r"""The same as `_by_head` with a gate for each channel, so that products can't be decayed afterwards.

    Within blocks of 8 tokens, each pair has its own decay. Two tokens of different blocks are parted by the
    middle of a block of 16, 32 or 64. The later one is decayed by the gates since that middle, the
    earlier one by those until it. Both factors are at most 1.
    """
    size = 8
    past = jnp.tri(size, dtype=gates.dtype)
    add = partial(jnp.matmul, precision="highest")
    query, key, gates = (_blocks(x, size) for x in (query, key, gates))
    between = jnp.cumsum(
        jnp.tri(size, k=-1, dtype=gates.dtype)[..., None] * gates[..., None, :], axis=-3
    )
    early = key[..., None, :, :] * jnp.exp(between)  # (*batch, blocks, later, earlier, d_k)
    both = jnp.stack([query, key], axis=-2) @ early.mT * past[:, None]
    reads, shared = both[..., 0, :], jnp.tril(both[..., 1, :], -1)
    since, until = add(past, gates), add(1 - past, gates)
    while size < CHUNK:
        # everything is in blocks of this size, of which two make one of the next
        (passed, since), (ahead, until) = map(_halves, (since, until))
        (_, late_query), (early, late_key) = map(_halves, (query, key))
        early = (early * jnp.exp(ahead)).mT
        corners = (x * jnp.exp(since) @ early for x in (late_query, late_key))
        reads, shared = (
            _joined(*_halves(blocks), corner)
            for blocks, corner in zip((reads, shared), corners, strict=True)
        )
        until = jnp.concatenate([ahead + since[..., -1:, :], until], axis=-2)
        since = jnp.concatenate([passed, since + passed[..., -1:, :]], axis=-2)
        size *= 2
        query, key = (x.reshape(*x.shape[:-3], -1, size, x.shape[-1]) for x in (query, key))
    reads, shared, since, until = (x[..., 0, :, :] for x in (reads, shared, since, until))
    return reads, shared, jnp.exp(since), jnp.exp(until)


def _blocks(x, size):
    """The tokens of `(*batch, n, d)` in blocks, `(*batch, blocks, size, d)`."""
    return x.reshape(*x.shape[:-2], -1, size, x.shape[-1])


def _halves(blocks):
    """The first and the second block of each pair, of `(*batch, blocks, size, d)`."""
    pairs = blocks.reshape(*blocks.shape[:-3], -1, 2, *blocks.shape[-2:])
    return pairs[..., 0, :, :], pairs[..., 1, :, :]


def _joined(first, second, corner):
    """Two blocks on a diagonal, with what the second half has of the first in the lower corner."""
    upper = jnp.concatenate([first, jnp.zeros_like(first)], axis=-1)
    lower = jnp.concatenate([corner, second], axis=-1)
    return jnp.concatenate([upper, lower], axis=-2)
