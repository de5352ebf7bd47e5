"""PyTorch itself: its attention with masks, with `is_causal`, and with the newer `causal_lower_right`."""

import torch
from torch.nn import MultiheadAttention
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention

from posattn.conformance.adapters import attention_of_heads
from tests.nightly.conformance.adapting import CORNER, MEAN, NAN_LEAKS, against

NAN = MEAN._replace(
    why="an empty row gets NaN from `MultiheadAttention`, unless `need_weights=False`; we ask for zero",
    shown="torch_mha/empty_row",
)


@against("attention", NAN_LEAKS, framework="torch")
def masked(query, key, value, *, mask=None, bias=None, scale=None):
    """`scaled_dot_product_attention` with `attn_mask`."""
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return scaled_dot_product_attention(query, key, value, mask, scale=scale)


@against("attention", CORNER, framework="torch", causal=True)
def is_causal(query, key, value, *, scale=None):
    """`scaled_dot_product_attention` with `is_causal`."""
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)


@against("attention", framework="torch", causal=True)
def lower_right(query, key, value, *, scale=None):
    """`scaled_dot_product_attention` with `causal_lower_right`."""
    mask = causal_lower_right(query.shape[-2], key.shape[-2])
    return scaled_dot_product_attention(query, key, value, mask, scale=scale)


@against("attention", NAN_LEAKS, framework="torch")
@attention_of_heads
def flex(query, key, value, *, mask, bias=None, scale=None):
    """`flex_attention`, with a `score_mod` that reads the mask and the bias."""

    def score_mod(score, b, h, i, j):
        score = score if bias is None else score + bias[b, 0, i, j]
        return torch.where(mask[b, 0, i % mask.shape[2], j], score, -torch.inf)

    return flex_attention(query, key, value, score_mod, scale=scale)


def multi_head_of(width, scale):
    """A `MultiheadAttention` of one head whose projections change nothing but the scale."""
    layer = MultiheadAttention(width, 1, bias=False, batch_first=True)
    one = torch.eye(width)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([scale * one, one, one]))
        layer.out_proj.weight.copy_(one)
    return layer


@against("attention", NAN_LEAKS, NAN, framework="torch")
def multi_head(query, key, value, *, mask=None, bias=None):
    """`MultiheadAttention` with one head, whose projections are the identity."""
    width = max(query.shape[-1], value.shape[-1])
    scale = (width / query.shape[-1]) ** 0.5  # it divides by the root of the width
    wide = [pad(x, (0, width - x.shape[-1])) for x in (query, key, value)]
    hidden = None if mask is None else ~mask
    if bias is not None:
        hidden = bias if mask is None else bias.masked_fill(hidden, -torch.inf)
    if hidden is not None:
        hidden = hidden.expand(len(query), query.shape[-2], -1)
    out, _ = multi_head_of(width, scale)(*wide, attn_mask=hidden)
    return out[..., : value.shape[-1]].detach()
