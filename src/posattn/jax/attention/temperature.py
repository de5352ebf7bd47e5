"""Temperature: queries that grow with their position, so that long contexts don't blur the weights."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.validated import validated

__all__ = ["log_temperature"]


@validated
def log_temperature(
    positions: Real[Array | np.ndarray, "*batch n"],
    trained_length: float,
    scale: float = 0.1,
    *,
    first: int = 1,
    smooth: bool = False,
) -> Float[Array, "*batch n"]:
    """The factor on a query that grows with the logarithm of its position.

    Twin of :func:`posattn.reference.log_temperature`.

    Args:
        positions: p, `(*batch, n)`.
        trained_length: L, above 0, in tokens.
        scale: beta.
        first: a, what position 0 counts as.
        smooth: grow with every position, and not in steps of L.

    Returns:
        The factor, `(*batch, n)`, of JAX's default dtype.

    Examples:
        >>> log_temperature(jnp.array([0, 8190, 8191]), 8192).round(1)
        Array([1. , 1. , 1.1], dtype=float32)
    """
    contract.positions("positions", positions)
    first, length = (
        contract.integer("first", first),
        contract.positive("trained_length", trained_length),
    )
    share = (jnp.asarray(positions) + first) / length
    grown = jnp.log(jnp.maximum(share, 1)) if smooth else jnp.log1p(jnp.floor(share))
    return 1 + contract.finite("scale", scale) * grown
