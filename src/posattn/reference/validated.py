"""What this column refuses, in one decorator: arrays of others, and switches that are none."""

import numpy as np

from posattn import contract

__all__ = []

validated = contract.validate(
    (np.ndarray, np.generic),
    "NumPy array",
    source="numpy.random.Generator",
    is_source=lambda given: isinstance(given, np.random.Generator),
)
