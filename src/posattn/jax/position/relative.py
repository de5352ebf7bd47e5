"""Relative representations: a learned vector for each offset between query and key."""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.attention.masks import relative_positions
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["RelativeGlobalAttention", "ShawRelative", "skew"]


@validated
@register
@dataclass(frozen=True, eq=False)
class ShawRelative:
    r"""Shaw's relative representations: each offset has a vector that is added to keys, and one for values.

    Twin of :class:`posattn.reference.ShawRelative`; a pytree.
    Queries meet each vector once, and their products are then picked by offset, so that no vector is
    copied for a pair; sums are taken in float32 at least.

    Args:
        key_table: $\mathbf{A}^{(k)}$, `(2 * max_distance + 1, d_h)` with $m$ = `max_distance`.
        value_table: $\mathbf{A}^{(v)}$, of the same shape, or None.

    Examples:
        >>> bias = ShawRelative.init(jax.random.key(0), max_distance=4, head_dim=2)
        >>> query = key = jnp.ones((3, 5, 2))
        >>> bias.scores(query, key, jnp.arange(5), jnp.arange(5)).shape
        (3, 5, 5)
    """

    needs_all_keys = False
    key_table: Float[Array, "offsets d_h"]
    value_table: Float[Array, "offsets d_h"] | None = None

    @classmethod
    def init(
        cls,
        rng: Array,
        max_distance: int,
        head_dim: int,
        *,
        use_values: bool = True,
        dtype: DTypeLike | None = None,
    ) -> "ShawRelative":
        """Draw the tables uniformly, within the bounds of Glorot.

        Twin of :meth:`posattn.reference.ShawRelative.init`; `rng` is a JAX key.

        Args:
            rng: where the tables are drawn from.
            max_distance: $m$, the largest offset that has its own vector, at least 0.
            head_dim: the width $d_h$ of a head, at least 1.
            use_values: whether offsets act on values, too.
            dtype: of the parameters; JAX's default one if not given.
        """
        rows = 2 * contract.integer("max_distance", max_distance) + 1
        head_dim = contract.integer("head_dim", head_dim, least=1)
        dtype = jnp.result_type(float if dtype is None else dtype)
        bound = math.sqrt(6 / (rows + head_dim))
        tables = jax.random.uniform(rng, (2, rows, head_dim), dtype, -bound, bound)
        return cls(tables[0], tables[1] if use_values else None)

    def scores(
        self,
        query: Float[Array, "*batch h n_q d_h"],
        key: Float[Array, "*batch h n_k d_h"],
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """What is added to the scores.

        Twin of :meth:`posattn.reference.ShawRelative.scores`.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`; only their shape and dtype are looked at.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        head_dim = self.key_table.shape[-1]
        contract.tile(query, key, query_positions, key_positions, head_dim, integers=True)
        reach = contract.offset_table("key_table", self.key_table, odd=True)
        rows = offsets(query_positions, key_positions).clip(-reach, reach) + reach
        wide = jnp.promote_types(query.dtype, jnp.float32)
        products = query.astype(wide) @ self.key_table.astype(wide).T / math.sqrt(head_dim)
        return pick(products, rows).astype(query.dtype)

    def values(
        self,
        weights: Float[Array, "*batch h n_q n_k"],
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q d_h"]:
        """What is added to the output of the heads.

        Twin of :meth:`posattn.reference.ShawRelative.values`; it adds up the weights of each offset first.

        Args:
            weights: the attention weights $w$, `(*batch, h, n_q, n_k)`.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, d_h)`, zeros without a table of values.
        """
        contract.head_sequence("weights", weights)
        contract.tile_positions(
            query_positions, key_positions, weights.shape, integers=True
        )
        if self.value_table is None:
            return jnp.zeros((*weights.shape[:-1], self.key_table.shape[-1]), weights.dtype)
        reach = contract.offset_table("value_table", self.value_table, odd=True)
        rows = offsets(query_positions, key_positions).clip(-reach, reach) + reach
        wide = jnp.promote_types(weights.dtype, jnp.float32)
        totals = _total(weights.astype(wide), rows, 2 * reach + 1)
        return (totals @ self.value_table.astype(wide)).astype(weights.dtype)


@validated
def skew(x: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    r"""Move products with a table of distances to the keys at those distances.

    Twin of :func:`posattn.reference.skew`.

    Args:
        x: $\mathbf{X}$, `(*batch, n, n)`, for the queries and keys of the same $n$ tokens.

    Returns:
        `(*batch, n, n)`.

    Examples:
        >>> skew(jnp.array([[0.0, 1.0], [2.0, 3.0]]))
        Array([[1., 0.],
               [2., 3.]], dtype=float32)
    """
    contract.square("x", x)
    *batch, n, _ = x.shape
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)])
    return padded.reshape(*batch, n + 1, n)[..., 1:, :]


@validated
@register
@dataclass(frozen=True, eq=False)
class RelativeGlobalAttention:
    r"""The relative attention of the Music Transformer: each head has a vector for each distance.

    Twin of :class:`posattn.reference.RelativeGlobalAttention`; a pytree.
    Queries meet each vector once, and their products are then picked by distance.

    Args:
        table: $\mathbf{E}$, `(h, max_len, d_h)` with $n_{\max}$ = `max_len`.

    Examples:
        >>> bias = RelativeGlobalAttention.init(jax.random.key(0), 8, num_heads=3, head_dim=2)
        >>> query = key = jnp.ones((3, 5, 2))
        >>> bias.scores(query, key, jnp.arange(5), jnp.arange(5)).shape
        (3, 5, 5)
    """

    needs_all_keys = False
    table: Float[Array, "h max_len d_h"]

    @classmethod
    def init(
        cls,
        rng: Array,
        max_len: int,
        num_heads: int,
        head_dim: int,
        *,
        dtype: DTypeLike | None = None,
    ) -> "RelativeGlobalAttention":
        r"""Draw the table from a normal distribution.

        Twin of :meth:`posattn.reference.RelativeGlobalAttention.init`; `rng` is a JAX key.

        Args:
            rng: where the table is drawn from.
            max_len: $n_{\max}$, the number of distances with a vector, at least 1.
            num_heads: the number of heads, at least 1.
            head_dim: the width $d_h$ of a head, at least 1.
            dtype: of the parameters; JAX's default one if not given.
        """
        max_len, num_heads, head_dim = contract.sizes(
            max_len=max_len, num_heads=num_heads, head_dim=head_dim
        )
        dtype = jnp.result_type(float if dtype is None else dtype)
        table = jax.random.normal(rng, (num_heads, max_len, head_dim), dtype)
        return cls(table / math.sqrt(head_dim))

    def scores(
        self,
        query: Float[Array, "*batch h n_q d_h"],
        key: Float[Array, "*batch h n_k d_h"],
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """What is added to the scores.

        Twin of :meth:`posattn.reference.RelativeGlobalAttention.scores`.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`; only their shape and dtype are looked at.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`, 0 for keys in the future and for those too far away.
        """
        num_heads, max_len, head_dim = self.table.shape
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=num_heads, integers=True)  # fmt: skip
        rows = max_len - 1 + offsets(query_positions, key_positions)
        wide = jnp.promote_types(query.dtype, jnp.float32)
        products = query.astype(wide) @ self.table.astype(wide).mT / math.sqrt(head_dim)
        return pick(products, rows).astype(query.dtype)


def offsets(query_positions, key_positions):
    """Key minus query for every head, `(*batch, 1, n_q, n_k)`."""
    return jnp.asarray(relative_positions(query_positions, key_positions))[..., None, :, :]


@partial(jnp.vectorize, signature="(m),(k)->(k)")
def pick(products, rows):
    """From the products of a query with all rows, those with the rows that its keys have, or 0."""
    return products.at[rows].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def _total(weights, rows, num_rows):
    """For each query the total weight of the keys that have the same row."""
    add_up = partial(jax.ops.segment_sum, num_segments=num_rows)
    return jnp.vectorize(add_up, signature="(k),(k)->(m)")(weights, rows)
