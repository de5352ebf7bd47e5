"""Hugging Face's diffusers: its rotation in both layouts, and its encoding of time steps."""

import torch
from diffusers.models.embeddings import (
    apply_rotary_emb,
    get_1d_rotary_pos_embed,
    get_timestep_embedding,
)

from tests.nightly.conformance.adapting import FLOAT32, NO_TOKENS, Reason, against

ODD = Reason(
    ("odd width", "width 1"),
    "convention",
    "an odd width is filled with a column of zeros; we end with a sine",
)


def rotated(x, positions, base, pairs):
    """All tokens in one row, with real tables, in the layout that two options of diffusers stand for."""
    places = torch.arange(x.shape[-2]) if positions is None else positions
    places = places.expand(x.shape[:-1]).flatten()
    options = {"use_real": True, "repeat_interleave_real": pairs == -1}
    table = get_1d_rotary_pos_embed(x.shape[-1], places, theta=base, **options)
    row = x.reshape(1, 1, len(places), x.shape[-1])
    return apply_rotary_emb(row, table, use_real_unbind_dim=pairs).reshape(x.shape)


@against("rotary", FLOAT32, NO_TOKENS, framework="torch", layout="interleaved")
def neighbors(x, positions=None, *, base=10000.0):
    """`get_1d_rotary_pos_embed` and `apply_rotary_emb`, neighbors."""
    return rotated(x, positions, base, -1)


@against("rotary", FLOAT32, NO_TOKENS, framework="torch", layout="half")
def halves(x, positions=None, *, base=10000.0):
    """`get_1d_rotary_pos_embed` and `apply_rotary_emb`, halves."""
    return rotated(x, positions, base, -2)


@against("sinusoidal_concatenated", ODD, FLOAT32, framework="torch")
def steps(length_or_positions, dim, *, base=10000.0):
    """`get_timestep_embedding`."""
    places = length_or_positions
    places = torch.arange(places) if isinstance(places, int) else places
    options = {"downscale_freq_shift": 0, "max_period": int(base)}
    return get_timestep_embedding(places.flatten(), dim, **options).reshape(
        *places.shape, dim
    )
