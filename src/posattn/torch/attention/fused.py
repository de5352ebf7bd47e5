"""Attention by PyTorch's own kernel, which never holds the weights."""

import math
from functools import partial

import torch
from torch.nn import functional

from posattn.torch.attention.call import total_bias, visible, without_hidden

__all__ = []


def attend(call):
    """Attention without dropout, and with biases that change nothing but scores."""
    query, key, value = call.query, call.key, call.value
    run = kernel if call.sinks is None else partial(sinking, call.sinks)
    plain = call.mask is None and not call.biases
    if plain and call.causal and query.shape[-2] == key.shape[-2]:
        return run(query, key, value, None, True, call.scale)
    seen = visible(call)
    key, value = (without_hidden(x, call, seen) for x in (key, value))
    bias = total_bias(call.biases, query, key, call.positions)
    if bias is not None:
        bias = bias.to(query.dtype)
        seen = bias if seen is None else torch.where(seen, bias, -math.inf)
    return run(query, key, value, seen, False, call.scale)


def sinking(sinks, query, key, value, mask, causal, scale):
    """The same with a sink in each head: one more key, in front of the others, whose value is zero.

    Only that key has numbers in two more entries, and those of a query make its product the sink. Two,
    since half precision holds the sink of a head in two parts.
    """
    # what the key has there is a power of two, so that no product is rounded
    unit = 2.0 ** -round(math.log2(abs(scale)))
    wide = torch.promote_types(query.dtype, torch.float32)
    most = torch.finfo(query.dtype).max / 4  # minus infinity is a sink too
    sinks = (sinks.to(wide) / (scale * unit)).clamp(-most, most)
    rounded = sinks.to(query.dtype)
    parts = torch.stack([rounded, (sinks - rounded).to(query.dtype)], -1)[..., None, :]
    query = torch.cat([query, parts.expand(*query.shape[:-1], 2)], -1)
    key = functional.pad(key, (0, 2, 1, 0))
    key[..., 0, -2:] = unit
    # values get as wide as keys, or the kernel is not fused
    value = functional.pad(value, (0, 2, 1, 0))
    if mask is not None:
        mask = functional.pad(mask, (1, 0), value=mask.dtype == torch.bool)
    if (
        causal
    ):  # a query in front sees only the sink, and each other one the keys up to its own
        query = functional.pad(query, (0, 0, 1, 0))
        return kernel(query, key, value, mask, True, scale)[..., 1:, :-2]
    return kernel(query, key, value, mask, False, scale)[..., :-2]


def kernel(query, key, value, mask, causal, scale):
    """PyTorch's own attention, for any number of batch axes and with heads that share keys."""
    if causal and scale <= 0:  # it multiplies the minus infinity of the future, too
        query = query * scale
        scale = 1.0
    grouped = {}
    if query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        grouped = {"enable_gqa": True}  # of open sizes the comparison would be no bool
    if lift := (None,) * (4 - query.ndim):
        query, key, value = query[lift], key[lift], value[lift]
    mask = None if mask is None else mask[(None,) * (4 - mask.ndim)]  # else it is not fused
    out = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, **grouped
    )
    return out[(0,) * len(lift)] if lift else out
