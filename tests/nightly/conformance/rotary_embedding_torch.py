"""lucidrains/rotary-embedding-torch: neighbors turn, at positions that a caller gives."""

import math

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

from tests.nightly.conformance.adapting import FLOAT32, against, because


@FLOAT32
def far():
    angles = RotaryEmbedding(8)(torch.tensor([1000003.0]))
    print(math.sin(angles[0, 2]), "for", math.sin(1000003 / 10))


@because("a pair alone", whose="library", why="a head of two columns raises an error")
def pair():
    RotaryEmbedding(2)


@against("rotary", far, pair, framework="torch", layout="interleaved")
def rotated(x, positions=None, *, base=10000.0, rotary_dim=None):
    """`RotaryEmbedding` makes angles, `apply_rotary_emb` rotates."""
    if positions is None:
        positions = torch.arange(x.shape[-2])
    rotary = RotaryEmbedding(rotary_dim or x.shape[-1], theta=base)
    return apply_rotary_emb(rotary(positions.float()), x, seq_dim=-2, freqs_seq_dim=-2)
