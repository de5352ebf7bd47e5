"""lucidrains/x-transformers: its rotation, its ALiBi, and T5's buckets."""

import math

import torch
from x_transformers.x_transformers import (
    AlibiPositionalBias,
    RelativePositionBias,
    RotaryEmbedding,
    apply_rotary_pos_emb,
)

from tests.nightly.conformance.adapting import FLOAT32, against, because


@FLOAT32
def far():
    angles, _ = RotaryEmbedding(8)(torch.tensor([1000003]))
    print(math.sin(angles.flatten()[2]), "for", math.sin(1000003 / 10))


@because("a pair alone", whose="library", why="a head of two columns raises an error")
def pair():
    RotaryEmbedding(2)


@because("no tokens", whose="library",
         why="an input without tokens raises an error, though there is nothing to rotate")  # fmt: skip
def empty():
    RotaryEmbedding(8)(torch.arange(0))


@against("rotary", far, pair, empty, framework="torch", layout="interleaved")
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
