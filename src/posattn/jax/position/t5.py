"""T5's relative bias: one learned number per head and bucket of distances."""

import math
from bisect import bisect_left
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.attention.masks import relative_positions
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["T5Bias", "t5_bucket"]


@validated
def t5_bucket(
    relative_position: Integer[Array, "*shape"],
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Integer[Array, "*shape"]:
    """The bucket of a relative position: narrow ones near the query, wide ones far from it.

    Twin of :func:`posattn.reference.t5_bucket`.

    Args:
        relative_position: position of the key minus position of the query, integers of any shape.
        num_buckets: at least 2; even and at least 4 if `bidirectional`.
        max_distance: $D$, greater than $E$.
        bidirectional: use separate buckets for the two directions.

    Returns:
        Integers from 0 to `num_buckets - 1`, of the shape of `relative_position`.

    Examples:
        >>> t5_bucket(jnp.array([-12, -11, 0, 1, 8]))
        Array([ 9,  8,  0, 17, 24], dtype=int32)
    """
    contract.integer_array("relative_position", relative_position)
    one_way, max_distance = contract.buckets(num_buckets, max_distance, bidirectional)
    relative = relative_position.astype(int)
    distance = jnp.abs(relative) if bidirectional else jnp.maximum(-relative, 0)
    starts = jnp.array(_starts(one_way, max_distance))
    bucket = jnp.searchsorted(starts, distance, side="right", method="compare_all")
    return bucket + one_way * (relative > 0) if bidirectional else bucket


def _starts(one_way, max_distance):
    """The first distance of each bucket but bucket 0."""
    exact = one_way // 2
    power = one_way - exact
    bounds = [max_distance**k * exact ** (power - k) for k in range(power)]
    distances = range(max_distance)
    first = [bisect_left(distances, bound, key=lambda d: d**power) for bound in bounds]
    return [*range(1, exact), *first]


@validated
@register
@dataclass(frozen=True, eq=False)
class T5Bias:
    r"""A learned bias for each head and each bucket of relative positions.

    Twin of :class:`posattn.reference.T5Bias`; a pytree.
    The gradient of a half-precision table is summed in float32: a bucket has many pairs.

    Args:
        table: $\mathbf{T}$, `(num_buckets, num_heads)`.
        max_distance: where the last bucket begins.
        bidirectional: use separate buckets for the two directions.

    Examples:
        >>> layer = T5Bias.init(jax.random.key(0), 2)
        >>> layer(jnp.arange(3, 6), jnp.arange(6)).shape
        (2, 3, 6)
    """

    table: Float[Array, "num_buckets h"]
    max_distance: int = field(default=128, metadata={"static": True})
    bidirectional: bool = field(default=True, metadata={"static": True})

    @classmethod
    def init(
        cls,
        rng: Array,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        dtype: DTypeLike | None = None,
    ) -> "T5Bias":
        """Draw the table uniformly, within the bounds of Glorot.

        Twin of :meth:`posattn.reference.T5Bias.init`; `rng` is a JAX key.

        Args:
            rng: where the table is drawn from.
            num_heads: the number of heads, at least 1.
            num_buckets: at least 2; even and at least 4 if `bidirectional`.
            max_distance: where the last bucket begins.
            bidirectional: use separate buckets for the two directions.
            dtype: of the parameters; JAX's default one if not given.
        """
        num_heads = contract.integer("num_heads", num_heads, least=1)
        contract.buckets(num_buckets, max_distance, bidirectional)
        dtype = jnp.result_type(float if dtype is None else dtype)
        shape, bound = (num_buckets, num_heads), math.sqrt(6 / (num_buckets + num_heads))
        table = jax.random.uniform(rng, shape, dtype, -bound, bound)
        return cls(table, max_distance, bidirectional)

    def __call__(
        self,
        query_positions: Integer[Array, "*#batch n_q"],
        key_positions: Integer[Array, "*#batch n_k"],
    ) -> Float[Array, "*batch h n_q n_k"]:
        """Look up the bias of each query and key.

        Twin of calling :class:`posattn.reference.T5Bias`.

        Args:
            query_positions: integers, `(*batch, n_q)`.
            key_positions: integers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.position_pair(query_positions, key_positions, integers=True)
        bucket = t5_bucket(
            jnp.asarray(relative_positions(query_positions, key_positions)),
            num_buckets=self.table.shape[0],
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )
        table = self.table.astype(jnp.promote_types(self.table.dtype, jnp.float32))
        return jnp.moveaxis(table[bucket], -1, -3).astype(self.table.dtype)
