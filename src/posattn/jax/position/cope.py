"""CoPE: a position is a count of the tokens that the query holds for worth counting."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["CoPE"]


@validated
@register
@dataclass(frozen=True, eq=False)
class CoPE:
    r"""Contextual position encoding: gates count the tokens between a query and a key.

    Twin of :class:`posattn.reference.CoPE`; a pytree.
    Half-precision heads are counted in float32.
    It counts over all keys of a query, so that keys cannot come tile by tile: `needs_all_keys` is true.

    Args:
        table: $\mathbf{e}_0, \ldots, \mathbf{e}_{n_{\max}-1}$, `(max_len, d_h)`; $n_{\max}$ is one
            more than the largest count.

    Examples:
        >>> cope = CoPE.init(jax.random.key(0), 16, 4)
        >>> query, key = jnp.ones((2, 1, 4)), jnp.ones((2, 3, 4))
        >>> cope.scores(query, key, jnp.array([2]), jnp.arange(3)).shape
        (2, 1, 3)
    """

    needs_all_keys = True
    table: Float[Array, "max_len d_h"]

    @classmethod
    def init(
        cls, rng: Array, max_len: int, head_dim: int, *, dtype: DTypeLike | None = None
    ) -> "CoPE":
        """Draw the table from a normal distribution with mean 0 and standard deviation 0.02.

        Twin of :meth:`posattn.reference.CoPE.init`; `rng` is a JAX key.

        Args:
            rng: where the table is drawn from.
            max_len: the number of rows, one more than the largest count, at least 1.
            head_dim: the width of the heads, at least 1.
            dtype: of the parameters; JAX's default one if not given.

        Returns:
            The encoding.
        """
        max_len, head_dim = contract.sizes(max_len=max_len, head_dim=head_dim)
        dtype = jnp.result_type(float if dtype is None else dtype)
        return cls(0.02 * jax.random.normal(rng, (max_len, head_dim), dtype))

    def scores(
        self,
        query: Float[Array, "*batch h n_q d_h"],
        key: Float[Array, "*batch h n_k d_h"],
        query_positions: Real[Array, "*#batch n_q"],
        key_positions: Real[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        r"""What is added to the scaled scores.

        Twin of `scores` of :class:`posattn.reference.CoPE`.

        Args:
            query: $\mathbf{q}$ of each head, not yet scaled, `(*batch, h, n_q, d_h)`.
            key: $\mathbf{k}$ of each head, `(*batch, h, n_k, d_h)`, in the order of their positions.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; a query counts
                the keys that stand at or before its own position.

        Returns:
            $b$, `(*batch, h, n_q, n_k)`.
        """
        max_len, head_dim = self.table.shape
        contract.tile(query, key, query_positions, key_positions, head_dim)
        dtype = query.dtype
        wide = jnp.promote_types(dtype, jnp.float32)
        query, key = query.astype(wide), key.astype(wide)
        passed = key_positions[..., None, :] <= query_positions[..., :, None]
        gates = jax.nn.sigmoid(query @ key.mT / math.sqrt(head_dim))
        gates = jnp.where(passed[..., None, :, :], gates, 0)
        count = jax.lax.cumsum(gates, axis=gates.ndim - 1, reverse=True)
        count = jnp.where(count < max_len - 1, count, max_len - 1)
        below, above = jnp.floor(count), jnp.ceil(count)
        products = query @ self.table.astype(wide).T
        share = count - below
        return (
            (1 - share) * jnp.take_along_axis(products, below.astype(int), axis=-1)
            + share * jnp.take_along_axis(products, above.astype(int), axis=-1)
        ).astype(dtype)
