"""Stick-breaking: each key takes a share of what the keys after it have left."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["StickBreaking"]


@validated
@register
@dataclass(frozen=True)
class StickBreaking:
    """The bias that turns a softmax into breaking a stick, from the newest key to the oldest.

    Twin of :class:`posattn.reference.StickBreaking`; a pytree without leaves.
    Half-precision heads are scored in float32.
    A share depends on all later keys, so that keys cannot come tile by tile: `needs_all_keys` is true.

    Examples:
        >>> query, key = jnp.zeros((1, 1, 4)), jnp.zeros((1, 4, 4))
        >>> jnp.exp(StickBreaking().scores(query, key, jnp.array([3]), jnp.arange(4))).round(4)
        Array([[[0.125, 0.25 , 0.5  , 0.125]]], dtype=float32)
    """

    needs_all_keys = True

    def scores(
        self,
        query: Float[Array, "*batch h n_q d_h"],
        key: Float[Array, "*batch h n_k d_h"],
        query_positions: Real[Array, "*#batch n_q"],
        key_positions: Real[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """What is added to the scaled scores.

        Twin of `scores` of :class:`posattn.reference.StickBreaking`.

        Args:
            query: the queries of each head, not yet scaled, `(*batch, h, n_q, d_h)`.
            key: the keys of each head, `(*batch, h, n_k, d_h)`, in the order of their positions.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; the keys before a query
                break its stick, and the key at its own position gets what remains.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        contract.head_sequence("query", query)
        contract.tile(query, key, query_positions, key_positions, query.shape[-1])
        query_positions = query_positions[..., :, None]
        before = (key_positions[..., None, :] < query_positions)[..., None, :, :]
        at = (key_positions[..., None, :] == query_positions)[..., None, :, :]
        wide = jnp.promote_types(query.dtype, jnp.float32)
        products = query.astype(wide) @ key.astype(wide).mT / math.sqrt(query.shape[-1])
        left = jnp.where(before, jax.nn.log_sigmoid(-products), 0)
        kept = jax.lax.cumsum(left, axis=left.ndim - 1, reverse=True)
        own = left.sum(-1, keepdims=True) - products
        return jnp.where(before, kept, jnp.where(at, own, 0)).astype(query.dtype)
