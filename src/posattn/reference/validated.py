"""What this column refuses, in one decorator: arrays of others, and switches that are none."""

import numpy as np

from posattn import contract

__all__ = []

validated = contract.validate((np.ndarray, np.generic), "NumPy array")
