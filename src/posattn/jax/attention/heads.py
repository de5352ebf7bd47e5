"""Heads: the width of a sequence cut into parts, and put back together."""

from jax import Array
from jaxtyping import Float

from posattn import contract
from posattn.jax.validated import validated

__all__ = ["merge_heads", "split_heads"]


@validated
def split_heads(
    x: Float[Array, "*batch n d"], num_heads: int
) -> Float[Array, "*batch h n d_h"]:
    """Cut the width into heads and make the heads a batch axis.

    Twin of :func:`posattn.reference.split_heads`.

    Args:
        x: `(*batch, n, d)`.
        num_heads: the number of heads, a divisor of $d$.

    Returns:
        `(*batch, h, n, d / h)`.

    Examples:
        >>> import jax.numpy as jnp
        >>> split_heads(jnp.array([[0.0, 1.0, 2.0, 3.0]]), 2)
        Array([[[0., 1.]],
        <BLANKLINE>
               [[2., 3.]]], dtype=float32)
    """
    contract.sequence("x", x)
    *batch, n, d = x.shape
    num_heads = contract.heads(num_heads, d)
    return x.reshape(*batch, n, num_heads, d // num_heads).swapaxes(-3, -2)


@validated
def merge_heads(x: Float[Array, "*batch h n d_h"]) -> Float[Array, "*batch n d"]:
    """Put the heads back side by side: the inverse of `split_heads`.

    Twin of :func:`posattn.reference.merge_heads`.

    Args:
        x: `(*batch, h, n, d_h)`.

    Returns:
        `(*batch, n, h * d_h)`.

    Examples:
        >>> import jax.numpy as jnp
        >>> merge_heads(jnp.array([[[0.0, 1.0]], [[2.0, 3.0]]]))
        Array([[0., 1., 2., 3.]], dtype=float32)
    """
    contract.head_sequence("x", x)
    *batch, num_heads, n, head_dim = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, n, num_heads * head_dim)
