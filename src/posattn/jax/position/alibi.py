"""ALiBi: each head subtracts from its scores in proportion to the distance."""

from dataclasses import KW_ONLY, dataclass, field

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.attention.masks import relative_positions
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["ALiBi", "alibi_slopes"]


@validated
def alibi_slopes(num_heads: int) -> Float[np.ndarray, " h"]:
    """How steeply each head of ALiBi falls with the distance.

    Twin of :func:`posattn.reference.alibi_slopes`.
    A NumPy array in float64, which JAX has only in its 64-bit mode: slopes multiply distances.

    Args:
        num_heads: number of heads, at least 1.

    Returns:
        The slopes, positive, one per head, `(h)`.

    Examples:
        >>> -np.log2(alibi_slopes(3))
        array([4., 8., 2.])
    """
    num_heads = contract.integer("num_heads", num_heads, least=1)
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    between = [4 * h / power for h in range(1, 2 * power, 2)]
    return 2.0 ** -np.array([*exponents, *between][:num_heads])


@validated
@register
@dataclass(frozen=True)
class ALiBi:
    """A linear penalty on distance, with its own slope in each head.

    Twin of :class:`posattn.reference.ALiBi`; a pytree without leaves, equal to all with as many heads.

    Args:
        num_heads: number of heads, at least 1.
        dtype: of the bias; JAX's default one if not given.

    Examples:
        >>> ALiBi(1)(jnp.array([7]), jnp.array([3, 8]))
        Array([[[-0.015625  , -0.00390625]]], dtype=float32)
        >>> ALiBi(8) == ALiBi(8)
        True
    """

    num_heads: int = field(metadata={"static": True})
    _: KW_ONLY
    dtype: DTypeLike | None = field(default=None, metadata={"static": True})

    def __post_init__(self):
        contract.integer("num_heads", self.num_heads, least=1)
        if self.dtype is not None:
            object.__setattr__(self, "dtype", jnp.dtype(self.dtype))

    def __call__(
        self,
        query_positions: Real[Array | np.ndarray, "*#batch n_q"],
        key_positions: Real[Array | np.ndarray, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.ALiBi`.
        Up to position 2**20 its relative error is below 2**-23 in float32.

        Args:
            query_positions: where the queries stand, in tokens, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`.

        Returns:
            The bias, at most 0, `(*batch, h, n_q, n_k)`.
        """
        distances = abs(relative_positions(query_positions, key_positions))
        slopes = alibi_slopes(self.num_heads)[:, None, None]
        dtype = jnp.result_type(float if self.dtype is None else self.dtype)
        return jnp.asarray(-slopes * distances[..., None, :, :], dtype)
