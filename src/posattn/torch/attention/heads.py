"""Heads: the width of a sequence cut into parts, and put back together."""

from jaxtyping import Float
from torch import Tensor

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["merge_heads", "split_heads"]


@validated
def split_heads(
    x: Float[Tensor, "*batch n d"], num_heads: int
) -> Float[Tensor, "*batch h n d_h"]:
    """Cut the width into heads and make the heads a batch axis.

    Twin of :func:`posattn.reference.split_heads`; the result is a view.

    Args:
        x: `(*batch, n, d)`.
        num_heads: the number of heads H, a divisor of d.

    Returns:
        `(*batch, H, n, d / H)`.

    Examples:
        >>> import torch
        >>> split_heads(torch.tensor([[0.0, 1.0, 2.0, 3.0]]), 2)
        tensor([[[0., 1.]],
        <BLANKLINE>
                [[2., 3.]]])
    """
    contract.sequence("x", x)
    num_heads = contract.heads(num_heads, x.shape[-1])
    return x.unflatten(-1, (num_heads, x.shape[-1] // num_heads)).transpose(-3, -2)


@validated
def merge_heads(x: Float[Tensor, "*batch h n d_h"]) -> Float[Tensor, "*batch n d"]:
    """Put the heads back side by side: the inverse of `split_heads`.

    Twin of :func:`posattn.reference.merge_heads`.

    Args:
        x: `(*batch, H, n, d_h)`.

    Returns:
        `(*batch, n, H d_h)`.

    Examples:
        >>> import torch
        >>> merge_heads(torch.tensor([[[0.0, 1.0]], [[2.0, 3.0]]]))
        tensor([[0., 1., 2., 3.]])
    """
    contract.head_sequence("x", x)
    return x.transpose(-3, -2).flatten(-2)
