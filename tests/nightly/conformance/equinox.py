"""Equinox: its rotation of a text from the first token on."""

from functools import partial

import jax
import jax.numpy as jnp
from equinox.nn import RotaryPositionalEmbedding

from posattn.conformance.adapters import rotation_of_heads
from tests.nightly.conformance.adapting import FLOAT32, Reason, against

STALE = Reason(
    ("begin at 0", "0 to 4", "order of their own"),
    "library",
    "tables are kept by width and dtype alone, so a module may rotate by the base of an earlier one",
    "two_bases",
)
WHOLE = Reason(
    ("fractions",),
    "convention",
    "a token's row is its position, so there are no fractions",
    "no_positions",
)


@against("rotary", framework="jax", layout="half")
def rotated(x, *, base=10000.0):
    """`RotaryPositionalEmbedding`, which takes no positions."""
    return jax.vmap(RotaryPositionalEmbedding(x.shape[-1], theta=base))(x)


@against("rotary", FLOAT32, STALE, WHOLE, framework="jax", layout="half")
@partial(rotation_of_heads, head_axis=None)
def rows(x, positions, *, base=10000.0):
    """`RotaryPositionalEmbedding`, with each token alone in its row of a longer text."""
    rope = RotaryPositionalEmbedding(x.shape[-1], theta=base)
    text = jnp.zeros((positions.max(initial=0) + 1, x.shape[-1]))
    tokens = x.reshape(positions.size, x.shape[-1]), positions.flatten()
    alone = jax.lax.map(
        lambda token: rope(text.at[token[1]].set(token[0]))[token[1]], tokens
    )
    return alone.reshape(x.shape)
