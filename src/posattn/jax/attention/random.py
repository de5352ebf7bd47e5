"""Randomness: dropout, which draws from a JAX key."""

import jax
from jax import Array
from jaxtyping import Float

from posattn import contract
from posattn.jax.validated import validated

__all__ = ["dropout"]


@validated
def dropout(
    x: Float[Array, "*shape"], dropout_rate: float, rng: Array | None = None
) -> Float[Array, "*shape"]:
    """Set entries to zero at random and scale the others, so that the mean stays.

    Twin of :func:`posattn.reference.dropout`; `rng` is a JAX key.

    Args:
        x: any shape.
        dropout_rate: probability in [0, 1) of dropping an entry.
        rng: where the randomness comes from; None means no dropout.

    Returns:
        `x` with some entries dropped, of the same shape.

    Examples:
        >>> import jax.numpy as jnp
        >>> kept = dropout(jnp.ones(1000), 0.5, jax.random.key(0))
        >>> jnp.unique(kept)
        Array([0., 2.], dtype=float32)
    """
    contract.floating("x", x)
    rate = contract.dropout_rate(dropout_rate)
    if rng is None or rate == 0:
        return x
    return x * jax.random.bernoulli(rng, 1 - rate, x.shape) / (1 - rate)
