"""Randomised positions: short sequences that have seen large positions."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Integer

from posattn import contract
from posattn.jax.validated import validated

__all__ = ["randomized_positions"]


@validated
def randomized_positions(length: int, max_len: int, *, rng: Array) -> Integer[Array, " n"]:
    """Draw positions for a sequence, in order, from a range that is wider than the sequence.

    Twin of :func:`posattn.reference.randomized_positions`; `rng` is a JAX key.
    `jax.vmap` over keys draws once per example.

    Args:
        length: n, the number of tokens, at most `max_len`.
        max_len: L, the number of positions to draw from, at least 1.
        rng: a JAX key, where the numbers are drawn from.

    Returns:
        `(n)`, increasing integers from 0 to L - 1.

    Examples:
        >>> randomized_positions(3, 3, rng=jax.random.key(0))
        Array([0, 1, 2], dtype=int32)
    """
    length, max_len = contract.sample(length, max_len)
    return jnp.sort(jax.random.choice(rng, max_len, (length,), replace=False))
