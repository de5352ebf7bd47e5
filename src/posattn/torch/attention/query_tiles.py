"""Attention, some queries at a time, with whatever is added to the scores.

What the backward pass wants of a block of queries is computed again.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from posattn.torch.attention.call import positions_at
from posattn.torch.attention.masks import of_pairs, readable, transformed, zero_unattended

__all__ = []

ROWS = 1024  # queries of a block: PyTorch's kernel for CPUs is slower with less than 768
BAND = 128  # queries of a block with a mask: of fewer, all together see fewer keys
FEW = 2**21  # pairs of a block, over all examples and heads: FIRE holds 32 numbers of one


def attend(call, whole):
    """Block by block, each of which `whole` computes as if there were no other queries."""
    # numbers, also where a compiler has left the lengths open: it then compiles for each
    n_q, n_k = (len(range(x.shape[-2])) for x in (call.query, call.key))
    tiles = all(_tiles(part) for part in call.biases)
    if tiles and call.mask is not None and readable(call.key) and not transformed():
        call, blocks = _seen_only(call)
    else:
        cuts = _equal(call.query, n_k, call.causal and tiles)
        blocks = [(*cut, slice(0, _end(call, tiles, cut[1]))) for cut in cuts]
        if call.mask is not None and not call.finite:
            call = _finite(call, blocks)
    query, key, value = call.query, call.key, call.value

    cut = partial(_cut, call, tiles)
    if not torch.is_grad_enabled() or transformed():
        return torch.cat([whole(cut(*block)) for block in blocks], dim=-2)
    module = None if torch.compiler.is_compiling() else _Whole(whole, call)
    if module is not None and _all_known(module, cut(n_q - 1, n_q, blocks[-1][2])):
        learned = learned_by(module).values()
        return _Blocks.apply(module, cut, blocks, query, key, value, *learned)
    again = {"use_reentrant": False, "preserve_rng_state": False}
    outs = [checkpoint(whole, cut(*block), **again) for block in blocks]
    return torch.cat(outs, dim=-2)


def _cut(call, tiles, start, stop, keys):
    """The call that computes a block from the keys that it needs."""
    return replace(
        call,
        query=call.query[..., start:stop, :],
        key=call.key[..., keys, :],
        value=call.value[..., keys, :],
        mask=_tile(call.mask, start, stop, keys) if tiles else seen_by(call, start, stop),
        causal=call.causal and tiles,
        biases=[_tile(part, start, stop, keys) for part in call.biases],
        positions=positions_at(call, slice(start, stop), keys),
        place=(start, keys.start, call.query.shape[-2], call.key.shape[-2]),
        finite=True,
    )


class _Whole(torch.nn.Module):
    """A function with the parts and sinks of a call, whose parameters may be others for a block."""

    def __init__(self, whole, call):
        super().__init__()
        self.whole = whole
        modules = (p for p in call.biases if isinstance(p, torch.nn.Module))
        self.parts = torch.nn.ModuleList(modules)
        self.register_buffer("sinks", call.sinks)

    def forward(self, block):
        return self.whole(replace(block, sinks=self.sinks))


def learned_by(module):
    """The parameters with a gradient, and buffers that are computed with one, by name."""
    every = (*module.named_parameters(), *module.named_buffers())
    return {name: x for name, x in every if x.requires_grad}


def _all_known(module, block):
    """Whether queries, keys, values and what is learned are all that has a gradient, as one query tells."""
    learned = learned_by(module).values()
    arrays = [x.detach().requires_grad_() for x in (block.query, block.key, block.value)]
    nodes = {torch.autograd.graph.get_gradient_edge(x).node for x in (*arrays, *learned)}
    query, key, value = arrays
    everything = replace(block, query=query, key=key, value=value, mask=None, causal=False)
    awaited = [module(everything).grad_fn]
    while awaited:
        node = awaited.pop()
        if node not in nodes:
            nodes.add(node)
            if hasattr(node, "variable"):
                return False
            awaited += [
                further for further, _ in node.next_functions if further is not None
            ]
    return True


class _Blocks(torch.autograd.Function):
    """Block by block without a graph of all of them: the backward pass computes each again.

    `checkpoint` does it for any function, but what it keeps of each block comes to lie between the large
    arrays of one block and the next, whose memory is then of no use to a later block, which is larger.
    """

    @staticmethod
    def forward(ctx, whole, cut, blocks, query, key, value, *learned):
        device = query.device.type
        ctx.options = whole, list(learned_by(whole)), cut, blocks
        cast = torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
        ctx.autocast = device, *cast
        ctx.save_for_backward(query, key, value, *learned)
        out = None
        for start, stop, keys in blocks:
            found = whole(cut(start, stop, keys))
            if out is None:
                out = found.new_empty(*query.shape[:-1], found.shape[-1])
            out[..., start:stop, :] = found
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        whole, names, cut, blocks = ctx.options
        learned = ctx.saved_tensors[3:]
        lent = dict(zip(names, learned, strict=True))  # by `functional_call`, it may be
        unused = {"allow_unused": True, "materialize_grads": True}
        sums = [torch.zeros_like(x, dtype=wide_dtype(x)) for x in ctx.saved_tensors]
        for start, stop, keys in blocks:
            block = cut(start, stop, keys)
            arrays = block.query, block.key, block.value
            leaves = [x.detach().requires_grad_() for x in arrays]
            block = replace(block, query=leaves[0], key=leaves[1], value=leaves[2])
            with torch.enable_grad(), torch.autocast(*ctx.autocast):
                out = torch.func.functional_call(whole, lent, (block,))
            above = grad[..., start:stop, :]
            found = torch.autograd.grad(out, [*leaves, *learned], above, **unused)
            places = [(..., rows, slice(None)) for rows in (slice(start, stop), keys, keys)]
            for total, part, place in zip(
                sums, found, places + [...] * len(learned), strict=True
            ):
                total[place] += part
        given = (x.to(y.dtype) for x, y in zip(sums, ctx.saved_tensors, strict=True))
        return None, None, None, *given


def _equal(query, n_k, causal):
    """Blocks of queries, by where they start and stop, with about as many pairs in each.

    Larger ones later on would not fit into the memory that the smaller ones have left.
    """
    pairs, n_q, stop = FEW // max(query.shape[:-2].numel(), 1), query.shape[-2], 0
    while (start := stop) < n_q:
        before = max(n_k - n_q + start, 0)  # keys that all queries of the block see
        rows = (
            math.isqrt(before**2 // 4 + pairs) - before // 2
            if causal
            else pairs // max(n_k, 1)
        )
        stop = min(start + max(1, min(ROWS, rows)), n_q)
        yield start, stop


def _end(call, tiles, stop):
    """How many keys stand before the end of a block, if none after it counts."""
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    return max(n_k - n_q + stop, 0) if call.causal and tiles else n_k


def _seen_only(call):
    """The call with zeros for keys that nobody sees, and blocks of queries with the keys that they see."""
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    array = isinstance(call.mask, Tensor)
    leads = [call.mask.shape[:-2]] if array else [x.shape[:-1] for x in call.positions]
    held = max(n_k * max(map(math.prod, leads)), 1)
    rows = max(min(BAND, ROWS, FEW // held), 1)
    blocks, anybody = [], None
    for start in range(0, n_q, rows):
        stop = min(start + rows, n_q)
        seen = _seen_by_some(call, start, stop)
        blocks += _in_parts(call, start, stop, _visible(seen, call.causal))
        seen = functional.pad(seen, (0, n_k - seen.shape[-1]))
        anybody = seen if anybody is None else anybody | seen
    if not call.finite:
        key, value = (zero_unattended(x, anybody.bool()) for x in (call.key, call.value))
        call = replace(call, key=key, value=value, finite=True)
    return call, blocks


def _in_parts(call, start, stop, keys):
    """A block of queries, or some of them at a time if a bias holds numbers of all their pairs."""
    size = stop - start
    if call.biases or call.needs_weights:
        held = call.query.shape[:-2].numel() * (keys.stop - keys.start)
        size = max(FEW // max(held, 1), 1)
    for first in range(start, stop, size):
        last = min(first + size, stop)
        end = min(_end(call, True, last), keys.stop)
        yield first, last, slice(min(keys.start, max(end - 1, 0)), end)


def _seen_by_some(call, start, stop):
    """For keys up to the end of the past, whether some query of a block sees them: `(..., 1, n)`, 0 or 1."""
    end = _end(call, True, stop)
    positions = positions_at(call, slice(start, stop), slice(0, end))
    shape = *call.query.shape[:-2], stop - start, end
    seen = of_pairs(_tile(call.mask, start, stop, slice(0, end)), positions, shape)
    parts = [seen]
    if call.causal:
        offset = call.key.shape[-2] - call.query.shape[-2]
        first = min(max(start + offset, 0), end)  # of the keys that are not past for all
        ends = torch.arange(start, stop, device=seen.device)[:, None] + offset
        past = torch.arange(first, end, device=seen.device) <= ends
        parts = [seen[..., :first], seen[..., first:] & past]
    # the largest byte is found much faster than whether any is True
    return torch.cat([x.view(torch.uint8).amax(-2, keepdim=True) for x in parts], -1)


def seen_by(call, start, stop):
    """Which keys some of the queries may attend to."""
    n_q, n_k, device = call.query.shape[-2], call.key.shape[-2], call.key.device
    positions = positions_at(call, slice(start, stop), slice(0, n_k))
    shape = *call.query.shape[:-2], stop - start, n_k
    seen = of_pairs(_tile(call.mask, start, stop, slice(0, n_k)), positions, shape)
    if call.causal:
        ends = torch.arange(start, stop, device=device) + n_k - n_q
        past = torch.arange(n_k, device=device) <= ends[:, None]
        seen = past if seen is None else past & seen
    return seen


def _finite(call, blocks):
    """The call with keys and values that are zero where nobody attends to them."""
    seen = False
    for start, stop, _ in blocks:
        seen = seen | seen_by(call, start, stop).any(-2, keepdim=True)
    key, value = (zero_unattended(x, seen) for x in (call.key, call.value))
    return replace(call, key=key, value=value, finite=True)


def _tiles(part):
    """Whether what a part adds to the score of a query and a key is determined by these two."""
    return not getattr(part, "needs_all_keys", hasattr(part, "scores"))


def _visible(seen, causal):
    """Leave out the keys before the first that is seen, and if their end is free, after the last."""
    end = seen.shape[-1]
    found = seen.flatten(0, -2).any(0).nonzero()
    first, last = found[[0, -1], 0].tolist() if len(found) else (max(end - 1, 0), 0)
    return slice(first, end if causal else max(last, first) + 1)


def _tile(x, start, stop, keys):
    """The part of a mask or of a bias that some queries and keys need, if it is an array."""
    if not isinstance(x, Tensor):
        return x
    x = x[..., keys] if x.shape[-1] != 1 else x
    return x if x.ndim < 2 or x.shape[-2] == 1 else x[..., start:stop, :]


def wide_dtype(x):
    """The dtype in which numbers like those of `x` are added up."""
    return torch.promote_types(x.dtype, torch.float32)
