"""Exercise 6: rotary position embedding, halves paired.

As exercise 5, but entries j and j + d / 2 form pair j, as in the checkpoints of transformers.
"""

import numpy as np


def rotary_half(
    x: np.ndarray, positions: np.ndarray | None = None, *, base: float = 10000.0
) -> np.ndarray:
    """Rotate queries or keys by their positions.

    Args:
        x: `(..., n, d)`, with an even d.
        positions: `(n,)`, or `(..., n)` with other positions for each example; None means 0 to n - 1.
        base: the base of the frequencies.

    Returns:
        The shape of `x`.
    """
    raise NotImplementedError
