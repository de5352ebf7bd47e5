"""lucidrains/rotary-embedding-torch: neighbors turn, at positions that a caller gives."""

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

from tests.nightly.conformance.adapting import FLOAT32, PAIR, against


@against("rotary", FLOAT32, PAIR, framework="torch", layout="interleaved")
def rotated(x, positions=None, *, base=10000.0, rotary_dim=None):
    """`RotaryEmbedding` makes angles, `apply_rotary_emb` rotates."""
    if positions is None:
        positions = torch.arange(x.shape[-2])
    rotary = RotaryEmbedding(rotary_dim or x.shape[-1], theta=base)
    return apply_rotary_emb(rotary(positions.float()), x, seq_dim=-2, freqs_seq_dim=-2)
