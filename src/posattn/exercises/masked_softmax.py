"""Exercise 1: a softmax with a mask.

The softmax of a row of scores is exp(s) divided by the sum of exp(s) over the row.
A mask says which entries count: True means may attend.
What is hidden has the weight 0, and a row in which everything is hidden has only zeros.
Scores may be as large as 10000, and hidden ones may be infinite.
"""

import numpy as np


def masked_softmax(scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Normalize scores over the last axis.

    With scores [0, 0, 1] and the last one hidden, the weights are [0.5, 0.5, 0].

    Args:
        scores: `(..., n_q, n_k)`.
        mask: True or False, of a shape that broadcasts to that of `scores`; None hides nothing.
    """
    raise NotImplementedError
