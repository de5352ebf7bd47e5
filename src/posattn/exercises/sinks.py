"""Exercise 3: attention with a sink.

In gpt-oss each head has a learned number, its sink.
It joins the softmax like the score of one more key, and has no value:
so the weights of a query sum to less than 1, and a head can attend to next to nothing.
"""

import numpy as np


def sinks(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    sinks: np.ndarray,
    causal: bool = False,
) -> np.ndarray:
    """Attend with a sink in each head.

    With one key of score 0 and a sink of 0, the key's weight is 1/2.

    Args:
        query: `(..., h, n_q, d)`.
        key: `(..., h_kv, n_k, d)`. If `h_kv` is smaller than `h`, neighboring heads share keys.
        value: `(..., h_kv, n_k, d_v)`.
        sinks: `(h,)`. They are not scaled.
        causal: hide the future. The last query stands at the last key.

    Returns:
        `(..., h, n_q, d_v)`.
    """
    raise NotImplementedError
