"""Exercise 10: stretch the frequencies of a longer context.

NTK-aware scaling gives rotary embedding a larger base.
The first pair keeps its frequency 1, and the last pair becomes slower by exactly the factor.
Which base does that? Derive it, then write it down.
"""

import numpy as np


def ntk_aware(dim: int, *, base: float = 10000.0, factor: float) -> np.ndarray:
    """Compute the frequencies of a context that is longer by a factor.

    For a width of 4 and a factor of 4, they are 1 and 0.0025: 0.01 became slower by 4.

    Args:
        dim: the width of a head, even.
        base: the base that the model was trained with.
        factor: how many times as long the context should be.

    Returns:
        `(dim / 2,)`.
    """
    raise NotImplementedError
