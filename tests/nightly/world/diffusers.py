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


PROBES = {
    "causal": lambda last, key, value: _attend(last, key, value, is_causal=True),
    "empty_row": lambda query, key, value, empty: _attend(query, key, value, mask=empty),
    "true": lambda query, key, value, mask: _attend(query, key, value, mask=mask),
    "scale": lambda query, key, value: _attend(query, key, value),
    "rotated": lambda x, positions: _rotate(x, positions),
    "stretched": lambda x, positions, stretch: _rotate(x, positions, linear_factor=stretch),
    "distant": lambda x, far: _rotate(x, far),
}


def _rotate(x, positions, **options):
    tables = get_1d_rotary_pos_embed(
        16, torch.from_numpy(positions), use_real=True, **options
    )
    return apply_rotary_emb(torch.from_numpy(x), tables)


def no_tokens():
    """Rotating an input without tokens raises an error."""
    none = torch.ones(0, 16)
    apply_rotary_emb(torch.ones(1, 1, 0, 16), (none, none))
