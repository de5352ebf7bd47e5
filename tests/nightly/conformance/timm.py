"""timm: its rotation for images, of which one axis is checked, and the frequencies of its axes."""

import math

import torch
from timm.layers import apply_rot_embed
from timm.layers.pos_embed_sincos import freq_bands

from tests.nightly.conformance.adapting import against, because


@because("width 1", "width 7", whose="convention",
         why="it is asked for a number of pairs, so a width cannot be odd")  # fmt: skip
def odd():
    print(len(freq_bands(7 // 2, temperature=10000.0, step=1)), "for", 4)


@because("2**20", whose="precision", why="large angles in float32 are rounded")
def far():
    angles = 1000003 * freq_bands(4, temperature=10000.0, step=1)
    print(math.sin(angles[1]), "for", math.sin(1000003 / 10))


@against("frequencies", odd, framework="torch")
def bands(dim, *, base=10000.0):
    """`freq_bands` for a language model."""
    return freq_bands(dim // 2, temperature=base, step=1)


@against("rotary", far, framework="torch", layout="interleaved")
def rotated(x, positions=None, *, base=10000.0):
    """Angles from `freq_bands`, rotated by `apply_rot_embed`."""
    places = torch.arange(x.shape[-2]) if positions is None else positions
    angles = places[..., None] * freq_bands(x.shape[-1] // 2, temperature=base, step=1)
    angles = angles.repeat_interleave(2, dim=-1)
    return apply_rot_embed(x, angles.sin(), angles.cos())
