"""Keras on JAX, `MultiHeadAttention` and KerasHub's `RotaryEmbedding`."""

import os

os.environ["KERAS_BACKEND"] = "jax"
from tests.nightly.world.keras_layers import *  # noqa: F403

INSTALL = [
    "numpy==2.4.6 torch==2.13.0 jax==0.10.2 tensorflow-cpu==2.21.0 keras-hub==0.32.0",
    "keras==3.15.1",
]
