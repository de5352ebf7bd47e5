"""Attention to selected keys: they are gathered for some queries at a time, and no other key is read.

What the backward pass wants of some queries is gathered and computed again.
"""

import math
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from posattn.torch.attention.definition import normalised
from posattn.torch.attention.masks import all_of, of_selected, transformed
from posattn.torch.attention.query_tiles import seen_by, wide_dtype
from posattn.torch.attention.tiled import is_small

__all__ = []

FEWER = (
    4  # by which factor what is selected must be fewer: below, all keys at once are faster
)
LONG = 2**13  # keys from which on a single query gains, too
ROWS = 256  # queries whose scores are held
CACHED = 2**17  # numbers of gathered keys that stay in a processor's cache
HELD = 2**20  # the same where Python's part of the time is what counts


def suits(call):
    """Whether a call selects few keys of many, and nothing else happens to its scores."""
    if torch.compiler.is_compiling() or transformed():
        return False
    n_k = call.key.shape[-2]
    few = call.select.shape[-1] * FEWER <= n_k and (n_k >= LONG or not is_small(call))
    plain = not call.biases and not call.needs_weights and call.select.shape[-1] > 0
    return few and plain and not torch.is_autocast_enabled(call.query.device.type)


def as_mask(call):
    """The call with its selection as a part of its mask."""
    if call.select is None:
        return call
    chosen = of_selected(call.select, call.query, call.key)
    shape = *call.query.shape[:-1], call.key.shape[-2]
    return replace(
        call, mask=all_of([call.mask, chosen], call.positions, shape), select=None
    )


