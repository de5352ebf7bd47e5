"""Exercise 4: the sinusoidal encoding.

Pair j of a row of width d has the frequency base ** (-2 j / d).
Column 2 j holds the sine of position times frequency, and column 2 j + 1 the cosine.
"""

import numpy as np


def sinusoidal(
    length_or_positions: int | np.ndarray, dim: int, *, base: float = 10000.0
) -> np.ndarray:
    """Encode positions.

    Position 1 in four columns is [0.8415, 0.5403, 0.01, 1].

    Args:
        length_or_positions: a length n, for the positions 0 to n - 1, or an array of positions of
            any shape, which need not be whole.
        dim: the width d. If it is odd, the last column is a sine.
        base: the base of the frequencies.

    Returns:
        `(n, dim)`, or the shape of the positions followed by `dim`.
    """
    raise NotImplementedError
