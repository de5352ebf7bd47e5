"""Exercise 8: the slopes of ALiBi.

With n heads, n a power of two, head h = 1 ... n has the slope 2 ** (-8 h / n).
For any other n, take the slopes of the power of two below n.
Then go on with every other slope of the next power of two, beginning with its first.
"""

import numpy as np


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Compute the slopes of all heads.

    Three heads have the slopes 1/16, 1/256 and 1/4.

    Args:
        num_heads: the number of heads.

    Returns:
        `(num_heads,)`.
    """
    raise NotImplementedError
