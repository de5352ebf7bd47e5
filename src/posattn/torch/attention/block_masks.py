"""The mask of a call for FlexAttention, which skips blocks of pairs that are hidden as a whole."""

from functools import lru_cache

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask

from posattn.torch.attention.call import checked
from posattn.torch.attention.masks import Chunk, Every, Window
from posattn.torch.attention.pair_terms import flat, placed, places, reader
from posattn.torch.attention.query_tiles import seen_by

__all__ = []

BLOCK = 128  # queries and keys of a block, as many as FlexAttention's own masks have
STRIP = 1024  # queries whose masks are looked at together


def block_mask_of(call):
    """The mask of a call as FlexAttention takes it, and which keys are seen, or None if all are."""
    sizes = call.query.shape[-2], call.key.shape[-2]
    known = call.aligned and is_value(call.mask) and not torch.compiler.is_compiling()
    if known:
        return known_block_mask(call.mask, call.causal, *sizes, call.query.device)
    some, every, used = strips(call)
    batch = call.query.shape[:-3]
    some, every = (blocks_in_four(x, batch) for x in (some, every))
    return block_mask(some, every, mask_mod_of(call), sizes), used


def is_value(mask):
    """Whether a mask is the same whenever it is equal, unlike a function, whose arrays may change."""
    parts = mask.masks if isinstance(mask, Every) else [mask]
    return all(part is None or isinstance(part, (Chunk, Window)) for part in parts)


@lru_cache(maxsize=32)
@torch.inference_mode(False)
def known_block_mask(mask, causal, n_q, n_k, device):
    """The mask of all calls of a size, and which keys are seen, or None if all are."""
    query, key = (torch.zeros(n, 1, device=device) for n in (n_q, n_k))
    call = checked(query, key, mask=mask, causal=causal)
    some, every, used = strips(call)
    some, every = (blocks_in_four(x, ()) for x in (some, every))
    made = block_mask(some, every, mask_mod_of(call), (n_q, n_k))
    return made, None if used.all() else used


def strips(call):
    """Which blocks hold pairs that may attend, which hold no others, and which keys are seen.

    All pairs of some queries are looked at together; a compiler is left to choose how many.
    """
    n_q, n_k = call.query.shape[-2], call.key.shape[-2]
    size = n_q if torch.compiler.is_compiling() else STRIP
    some, every, used = [], [], False
    for start in range(0, n_q, size):
        stop = min(start + size, n_q)
        tile = seen_by(call, start, stop)
        tile = tile.expand(*tile.shape[:-2], stop - start, n_k)
        used = used | tile.any(-2, keepdim=True)
        tile = functional.pad(tile, (0, -n_k % BLOCK, 0, (start - stop) % BLOCK))
        tile = tile.unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK))
        some.append(tile.any(-1).any(-2))
        every.append(tile.all(-1).all(-2))
    return torch.cat(some, dim=-2), torch.cat(every, dim=-2), used


def block_mask(some, every, mask, sizes):
    """FlexAttention's mask, from which blocks hold pairs that may attend and which hold no others."""
    listed = []
    for kind in (some & ~every, every):
        first = torch.argsort(kind.int(), dim=-1, descending=True, stable=True)
        listed += [kind.sum(-1, dtype=torch.int32), first.int()]
    return BlockMask.from_kv_blocks(
        *listed, BLOCK_SIZE=BLOCK, mask_mod=mask, seq_lengths=sizes
    )


def mask_mod_of(call):
    """The mask of a call, one pair at a time."""
    past = call.key.shape[-2] - call.query.shape[-2]
    mask = flat(call.mask, call.query.shape[:-3])
    allowed = None if mask is None else reader(mask, places(**placed(call)))

    def mod(b, h, q_idx, kv_idx):
        seen = kv_idx <= q_idx + past if call.causal else kv_idx >= 0
        return seen if allowed is None else seen & allowed(b, h, q_idx, kv_idx)

    return mod


def blocks_in_four(x, batch):
    """Blocks with one batch axis and one for heads, either of which may be 1."""
    x = flat(x, batch)
    return x[(None,) * (4 - x.ndim)]
