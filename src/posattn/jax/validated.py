"""What this column refuses, in one decorator: arrays of others, and switches that are none."""

import jax.numpy as jnp
import numpy as np
from jax import Array, dtypes

from posattn import contract

__all__ = []


def is_key(rng):
    """Whether `rng` is what JAX draws from: a key, typed or raw."""
    return isinstance(rng, Array) and (
        jnp.issubdtype(rng.dtype, dtypes.prng_key) or rng.dtype == jnp.uint32
    )


validated = contract.validate(
    (Array, np.ndarray, np.generic),
    "JAX array",
    lambda given: dtypes.issubdtype(given, np.floating),
    source="JAX key",
    is_source=is_key,
)
