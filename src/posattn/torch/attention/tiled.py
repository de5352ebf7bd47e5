"""Attention whose memory grows with the length, not with its square: some queries at a time.

Each block of queries goes through PyTorch's fused kernel, or through the definition where the weights
themselves are needed; what the backward pass wants of a block is computed again.
A bias that depends only on distance is never an array of pairs. One row holds all its numbers, and each
query reads that row one place further on than the query before it.
"""

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from posattn import contract
from posattn.torch.attention import query_tiles
from posattn.torch.attention.fused import kernel
from posattn.torch.attention.masks import Window, readable, transformed

__all__ = []

PAIRS = 2**23  # numbers of a block, over all examples and heads
SMALL = 2**22  # what has fewer pairs is done at once


def is_small(call):
    """Whether all pairs of queries and keys may be held at once; where sizes are open, they are."""
    sizes = *call.query.shape[:-1], call.key.shape[-2]
    return not all(isinstance(n, int) for n in sizes) or math.prod(sizes) <= SMALL


def attend(call, whole):
    """What `whole` computes of a call, with memory that grows with the length."""
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    for part in call.biases:
        if isinstance(part, Tensor):  # a part of it may fit where the whole does not
            contract.bias(part, (*call.query.shape[:-1], n_k))
    plain = call.mask is None and not call.biases and not call.needs_weights
    if plain and (n_q == n_k or not call.causal):
        return whole(call)  # the kernel needs no array of pairs
    if _is_of_distances(call) and call.query.device.type == "cpu":
        row = _row(call)
        arguments = call.query, call.key, call.value, row, call.scale, _reach(call)
        if not (row.requires_grad and torch.is_grad_enabled()):
            return _by_distance(*arguments)
        if readable(row) and not transformed():
            return _Learned.apply(*arguments)
    return query_tiles.attend(call, whole)


def _is_of_distances(call):
    """Whether nothing happens to a score but that what is added depends on the distance to the key."""
    if call.needs_weights or call.sinks is not None:
        return False
    windowed = call.mask is None or isinstance(call.mask, Window)
    relative = all(getattr(part, "relative", False) for part in call.biases)
    return call.aligned and windowed and relative


def _row(call):
    """What is added to the score of a query and a key, by their distance: `(h, n_q + n_k - 1)`.

    Number `d + n_k - 1` is for a key that stands `d` after its query; what is hidden is minus infinity.
    """
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    at = torch.zeros(1, dtype=torch.int64), torch.arange(1 - n_k, n_q)
    row = torch.zeros(1, n_q + n_k - 1, dtype=query_tiles.wide_dtype(call.query))
    for part in call.biases:
        found = part(*at)
        contract.bias(found[..., :n_k], (*call.query.shape[:-1], n_k))
        row = row + found[..., 0, :]
    if call.mask is not None:
        row = row.masked_fill(~call.mask(*at), -math.inf)
    return row.masked_fill(at[1] > 0, -math.inf) if call.causal else row


def _reach(call):
    """How many keys before and after its own place a query sees at most."""
    if call.mask is None:
        before, after = call.key.shape[-2], call.query.shape[-2]
    else:
        before = after = call.mask.window - 1
    return before, 0 if call.causal else after


def _by_distance(query, key, value, row, scale, reach):
    """Attention with what depends only on the distance, given by `row` for all distances at once."""
    row = _shortened(query, key, row, scale)
    outs = [
        _block(
            query[..., rows, :], key[..., keys, :], value[..., keys, :], row, start, scale
        )
        for rows, keys, start in _blocks(query, key, row, reach, query_tiles.ROWS)
    ]
    return torch.cat(outs, dim=-2)


