"""Masks: which query may attend to which key. True means may attend."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Integer

from posattn import contract

__all__ = ["causal_mask", "length_mask", "window_mask"]


def _distances(n_q: int, n_k: int | None) -> Integer[Array, "n_q n_k"]:
    """Key position minus query position, the last query standing at the last key."""
    n_q = contract.integer("n_q", n_q)
    n_k = n_q if n_k is None else contract.integer("n_k", n_k)
    return jnp.arange(n_k) - jnp.arange(n_k - n_q, n_k)[:, None]


def causal_mask(n_q: int, n_k: int | None = None) -> Bool[Array, "n_q n_k"]:
    """Let each query attend to its own position and to the past.

    Twin of :func:`posattn.reference.causal_mask`.

    Examples:
        >>> causal_mask(2)
        Array([[ True, False],
               [ True,  True]], dtype=bool)
    """
    return _distances(n_q, n_k) <= 0


def length_mask(
    lengths: Integer[Array, "batch"] | Integer[Array, "batch n_q"], n_k: int
) -> Bool[Array, "batch _ n_k"]:
    """Let queries attend to the first keys only, as many as `lengths` says.

    Twin of :func:`posattn.reference.length_mask`.
    Under `jax.jit` the values of `lengths` are not checked.

    Examples:
        >>> length_mask(jnp.array([3, 1]), 4).astype(int)
        Array([[[1, 1, 1, 0]],
        <BLANKLINE>
               [[1, 0, 0, 0]]], dtype=int32)
    """
    n_k = contract.integer("n_k", n_k)
    contract.lengths(lengths, n_k, known=not isinstance(lengths, jax.core.Tracer))
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    return jnp.arange(n_k) < per_query[..., None]


def window_mask(n_q: int, n_k: int, window: int) -> Bool[Array, "n_q n_k"]:
    """Let each query attend to the keys nearer than `window` positions, on both sides.

    Twin of :func:`posattn.reference.window_mask`.

    Examples:
        >>> window_mask(3, 3, 2).astype(int)
        Array([[1, 1, 0],
               [1, 1, 1],
               [0, 1, 1]], dtype=int32)
    """
    window = contract.integer("window", window, least=1)
    return jnp.abs(_distances(n_q, n_k)) < window
