"""Exercise 7: convert a checkpoint.

A model was trained with neighbors paired, and your code pairs halves.
Reorder the columns of its weights for queries and keys, so that your code computes the same scores.
"""

import numpy as np


def weight_to_half(
    weight: np.ndarray, num_heads: int, rotary_dim: int | None = None
) -> np.ndarray:
    """Put columns of the layout interleaved into the order of the layout half, head by head.

    The columns 0 1 2 3 of a head become 0 2 1 3.

    Args:
        weight: `(d_in, num_heads * head_dim)`, used as `x @ weight`; or `(num_heads * head_dim,)`, its
            offset.
        num_heads: the number of heads.
        rotary_dim: only the first `rotary_dim` entries of each head rotate; None means all.

    Returns:
        The shape of `weight`.
    """
    raise NotImplementedError