def attend(call):
    """Attention, some queries at a time."""
    query, key, value, select = call.query, call.key, call.value, call.select
    batch = query.shape[:-2]
    if not batch:
        query, key, value = query[None], key[None], value[None]
    if select.ndim < query.ndim:
        select = select.unsqueeze(-3)
    heads, kv_heads, choices = query.shape[-3], key.shape[-3], select.shape[-3]
    parts = max(kv_heads, choices)
    query = query.unflatten(-3, (parts, heads // parts))
    select = select.expand(*query.shape[:-4], *select.shape[-3:])
    sinks = [] if call.sinks is None else [call.sinks.reshape(parts, -1)]
    seen = replace(
        call, query=call.query.detach(), key=call.key.detach(), value=None, sinks=None
    )
    arrays = (x if x.stride(-1) == 1 else x.contiguous() for x in (key, value))
    return _Gathered.apply(seen, select, query, *arrays, *sinks).reshape(
        *batch, query.shape[-2], -1
    )


@dataclass(frozen=True)
class _Some:
    """Some queries that share keys, and what they select.

    Args:
        of_query: where they stand in `(*batch, parts, heads, n_q, d)`.
        of_key: where their keys stand in `(*batch, heads, n_k, d)`.
        places: the keys that they select, `(rows, k)`; any other one where there is none.
        hidden: which of those they may not attend to, `(heads or 1, rows, k)`; None if there are none.
    """

    of_query: tuple
    of_key: tuple
    places: Tensor
    hidden: Tensor | None


def _blocks(call, select, query, key, size):
    """A block of queries after the other, for each example and each group of heads that shares keys."""
    *batch, parts, heads, n_q, _ = query.shape
    kv_heads, choices = key.shape[-3], select.shape[-3]
    for start in range(0, n_q, size):
        rows = slice(start, min(start + size, n_q))
        last = torch.arange(rows.start, rows.stop, device=key.device) + key.shape[-2] - n_q
        mask = None if call.mask is None else seen_by(call, rows.start, rows.stop)
        if mask is not None:
            shared = mask.ndim < 3 or mask.shape[-3] == 1
            mask = mask if mask.ndim > 2 else mask[None]
            mask = mask.unsqueeze(-3) if shared else mask.unflatten(-3, (parts, heads))
            mask = mask.expand(*batch, parts, *mask.shape[-3:])
        for *example, part in product(*map(range, (*batch, parts))):
            places = select[(*example, part * choices // parts, rows)].long()
            seen = _once(places)[None]
            if mask is not None:
                pairs = mask[(*example, part)]
                pairs = pairs.expand(-1, len(places), -1)
                seen = seen & pairs.gather(
                    -1, places.clamp(min=0).expand(len(pairs), -1, -1)
                )
            elif call.causal:
                seen = seen & (places <= last[:, None])
            hidden = None if bool(seen.all()) else ~seen
            if hidden is not None:  # what is hidden may be NaN: another key is read instead
                some = seen.any(0)
                other = places.masked_fill(~some, -1).amax(-1, keepdim=True).clamp(min=0)
                places = torch.where(some, places, other)
            of_key = (*example, part * kv_heads // parts)
            yield _Some((*example, part, slice(None), rows), of_key, places, hidden)


def _once(places):
    """Which entries are keys that have not come before in their row."""
    before, after = places[:, :-1], places[:, 1:]
    if bool(
        (((after > before) & (before >= 0)) | (after < 0)).all()
    ):  # as `select_keys` gives them
        return places >= 0
    order = places.argsort(dim=-1, stable=True)
    ordered = places.gather(-1, order)
    first = functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    return torch.empty_like(first).scatter_(-1, order, first) & (places >= 0)


class _Gathered(torch.autograd.Function):
    """Gather, score and mix; and once more, with a graph, where gradients are asked for."""

    @staticmethod
    def forward(ctx, call, select, query, key, value, *sinks):
        ctx.call = call
        ctx.save_for_backward(select, query, key, value, *sinks)
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        for some in _blocks(call, select, query, key, ROWS):
            sink = sinks[0][some.of_query[-3]] if sinks else None
            arrays = query[some.of_query], key[some.of_key], value[some.of_key]
            out[some.of_query] = _mixed(*arrays, some, sink, call.scale).to(out.dtype)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        select, *arrays = ctx.saved_tensors
        query, key, value, *sinks = arrays
        sums = [torch.zeros_like(x, dtype=wide_dtype(x)) for x in arrays]
        size = _together(HELD, select.shape[-1], key, value)
        for some in _blocks(ctx.call, select, query, key, size):
            of_query, of_key, places = some.of_query, some.of_key, some.places
            given = query[of_query], key[of_key][places], value[of_key][places]
            given += (sinks[0][of_query[-3]],) if sinks else ()
            leaves = [x.detach().to(wide_dtype(x)).requires_grad_() for x in given]
            with torch.enable_grad():
                out = _of_gathered(
                    *leaves[:3], some, (*leaves[3:], None)[0], ctx.call.scale
                )
            found = torch.autograd.grad(out, leaves, grad[of_query].to(out.dtype))
            sums[0][of_query] += found[0]
            for total, part in zip(sums[1:3], found[1:3], strict=True):
                rows = places.reshape(-1, 1).expand(-1, part.shape[-1])
                total[of_key].scatter_add_(0, rows, part.flatten(0, 1))
            if sinks:
                sums[3][of_query[-3]] += found[3]
        found = (x.to(y.dtype) for x, y in zip(sums, arrays, strict=True))
        return None, None, *found


def _together(numbers, count, key, value):
    """How many queries' keys and values make so many numbers."""
    return max(1, numbers // (count * max(key.shape[-1], value.shape[-1])))


def _mixed(query, key, value, some, sinks, scale):
    """The output of some queries, `(heads, rows, d_v)`, which is computed without a graph."""
    heads, rows, _ = query.shape
    count, wide = some.places.shape[-1], wide_dtype(query)
    size = _together(CACHED if key.device.type == "cpu" else HELD * 32, count, key, value)
    buffer = key.new_empty(size * count * max(key.shape[-1], value.shape[-1]))
    query = query.transpose(0, 1).to(wide) * scale
    scores = query.new_empty(rows, heads, count)
    out = query.new_empty(rows, heads, value.shape[-1])
    cuts = [slice(i, min(i + size, rows)) for i in range(0, rows, size)]

    def gathered(x, cut):
        places = some.places[cut].reshape(-1)
        held = buffer[: len(places) * x.shape[-1]].view(len(places), -1)
        return (
            torch.index_select(x, 0, places, out=held).view(-1, count, x.shape[-1]).to(wide)
        )

    for cut in cuts:
        torch.bmm(query[cut], gathered(key, cut).mT, out=scores[cut])
    if some.hidden is not None:
        scores.masked_fill_(some.hidden.transpose(0, 1), -math.inf)
    weights = scores.softmax(-1)
    if heads == 1 and value.dtype == wide and value.is_contiguous():
        out = functional.embedding_bag(
            some.places, value, per_sample_weights=weights[:, 0], mode="sum"
        )[:, None]
    else:
        for cut in cuts:
            torch.bmm(weights[cut], gathered(value, cut), out=out[cut])
    if sinks is not None:
        out = out * torch.sigmoid(scores.logsumexp(-1, keepdim=True) - sinks[:, None])
    out = out.transpose(0, 1)
    if some.hidden is not None:
        out = out.masked_fill(some.hidden.all(-1, keepdim=True), 0)
    return out


def _of_gathered(query, key, value, some, sinks, scale):
    """The same with a graph, from keys and values `(rows, k, d)` that are gathered already."""
    seen = None
    if some.hidden is not None:
        nothing = some.hidden.all(0).all(-1)[:, None, None]
        key, value = key.masked_fill(nothing, 0), value.masked_fill(nothing, 0)
        seen = ~some.hidden
    scores = torch.einsum("hrd,rkd->hrk", query, key) * scale
    weights = normalised(scores, seen, sinks)
    return torch.einsum("hrk,rkd->hrd", weights, value)
