"""PyTorch itself: its attention with masks, with `is_causal`, and with the newer `causal_lower_right`."""

import torch
from torch.nn import MultiheadAttention
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention

from tests.nightly.conformance.adapting import NAN_LEAKS, against, because


@NAN_LEAKS
def nan():
    one = torch.ones(1, 1, 1)
    values = torch.tensor([[[1.0], [torch.nan]]])
    mask = torch.tensor([[True, False]])
    print(
        torch.nn.functional.scaled_dot_product_attention(one, values, values, mask), "for 1"
    )


@because(
    "queries at the end",
    "decoding one token",
    "more queries than keys",
    whose="convention",
    why="`is_causal` aligns the first query with the first key, as is documented; we align the last ones",
)
def corner():
    query, values = torch.zeros(1, 1, 1), torch.tensor([[[0.0], [1.0]]])
    attend = torch.nn.functional.scaled_dot_product_attention
    print(attend(query, values, values, is_causal=True), "for 0.5")


@because(
    "one of them 0",
    "one length per query",
    whose="convention",
    why="an empty row gets NaN from `MultiheadAttention`, unless `need_weights=False`; we ask for zero",
)
def empty():
    one = torch.ones(1, 1, 1)
    layer = torch.nn.MultiheadAttention(1, 1, bias=False)
    print(layer(one, one, one, attn_mask=torch.tensor([[True]]))[0].item(), "for 0")


@against("attention", nan, framework="torch")
def masked(query, key, value, *, mask=None, bias=None, scale=None):
    """`scaled_dot_product_attention` with `attn_mask`."""
    if bias is not None:
        mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
    return scaled_dot_product_attention(query, key, value, mask, scale=scale)


@against("attention", corner, framework="torch", causal=True)
def is_causal(query, key, value, *, scale=None):
    """`scaled_dot_product_attention` with `is_causal`."""
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)


@against("attention", framework="torch", causal=True)
def lower_right(query, key, value, *, scale=None):
    """`scaled_dot_product_attention` with `causal_lower_right`."""
    mask = causal_lower_right(query.shape[-2], key.shape[-2])
    return scaled_dot_product_attention(query, key, value, mask, scale=scale)


@against("attention", nan, framework="torch")
def flex(query, key, value, *, mask=None, bias=None, scale=None):
    """`flex_attention`, with a `score_mod` that reads the mask and the bias."""

    def score_mod(score, b, h, i, j):
        if bias is not None:
            score = score + bias[b % len(bias), i % bias.shape[1], j]
        seen = mask if mask is None else mask.reshape(len(mask), -1, mask.shape[-1])
        return (
            score
            if mask is None
            else torch.where(seen[b, i % seen.shape[1], j], score, -torch.inf)
        )

    heads = [x[:, None] if x.ndim == 3 else x for x in (query, key, value)]
    return flex_attention(*heads, score_mod, scale=scale).reshape(*query.shape[:-1], -1)


def multi_head_of(width, scale):
    """A `MultiheadAttention` of one head whose projections change nothing but the scale."""
    layer = MultiheadAttention(width, 1, bias=False, batch_first=True)
    one = torch.eye(width)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([scale * one, one, one]))
        layer.out_proj.weight.copy_(one)
    return layer


@against("attention", nan, empty, framework="torch")
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
