"""Relative representations: a learned vector for each offset between query and key."""

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import register_dataclass
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.alibi import relative_positions
from posattn.jax.attention import is_key

__all__ = ["RelativeGlobalAttention", "ShawRelative", "skew"]


@register_dataclass
@dataclass(frozen=True, eq=False)
class ShawRelative:
    """Shaw's relative representations: offsets have vectors, which act like keys and like values.

    Twin of :class:`posattn.reference.ShawRelative`; a pytree.
    Queries meet each vector once, and their products are then picked by offset, so that no vector is
    copied for a pair; sums are taken in float32 at least.

    Examples:
        >>> bias = ShawRelative.init(jax.random.key(0), max_distance=4, head_dim=2)
        >>> query = key = jnp.ones((3, 5, 2))
        >>> bias.scores(query, key, jnp.arange(5), jnp.arange(5)).shape
        (3, 5, 5)
    """

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
        """
        rows = 2 * contract.integer("max_distance", max_distance) + 1
        head_dim = contract.integer("head_dim", head_dim, least=1)
        contract.rng(rng, is_key(rng), "JAX key")
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


def skew(x: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Move products with a table of distances to the keys that stand at these distances.

    Twin of :func:`posattn.reference.skew`.

    Examples:
        >>> skew(jnp.array([[0.0, 1.0], [2.0, 3.0]]))
        Array([[1., 0.],
               [2., 3.]], dtype=float32)
    """
    contract.square("x", x)
    *batch, n, _ = x.shape
    padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)])
    return padded.reshape(*batch, n + 1, n)[..., 1:, :]


@register_dataclass
@dataclass(frozen=True, eq=False)
class RelativeGlobalAttention:
    """The relative attention of the Music Transformer: each head has a vector for each distance.

    Twin of :class:`posattn.reference.RelativeGlobalAttention`; a pytree.
    Queries meet each vector once, and their products are then picked by distance.

    Examples:
        >>> bias = RelativeGlobalAttention.init(jax.random.key(0), 8, num_heads=3, head_dim=2)
        >>> query = key = jnp.ones((3, 5, 2))
        >>> bias.scores(query, key, jnp.arange(5), jnp.arange(5)).shape
        (3, 5, 5)
    """

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
        """Draw the table from a normal distribution.

        Twin of :meth:`posattn.reference.RelativeGlobalAttention.init`; `rng` is a JAX key.
        """
        max_len = contract.integer("max_len", max_len, least=1)
        num_heads = contract.integer("num_heads", num_heads, least=1)
        head_dim = contract.integer("head_dim", head_dim, least=1)
        contract.rng(rng, is_key(rng), "JAX key")
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
