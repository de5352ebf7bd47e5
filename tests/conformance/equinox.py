"""Equinox: its rotation of a text from the first token on."""

import jax
from equinox.nn import RotaryPositionalEmbedding

from tests.conformance.adapting import against


@against("rotary", framework="jax", layout="half")
def turned(x, *, base=10000.0):
    """`RotaryPositionalEmbedding`, which takes no positions."""
    return jax.vmap(RotaryPositionalEmbedding(x.shape[-1], theta=base))(x)
