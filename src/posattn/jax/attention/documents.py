"""Packed documents: where one ends and the next begins in a row of tokens."""

import jax.numpy as jnp
from jax import lax

__all__ = []


def document_starts(documents, mask, shape):
    """Which tokens are the first of another document than the token before them, `(*batch, n)`.

    Tokens that `mask` hides are skipped, and the first token of a row continues what came before it.
    """
    documents = jnp.broadcast_to(documents, shape)
    seen = jnp.broadcast_to(True if mask is None else mask, shape)
    places = jnp.where(seen, jnp.arange(shape[-1]), -1)
    last = lax.cummax(places, axis=len(shape) - 1)
    last = jnp.where(jnp.arange(shape[-1]) == 0, -1, jnp.roll(last, 1, axis=-1))
    before = jnp.take_along_axis(documents, jnp.maximum(last, 0), axis=-1)
    return seen & (last >= 0) & (documents != before)
