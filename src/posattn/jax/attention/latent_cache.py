"""A cache of latent vectors: one for each token, from which all heads read their keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer

from posattn import contract
from posattn.jax.attention.cache import EMPTY, following, numbers, placed, trimmed
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["LatentCache"]


@validated
@register
@dataclass(frozen=True, eq=False)
class LatentCache:
    """The latent vectors of the tokens so far, in arrays that never change their shape.

    Twin of :class:`posattn.reference.LatentCache`; a pytree whose leaves are the arrays.
    So one compilation serves all steps, also inside `jax.lax.scan`; jit a step with
    `donate_argnums` for the cache, and the arrays are written in place.

    Args:
        latent: `(*batch, slots, width)`: of each token the latent vector and then the shared key, rotated.
        positions: where the token of each slot stands, `(*batch, slots)`, int32; $2^{31} - 1$ if it is
            empty.

    Examples:
        >>> cache = LatentCache.init((), max_len=4, width=2)
        >>> cache = cache.append(jnp.ones((3, 2)), jnp.arange(3))
        >>> cache.next_positions(1)
        Array([3], dtype=int32)
    """

    latent: Float[Array, "*batch slots width"]
    positions: Integer[Array, "*batch slots"]

    @classmethod
    def init(
        cls,
        batch_shape: int | Sequence[int],
        max_len: int,
        width: int,
        *,
        dtype: DTypeLike | None = None,
    ) -> "LatentCache":
        """Make room for tokens, and keep none yet.

        Twin of :meth:`posattn.reference.LatentCache.init`.

        Args:
            batch_shape: the batch axes, `(8,)` or just 8.
            max_len: how many tokens there are, at least 1.
            width: how many numbers are kept of a token, `kv_rank + rotary_dim` of the layer; 0 or more.
            dtype: of the vectors; JAX's default one if not given.
        """
        shape = contract.latent_shape(batch_shape, max_len, width)
        dtype = jnp.result_type(float if dtype is None else dtype)
        return cls(jnp.zeros(shape, dtype), jnp.full(shape[:-1], EMPTY, jnp.int32))

    @property
    def bytes_per_token(self) -> int:
        """How many bytes the vector of a token takes, its position not counted."""
        return self.latent.shape[-1] * self.latent.dtype.itemsize

    def next_positions(self, n: int) -> Integer[Array, "*batch n"]:
        """Where the next `n` tokens of each example stand: after the largest position that is kept.

        Twin of :meth:`posattn.reference.LatentCache.next_positions`.

        Args:
            n: how many tokens come.

        Returns:
            `(*batch, n)`.
        """
        contract.latent_arrays(self)
        return following(self, contract.integer("n", n))

    def append(
        self,
        latent: Float[Array, "*batch n width"],
        positions: Integer[Array | np.ndarray, "*#batch n"],
    ) -> "LatentCache":
        """Keep the tokens that come.

        Twin of :meth:`posattn.reference.LatentCache.append`.
        Under `jax.jit` a token for which there is no slot cannot raise: it is dropped, and
        :class:`LatentAttention` answers it with NaN.

        Args:
            latent: `(*batch, n, width)`.
            positions: where they stand, `(n)` or `(*batch, n)`; a negative one marks padding.

        Returns:
            The next cache.
        """
        contract.latent_entry(latent, positions, self)
        *batch, slots = self.positions.shape
        positions = jnp.asarray(positions, jnp.int32)
        positions = jnp.broadcast_to(positions, (*batch, latent.shape[-2]))
        slot = numbers(self, positions)
        if not isinstance(slot, jax.core.Tracer) and slot.size:
            contract.cache_room(int(slot.max()), slots)
        slot = jnp.where(positions < 0, slots, slot)  # beyond the last: dropped
        store = jnp.vectorize(placed, signature="(s,w),(n,w),(n)->(s,w)")
        place = jnp.vectorize(placed, signature="(s),(n),(n)->(s)")
        return LatentCache(
            store(self.latent, latent, slot), place(self.positions, positions, slot)
        )

    def trim(self, n: int | Integer[Array | np.ndarray, "*batch"]) -> "LatentCache":
        """Forget the newest tokens.

        Twin of :meth:`posattn.reference.LatentCache.trim`.

        Args:
            n: how many tokens, or how many of each example, `(*batch)`.

        Returns:
            The cache without them.
        """
        contract.latent_arrays(self)
        newest, lost = trimmed(self, n)
        latent = jnp.where(newest[..., None], 0, self.latent)
        latent = jnp.where(lost[..., None, None], jnp.nan, latent)
        return LatentCache(latent, jnp.where(newest, EMPTY, self.positions))