class _Learned(torch.autograd.Function):
    """The same with a row that learns: its gradient needs the weights, block by block."""

    @staticmethod
    def forward(ctx, query, key, value, row, *options):
        ctx.save_for_backward(query, key, value, row)
        ctx.options = options
        return _by_distance(query, key, value, row, *options)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        query, key, value, row = ctx.saved_tensors
        scale, reach = ctx.options
        size = max(
            1, min(query_tiles.ROWS, PAIRS // (query.shape[:-2].numel() * key.shape[-2]))
        )
        row = _shortened(query, key, row, scale)
        sums = [
            torch.zeros_like(x, dtype=query_tiles.wide_dtype(x))
            for x in (query, key, value, row)
        ]
        for rows, keys, start in _blocks(query, key, row, reach, size):
            parts = query[..., rows, :], key[..., keys, :], value[..., keys, :], row
            leaves = [x.detach().requires_grad_() for x in parts]
            with torch.enable_grad():
                out = _block(*leaves, start, scale)
            # where no key is seen, nothing is used
            unused = {"allow_unused": True, "materialize_grads": True}
            found = torch.autograd.grad(out, leaves, grad[..., rows, :], **unused)
            for total, part, place in zip(sums, found, (rows, keys, keys), strict=False):
                total[..., place, :] += part
            sums[-1] += found[-1]
        return (
            *(x.to(y.dtype) for x, y in zip(sums, ctx.saved_tensors, strict=True)),
            None,
            None,
        )


def _shortened(query, key, row, scale):
    """The row as the kernel takes it, with minus infinity where nothing is added to a sum."""
    if query.shape[-2] <= key.shape[-2]:  # then every query sees its own place
        row = row.masked_fill(_negligible(query, key, row, scale), -math.inf)
    return row.detach().to(query.dtype).contiguous()


def _blocks(query, key, row, reach, size):
    """Some queries, the keys that they see, and where in the row their biases begin."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    before, after = reach
    if readable(row) and not transformed():
        seen = (row != -math.inf).any(0).nonzero()
        before = n_k - 1 - int(seen[0])
        after = int(seen[-1]) + 1 - n_k
    for start in range(0, n_q, size):
        stop = min(start + size, n_q)
        end = min(max(stop + n_k - n_q + after, 0), n_k)
        first = min(max(start + n_k - n_q - before, 0), end)
        yield slice(start, stop), slice(first, end), n_q - stop + first


def _block(query, key, value, row, start, scale):
    """Attention of some queries whose last one reads the row from `start` on.

    With the queries in reversed order, each next one reads it from one place further on: so their bias
    is a view of the row, whose strides are one.
    """
    shift = _Shifts.apply if row.requires_grad else _shifts
    bias = shift(row, query.shape[-2], key.shape[-2], start)
    return kernel(query.flip(-2), key, value, bias, False, scale).flip(-2)


def _shifts(row, rows, columns, start):
    """`(h, rows, columns)`, whose entry `(t, j)` is that of the row at `start + t + j`."""
    return row.as_strided((len(row), rows, columns), (row.stride(0), 1, 1), start)


class _Shifts(torch.autograd.Function):
    """The same, whose derivative adds up along the lines of equal `t + j`."""

    @staticmethod
    def forward(ctx, row, rows, columns, start):
        ctx.length, ctx.start = row.shape[-1], start
        return _shifts(row, rows, columns, start).clone()

    @staticmethod
    def backward(ctx, grad):
        heads, rows, columns = grad.shape
        grad = functional.pad(grad, (0, rows)).flatten(1)[:, :-rows]
        line = grad.reshape(heads, rows, columns + rows - 1).sum(1)
        after = ctx.length - ctx.start - line.shape[-1]
        return functional.pad(line, (ctx.start, after)), None, None, None


def _negligible(query, key, row, scale):
    """Which distances get weights that are lost in rounding next to that of a query's own place.

    A product of a query and a key lies within the product of their largest norms, `bound`; what is beyond
    twice that and the logarithm of the rounding error adds nothing. Without it, weights that are too
    small for a normal number make the kernel slow.
    """
    with torch.no_grad():
        norms = [x.norm(dim=-1).amax().to(row.dtype) for x in (query, key)]
        bound = abs(scale) * norms[0] * norms[1]
        smallest = torch.finfo(row.dtype).eps / row.shape[-1] / 16
        own = row[..., key.shape[-2] - 1, None]
        return row < own - 2 * bound + math.log(smallest)
