"""DeBERTa's disentangled attention: content asks for positions, and positions ask for content."""

from bisect import bisect_right
from dataclasses import KW_ONLY, dataclass, field
from functools import cache

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.attention.heads import split_heads
from posattn.jax.position.relative import offsets, pick
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["DisentangledBias", "deberta_bucket"]


@validated
def deberta_bucket(
    relative_position: Integer[Array, "*shape"],
    *,
    num_buckets: int = 256,
    max_distance: int = 512,
) -> Integer[Array, "*shape"]:
    """The bucket of a relative position in DeBERTa's second and third version, with its sign.

    Twin of :func:`posattn.reference.deberta_bucket`.

    Args:
        relative_position: the difference of two positions, integers of any shape.
        num_buckets: how many one direction has, even and at least 4: `position_buckets`.
        max_distance: where the last of them has ended: `max_relative_positions`, or, if that is negative,
            `max_position_embeddings`.

    Returns:
        Integers from `-num_buckets` to `num_buckets`, of the shape of `relative_position`.

    Examples:
        >>> deberta_bucket(jnp.array([-512, -129, 5, 128, 132]))
        Array([-256, -129,    5,  128,  131], dtype=int32)
    """
    contract.integer_array("relative_position", relative_position)
    alone, max_distance = contract.log_buckets(num_buckets, max_distance)
    relative = relative_position.astype(int)
    starts = jnp.array(_starts(alone, max_distance))
    found = jnp.searchsorted(starts, jnp.abs(relative), side="right", method="compare_all")
    return jnp.sign(relative) * found


@cache
def _starts(alone, max_distance):
    """The first distance of each bucket but bucket 0."""
    bounds = [(max_distance - 1) ** k * alone ** (alone - 1 - k) for k in range(alone)]
    distances = range(max_distance)
    first = [
        bisect_right(distances, bound, key=lambda d: d ** (alone - 1)) for bound in bounds
    ]
    return (*range(1, alone + 1), *first)


@validated
@register
@dataclass(frozen=True, eq=False)
class DisentangledBias:
    r"""DeBERTa's terms of the score: content to position, and position to content.

    Twin of :class:`posattn.reference.DisentangledBias`; a pytree.
    Queries and keys meet each row of the table once, and their products are then picked by offset.

    Args:
        table: $\mathbf{T}$, `(2 * max_distance, d)` with $m$ = `max_distance`; row
            $\delta$ belongs to the distance $i - j = \delta - m$.
        query_weight: $\mathbf{W}^{(q,r)}$, `(d, h * d_h)`, the columns of head after head.
        key_weight: $\mathbf{W}^{(k,r)}$, `(d, h * d_h)`.
        num_heads: the number of heads, a divisor of the columns.
        same_row: whether position to content reads the row of $\delta(i, j)$.
        bucketed_to: $D$, from where distances have no bucket, or None for a row for each distance.

    Examples:
        >>> bias = DisentangledBias.init(jax.random.key(0), max_distance=4, dim=6, num_heads=3)
        >>> query = key = jnp.ones((3, 5, 2))
        >>> bias.scores(query, key, jnp.arange(5), jnp.arange(5)).shape
        (3, 5, 5)
        >>> round(bias.scale, 4)
        0.4082
    """

    needs_all_keys = False
    table: Float[Array, "rows d"]
    query_weight: Float[Array, "d width"]
    key_weight: Float[Array, "d width"]
    _: KW_ONLY
    num_heads: int = field(metadata={"static": True})
    same_row: bool = field(default=False, metadata={"static": True})
    bucketed_to: int | None = field(default=None, metadata={"static": True})

    def __post_init__(self):
        contract.integer("num_heads", self.num_heads, least=1)

    @classmethod
    def init(
        cls,
        rng: Array,
        max_distance: int,
        dim: int,
        num_heads: int,
        *,
        same_row: bool = False,
        bucketed_to: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> "DisentangledBias":
        r"""Draw all parameters from a normal distribution with standard deviation 0.02.

        Twin of :meth:`posattn.reference.DisentangledBias.init`; `rng` is a JAX key.

        Args:
            rng: where the parameters are drawn from.
            max_distance: $m$, half the number of rows of the table, at least 1.
            dim: the width $d$ of the layer, and of the table, at least 1.
            num_heads: the number of heads, a divisor of `dim`.
            same_row: whether position to content reads the row of $\delta(i, j)$, as the authors' code.
            bucketed_to: $D$, from where distances have no bucket, or None for a row for each distance.
            dtype: of the parameters; JAX's default one if not given.
        """
        max_distance, dim = contract.sizes(max_distance=max_distance, dim=dim)
        num_heads = contract.heads(num_heads, dim)
        contract.bucketed(max_distance, bucketed_to)
        dtype = jnp.result_type(float if dtype is None else dtype)
        rows = 2 * max_distance
        drawn = 0.02 * jax.random.normal(rng, (rows + 2 * dim, dim), dtype)
        weights = drawn[rows:].reshape(2, dim, dim)
        return cls(
            drawn[:rows],
            *weights,
            num_heads=num_heads,
            same_row=same_row,
            bucketed_to=bucketed_to,
        )

    @property
    def scale(self) -> float:
        """The factor of all terms, which the attention must be given."""
        return (3 * self.key_weight.shape[1] / self.num_heads) ** -0.5

    def scores(
        self,
        query: Float[Array, "*batch h n_q d_h"],
        key: Float[Array, "*batch h n_k d_h"],
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """What is added to the scores, content to position and position to content.

        Twin of :meth:`posattn.reference.DisentangledBias.scores`.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        reach, head_dim = contract.projected_table(
            self.table, self.query_weight, self.key_weight, self.num_heads
        )
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=self.num_heads, integers=True)  # fmt: skip
        wide = jnp.promote_types(query.dtype, jnp.float32)
        table = self.table.astype(wide)
        of_query, of_key = (
            split_heads(table @ weight.astype(wide), self.num_heads)
            for weight in (self.query_weight, self.key_weight)
        )
        behind = -offsets(query_positions, key_positions)
        if self.bucketed_to is not None:
            contract.bucketed(reach, self.bucketed_to)
            behind = deberta_bucket(
                behind, num_buckets=reach, max_distance=self.bucketed_to
            )
        rows_of_query, rows_of_key = (
            (distance + reach).clip(0, 2 * reach - 1)
            for distance in (behind if self.same_row else -behind, behind)
        )
        content_to_position = pick(query.astype(wide) @ of_key.mT, rows_of_key)
        position_to_content = pick(key.astype(wide) @ of_query.mT, rows_of_query.mT).mT
        scores = (content_to_position + position_to_content) * self.scale
        return scores.astype(query.dtype)
