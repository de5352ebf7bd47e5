"""diffusers: its tables and rotation, and the attention of its models."""

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "diffusers==0.42.1"]


def _attend(*arrays, mask=None, **options):
    """Tokens before heads."""
    rows = [torch.from_numpy(x).transpose(1, 2) for x in arrays]
    mask = None if mask is None else torch.from_numpy(mask)
    return dispatch_attention_fn(*rows, attn_mask=mask, **options).transpose(1, 2)


def causal(last, key, value):
    return _attend(last, key, value, is_causal=True)


def empty_row(query, key, value, empty):
    return _attend(query, key, value, mask=empty)


def true(query, key, value, mask):
    return _attend(query, key, value, mask=mask)


def scale(query, key, value):
    return _attend(query, key, value)


def _rotate(x, positions, **options):
    tables = get_1d_rotary_pos_embed(
        16, torch.from_numpy(positions), use_real=True, **options
    )
    return apply_rotary_emb(torch.from_numpy(x), tables)


def rotated(x, positions):
    return _rotate(x, positions)


def stretched(x, positions, stretch):
    return _rotate(x, positions, linear_factor=stretch)


def distant(x, far):
    return _rotate(x, far)
