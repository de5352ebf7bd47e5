"""Attention by PyTorch's own kernel, which never holds the weights."""

import math

import torch
from torch.nn import functional

from posattn.torch.attention.call import total_bias, visible, without_hidden

__all__ = []


def attend(call):
    """Attention without dropout, and with biases that change nothing but scores."""
    query, key, value = call.query, call.key, call.value
    plain = call.mask is None and not call.biases
    if plain and call.causal and query.shape[-2] == key.shape[-2]:
        return kernel(query, key, value, None, True, call.scale)
    seen = visible(call)
    key, value = (without_hidden(x, call, seen) for x in (key, value))
    bias = total_bias(call.biases, query, key, call.where)
    if bias is not None:
        bias = bias.to(query.dtype)
        seen = bias if seen is None else torch.where(seen, bias, -math.inf)
    return kernel(query, key, value, seen, False, call.scale)


def kernel(query, key, value, mask, causal, scale):
    """PyTorch's own attention, for any number of batch axes and with heads that share keys."""
    grouped = {}
    if query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        grouped = {"enable_gqa": True}  # of open sizes the comparison would be no bool
    lift = (None,) * (4 - query.ndim)
    query, key, value = query[lift], key[lift], value[lift]
    mask = None if mask is None else mask[(None,) * (4 - mask.ndim)]  # else it is not fused
    options = {"attn_mask": mask, "is_causal": causal, "scale": scale}
    out = functional.scaled_dot_product_attention(query, key, value, **options, **grouped)
    return out[(0,) * len(lift)]
