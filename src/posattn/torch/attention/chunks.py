"""Recurrences in chunks: a state passes through 64 tokens at a time, by products of matrices."""

from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from posattn import contract
from posattn.torch.attention.documents import document_starts
from posattn.torch.attention.masks import transformed

__all__ = []

CHUNK = 64  # a power of 2
LONG = 64 * CHUNK  # of a text with more tokens, the backward pass computes most again
TOGETHER = 8 * CHUNK  # tokens of it whose chunks are held at a time
SHUT = -1e3  # no dtype tells what such a gate lets through from 0


class Tokens(NamedTuple):
    """What a recurrence reads, with an axis of groups after the heads of keys."""

    query: Tensor  # (*batch, h_k, 1, n, d_k)
    key: Tensor
    value: Tensor  # (*batch, h_k, groups, n, d_v)
    gates: Tensor  # (*batch, h_k, groups, n, 1 or d_k)
    beta: Tensor | None  # (*batch, h_k, groups, n, 1)
    mask: Tensor | None  # (*batch, 1, 1, n, 1)
    starts: Tensor | None


def recur(sizes, query, key, value, log_gates, beta, state, mask, documents):
    """The outputs and the last state of a recurrence; without `beta`, tokens only add."""
    contract.state(state, sizes.state)
    *batch, _, n, _ = value.shape
    contract.passed(mask, documents, batch, n)
    if log_gates is None:
        log_gates = value.new_zeros(()).expand(value.shape[:-1])
    if log_gates.ndim < query.ndim:
        log_gates = log_gates[..., None]
    groups = (-1, sizes.groups)
    tokens = Tokens(
        query.unsqueeze(-3),
        key.unsqueeze(-3),
        value.unflatten(-3, groups),
        log_gates.unflatten(-3, groups),
        None if beta is None else beta[..., None].unflatten(-3, groups),
        None if mask is None else mask[..., None, None, :, None],
        None
        if documents is None
        else document_starts(documents, mask)[..., None, None, :, None],
    )
    wide = torch.promote_types(query.dtype, torch.float32)
    if state is None:
        state = query.new_zeros(sizes.state, dtype=wide)
    state = state.to(wide).unflatten(-3, groups)
    if n == 1:
        output, state = _one(_present(tokens, wide, sizes.scale), state)
    else:
        output, state = _in_groups(tokens, wide, sizes.scale, state)
    return output.flatten(-4, -3).to(query.dtype), state.flatten(-4, -3)


def _in_groups(tokens, wide, scale, state):
    """The outputs of all tokens and the last state; of a long text, only some states are kept."""
    n = tokens.value.shape[-2]
    if n <= LONG or not torch.is_grad_enabled() or transformed():
        return _in_chunks(tokens, wide, scale, state)
    again = {"use_reentrant": False, "preserve_rng_state": False}
    outputs = []
    for part in _split(tokens, TOGETHER):
        output, state = checkpoint(_in_chunks, part, wide, scale, state, **again)
        outputs.append(output)
    return torch.cat(outputs, -2), state


def _in_chunks(tokens, wide, scale, state):
    """The outputs of some tokens and the state after them, one chunk after another."""
    outputs = []
    for part in _split(tokens, CHUNK):
        if part.value.shape[-2]:
            output, state = _chunk(_present(part, wide, scale), state)
            outputs.append(output)
    return torch.cat(outputs, -2) if outputs else tokens.value.to(wide), state


def _split(tokens, size):
    """So many tokens after the other; taken by indexing, each part would get a gradient of all."""
    parts = (repeat(None) if x is None else x.split(size, -2) for x in tokens)
    return map(Tokens, *parts)


def _present(part, wide, scale):
    """Tokens in float32 or float64, those that are absent made zeros, so that they change nothing."""
    arrays = [None if x is None else x.to(wide) for x in part[:5]]
    arrays[0] = arrays[0] * scale
    arrays[3] = arrays[3].clamp(min=SHUT)
    if part.mask is not None:
        absent = ~part.mask
        arrays = [None if x is None else x.masked_fill(absent, 0) for x in arrays]
    return Tokens(*arrays, *part[5:])


