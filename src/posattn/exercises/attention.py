"""Exercise 2: scaled dot-product attention.

Scores are the products of queries and keys, divided by the square root of their width.
Each query returns the mean of the values, weighted by the softmax of its scores.
With fewer queries than keys, the queries are the last tokens of the text: that is how a model decodes.
"""

import numpy as np


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    mask: np.ndarray | None = None,
    causal: bool = False,
) -> np.ndarray:
    """Attend from each query to all keys that it may see.

    Args:
        query: `(..., n_q, d)`.
        key: `(..., n_k, d)`.
        value: `(..., n_k, d_v)`.
        mask: True means may attend; it broadcasts to `(..., n_q, n_k)`. A query that may attend to
            nothing returns zeros, and what is hidden has no influence, not even where it is NaN.
        causal: hide the future. The last query stands at the last key. A mask holds besides.

    Returns:
        `(..., n_q, d_v)`.
    """
    raise NotImplementedError
