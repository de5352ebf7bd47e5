"""Equinox: its rotation of a text from the first token on."""

import inspect
import math
from functools import partial

import jax
import jax.numpy as jnp
from equinox.nn import RotaryPositionalEmbedding

from posattn.conformance.adapters import rotation_of_heads
from tests.nightly.conformance.adapting import FLOAT32, against, because


@FLOAT32
def far():
    make = RotaryPositionalEmbedding.precompute_freqs_cis
    _, sin = make(8, 1000004, 10000.0, jnp.float32)
    print(sin[1000003, 1], "for", math.sin(1000003 / 10))


@because(
    "begin at 0",
    "0 to 4",
    "order of their own",
    whose="library",
    why="tables are kept by width and dtype alone, so a module may rotate by the base of an earlier one",
)
def stale():
    x = jnp.array([[0.0, 1.0, 0.0, 0.0]] * 2)
    RotaryPositionalEmbedding(4, theta=10000.0)(x)
    print(RotaryPositionalEmbedding(4, theta=100.0)(x)[1, 3], "for", math.sin(1 / 10))


@because("fractions", whose="convention",
         why="a token's row is its position, so there are no fractions")  # fmt: skip
def fractions():
    print(*inspect.signature(RotaryPositionalEmbedding(8)).parameters, "for x, positions")


@against("rotary", framework="jax", layout="half")
def rotated(x, *, base=10000.0):
    """`RotaryPositionalEmbedding`, which takes no positions."""
    return jax.vmap(RotaryPositionalEmbedding(x.shape[-1], theta=base))(x)


@against("rotary", far, stale, fractions, framework="jax", layout="half")
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