def _one(tokens, state):
    """The output and the state after a single token, by the recurrence."""
    state = tokens.gates.exp().mT * state
    written = tokens.value
    if tokens.beta is not None:
        written = tokens.beta * (written - tokens.key @ state)
    state = torch.addcmul(state, tokens.key.mT, written)
    return tokens.query @ state, state


def _chunk(tokens, state):
    """The outputs of a chunk and the state after it.

    What each token writes corrects what the tokens before it have written. That is a triangular
    system, with the state before the chunk on the right-hand side.
    """
    query, key, value, gates, beta, _, starts = tokens
    products = _by_head if gates.shape[-1] == 1 else _by_channel
    reads, shared, since, until = products(query, key, gates)
    if starts is not None:
        number = starts.cumsum(-2)
        other = number != number.mT
        reads, shared = (x.masked_fill(other, 0) for x in (reads, shared))
        since = since.masked_fill(number > 0, 0)
        until = until.masked_fill(number != number[..., -1:, :], 0)
    if beta is not None:
        value = torch.linalg.solve_triangular(
            beta * shared,
            beta * (value - (key * since) @ state),
            upper=False,
            unitriangular=True,
        )
    output = (query * since) @ state + reads @ value
    return output, since[..., -1, :, None] * state + (key * until).mT @ value


def _by_head(query, key, gates):
    """How much each query reads of each key that came before, what keys share, and the decays.

    Returns products of queries and keys, of keys and earlier keys, `(64, 64)`, and what the gates let
    through since the chunk began and until it ends, `(64, 1)`.
    """
    sums = gates.double().cumsum(-2)
    decay = (sums - sums.mT).to(gates.dtype).tril().exp().tril()
    since, until = sums, sums[..., -1:, :] - sums
    since, until = (x.to(gates.dtype).exp() for x in (since, until))
    return query @ key.mT * decay, key @ key.mT * decay.tril(-1), since, until


def _by_channel(query, key, gates):
    r"""The same as `_by_head` with a gate for each channel, so that products can't be decayed afterwards.

    Two tokens are parted by the middle of some block of 2, 4, ..., 64 tokens. The later one is decayed by the
    gates since that middle, the earlier one by those until it. Both factors are at most 1.
    """
    n = gates.shape[-2]
    missing = -n % CHUNK
    query, key, gates = (functional.pad(x, (0, 0, 0, missing)) for x in (query, key, gates))
    reads = (query * key).sum(-1)[..., None, None].expand(*gates.shape[:-1], 1, 1)
    shared = torch.zeros_like(reads)
    since, until = gates[..., None, :], torch.zeros_like(gates[..., None, :])
    size = 1
    while size < CHUNK:
        # everything is in blocks of this size, of which two make one of the next
        (passed, since), (ahead, until) = map(_halves, (since, until))
        late_query, late_key = (
            _halves(x.unflatten(-2, (-1, size)))[1] for x in (query, key)
        )
        early_key, _ = _halves(key.unflatten(-2, (-1, size)))
        late = torch.cat([late_query * since.exp(), late_key * since.exp()], -2)
        cross = late @ (early_key * ahead.exp()).mT
        reads, shared = (
            _joined(*_halves(blocks), corner)
            for blocks, corner in zip((reads, shared), cross.split(size, -2), strict=True)
        )
        until = torch.cat([ahead + since[..., -1:, :], until], -2)
        since = torch.cat([passed, since + passed[..., -1:, :]], -2)
        size *= 2
    since, until = (x.squeeze(-3)[..., :n, :].exp() for x in (since, until))
    return *(x.squeeze(-3)[..., :n, :n] for x in (reads, shared)), since, until


def _halves(blocks):
    """The first and the second block of each pair, of `(*batch, blocks, size, d)`."""
    return blocks.unflatten(-3, (-1, 2)).unbind(-3)


def _joined(first, second, corner):
    """Two blocks on a diagonal, with what the second half has of the first in the lower corner."""
    upper = torch.cat([first, torch.zeros_like(first)], -1)
    return torch.cat([upper, torch.cat([corner, second], -1)], -2)
