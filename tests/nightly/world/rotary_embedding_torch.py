"""rotary-embedding-torch: its `RotaryEmbedding` and `apply_rotary_emb`."""

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "rotary-embedding-torch==0.9.1"]


def _rotate(x, width=16, offset=0, **options):
    rotary = RotaryEmbedding(width, **options)
    with torch.no_grad():
        return rotary.rotate_queries_or_keys(torch.from_numpy(x), offset=offset)


PROBES = {
    "rotated": lambda x: _rotate(x),
    "partly": lambda x, part: _rotate(x, part),
    "by_freqs": lambda x, freqs: _rotate(x, custom_freqs=torch.from_numpy(freqs).float()),
    "stretched": lambda x, stretch: _rotate(x, interpolate_factor=stretch),
    "shifted": lambda x, offset: _rotate(x, offset=offset),
}


def distant(x, far):
    angles = RotaryEmbedding(16)(torch.from_numpy(far))
    return apply_rotary_emb(angles.detach(), torch.from_numpy(x))


def cached(x, last):
    """The last two queries, with six keys."""
    queries, keys = (
        torch.cat([torch.zeros(1, 2, 4, 16), torch.from_numpy(last)], 2),
        torch.from_numpy(x),
    )
    whole = RotaryEmbedding(16)
    one, both = whole.rotate_queries_or_keys(queries), whole.rotate_queries_or_keys(keys)
    step = RotaryEmbedding(16).rotate_queries_with_cached_keys(queries[:, :, 4:], keys)
    return tuple(torch.cat(pair, 2).detach() for pair in ((one[:, :, 4:], both), step))


def base_rescaled():
    """`theta_rescale_factor` raises the base to the power that NTK-aware scaling asks for."""
    one, four = RotaryEmbedding(16), RotaryEmbedding(16, theta_rescale_factor=4)
    print(f"{(one.freqs / four.freqs)[-1].item():.3f} for the slowest pair")


def one_pair():
    """`RotaryEmbedding` of rotary-embedding-torch raises an error for a head of two columns."""
    RotaryEmbedding(2)
