"""Heads: the width of a sequence cut into parts, and put back together."""

import numpy as np
from jaxtyping import Num

from posattn import contract
from posattn.reference.validated import validated

__all__ = ["merge_heads", "split_heads"]


@validated
def split_heads(
    x: Num[np.ndarray, "*batch n d"], num_heads: int
) -> Num[np.ndarray, "*batch h n d_h"]:
    r"""Cut the width into heads and make the heads a batch axis.

    Head $h$ gets the columns $h d_h, \ldots, (h + 1) d_h - 1$ with $d_h = d / H$.

    Args:
        x: `(*batch, n, d)`.
        num_heads: the number of heads $H$, a divisor of $d$.

    Returns:
        `(*batch, H, n, d / H)`.

    Raises:
        ValueError: if `x` has fewer than two axes or `num_heads` does not divide its width.

    Examples:
        >>> split_heads(np.array([[0.0, 1.0, 2.0, 3.0]]), 2)
        array([[[0., 1.]],
        <BLANKLINE>
               [[2., 3.]]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.2.2.
    """
    contract.sequence("x", x)
    *batch, n, d = x.shape
    num_heads = contract.heads(num_heads, d)
    return np.swapaxes(x.reshape(*batch, n, num_heads, d // num_heads), -3, -2)


@validated
def merge_heads(x: Num[np.ndarray, "*batch h n d_h"]) -> Num[np.ndarray, "*batch n d"]:
    r"""Put the heads back side by side: the inverse of `split_heads`.

    Args:
        x: `(*batch, H, n, d_h)`.

    Returns:
        `(*batch, n, H d_h)`.

    Raises:
        ValueError: if `x` has fewer than three axes.

    Examples:
        >>> merge_heads(np.array([[[0.0, 1.0]], [[2.0, 3.0]]]))
        array([[0., 1., 2., 3.]])
    """
    contract.head_sequence("x", x)
    *batch, num_heads, n, head_dim = x.shape
    return np.swapaxes(x, -3, -2).reshape(*batch, n, num_heads * head_dim)
