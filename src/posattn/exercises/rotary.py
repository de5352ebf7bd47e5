"""Exercise 5: rotary position embedding, neighbors paired.

Entries 2 j and 2 j + 1 form pair j, which is a point of the plane.
It is rotated about the origin by position times base ** (-2 j / d).
Check it for a rotation by halves of the vector, entry j with entry j + d / 2, as `rotary_half`.
"""

import numpy as np


def rotary(
    x: np.ndarray, positions: np.ndarray | None = None, *, base: float = 10000.0
) -> np.ndarray:
    """Rotate queries or keys by their positions.

    The pair (1, 0) at position 1 becomes (0.5403, 0.8415).

    Args:
        x: `(..., n, d)`, with an even d.
        positions: `(n,)`, or `(..., n)` with other positions for each example; None means 0 to n - 1.
        base: the base of the frequencies.

    Returns:
        The shape of `x`.
    """
    raise NotImplementedError
