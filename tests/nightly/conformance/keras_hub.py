"""KerasHub: its rotation, its sinusoids and its ALiBi."""

from functools import partial

import tensorflow as tf
from keras_hub.layers import AlibiBias, RotaryEmbedding, SinePositionEncoding

from posattn.conformance.adapters import rotation_of_heads
from tests.nightly.conformance.adapting import FLOAT32, against

# also of angles that no cell asks for
WIDE = FLOAT32._replace(words=("large positions", "cannot hold"), shown="")


@against("rotary", FLOAT32, framework="tensorflow", layout="half")
@partial(rotation_of_heads, head_axis=2)
def rotated(x, positions, *, base=10000.0):
    """`RotaryEmbedding`."""
    return RotaryEmbedding(max_wavelength=base)(x, positions=positions)


def read(dim, **options):
    """The frequencies and the factor of a rotation, as it turns the first token after position 0."""
    ones = tf.constant([[[1.0] * (dim // 2) + [0.0] * (dim // 2)]])
    cos, sin = tf.split(RotaryEmbedding(**options)(ones, start_index=1)[0, 0], 2)
    return tf.atan2(sin, cos), tf.sqrt(cos**2 + sin**2)[0]


@against("position_interpolation", framework="tensorflow")
def linear(dim, *, base=10000.0, factor):
    """The rope type linear of `RotaryEmbedding`."""
    return read(dim, max_wavelength=base, scaling_factor=factor)[0]


@against("yarn", framework="tensorflow")
def yarn(
    dim,
    *,
    base=10000.0,
    factor,
    trained_length,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=True,
):
    """The rope type yarn of `RotaryEmbedding`."""
    rope = {"rope_type": "yarn", "original_max_position_embeddings": trained_length}
    ramp = {"beta_fast": beta_fast, "beta_slow": beta_slow, "truncate": truncate}
    return read(dim, max_wavelength=base, scaling_factor=factor, **rope, **ramp)


@against("sinusoidal", WIDE, framework="tensorflow")
def sinusoids(length_or_positions, dim, *, base=10000.0):
    """`SinePositionEncoding`."""
    given = tf.cast(length_or_positions, "float32")
    positions = given if given.ndim else tf.range(given)
    tokens = tf.zeros((*positions.shape, dim))
    out = SinePositionEncoding(max_wavelength=base)(
        tokens if tokens.ndim == 3 else tokens[None], positions=positions
    )
    return tf.reshape(out, tokens.shape)


@against("alibi_slopes", framework="tensorflow")
def slopes(num_heads):
    """The slopes of `AlibiBias`: its difference from one key to the next."""
    bias = AlibiBias()(tf.zeros((1, num_heads, 1, 2)))
    return tf.reshape(bias[..., 1] - bias[..., 0], (num_heads,))
