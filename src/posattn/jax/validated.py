"""What this column refuses, in one decorator: arrays of others, and switches that are none."""

import numpy as np
from jax import Array, dtypes

from posattn import contract

__all__ = []

validated = contract.validate(
    (Array, np.ndarray, np.generic),
    "JAX array",
    lambda given: dtypes.issubdtype(given, np.floating),
)
