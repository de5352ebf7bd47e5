"""lucidrains/x-transformers: its rotation, its ALiBi, and T5's buckets."""

import torch
from x_transformers.x_transformers import (
    AlibiPositionalBias,
    RelativePositionBias,
    RotaryEmbedding,
    apply_rotary_pos_emb,
)

from tests.nightly.conformance.adapting import FLOAT32, NO_TOKENS, PAIR, against


@against("rotary", FLOAT32, PAIR, NO_TOKENS, framework="torch", layout="interleaved")
def rotated(x, positions=None, *, base=10000.0, rotary_dim=None):
    """`RotaryEmbedding` makes angles, `apply_rotary_pos_emb` rotates."""
    if positions is None:
        positions = torch.arange(x.shape[-2])
    if positions.ndim == 3:  # heads share them
        positions = positions[:, 0]
    angles, _ = RotaryEmbedding(rotary_dim or x.shape[-1], base=base)(positions)
    return apply_rotary_pos_emb(x, angles)


@against("alibi_slopes", framework="torch")
def slopes(num_heads):
    """The slopes of `AlibiPositionalBias`."""
    return AlibiPositionalBias(num_heads).slopes.flatten()


@against("t5_bucket", framework="torch")
def bucket(relative_position, *, num_buckets=32, max_distance=128, bidirectional=True):
    """The buckets of `RelativePositionBias`."""
    options = {"num_buckets": num_buckets, "max_distance": max_distance}
    place = RelativePositionBias._relative_position_bucket
    return place(relative_position, causal=not bidirectional, **options)
