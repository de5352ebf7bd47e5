"""timm: its rotation for images, of which one axis is checked, and the frequencies of its axes."""

import torch

from tests.nightly.conformance.adapting import FLOAT32, Reason, against
from tests.nightly.world.timm import apply_rot_embed  # which lets timm be imported

ODD = Reason(
    ("width 1", "width 7"),
    "convention",
    "it is asked for a number of pairs, so a width cannot be odd",
)


@against("frequencies", ODD, framework="torch")
def bands(dim, *, base=10000.0):
    """`freq_bands` for a language model."""
    from timm.layers.pos_embed_sincos import freq_bands

    return freq_bands(dim // 2, temperature=base, step=1)


@against("rotary", FLOAT32, framework="torch", layout="interleaved")
def rotated(x, positions=None, *, base=10000.0):
    """Angles from `freq_bands`, rotated by `apply_rot_embed`."""
    places = torch.arange(x.shape[-2]) if positions is None else positions
    angles = places[..., None] * bands(x.shape[-1], base=base)
    angles = angles.repeat_interleave(2, dim=-1)
    return apply_rot_embed(x, angles.sin(), angles.cos())
