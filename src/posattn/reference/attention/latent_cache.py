"""A cache of latent vectors: one for each token, from which all heads read their keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.attention.cache import EMPTY, following, numbers, trimmed
from posattn.reference.validated import validated

__all__ = ["LatentCache"]


@validated
@dataclass(frozen=True, eq=False)
class LatentCache:
    r"""The latent vectors of the tokens so far, each with its position.

    A cache of keys and values keeps two vectors for each token and head.
    Latent attention computes all of them from one vector, and needs to keep only that one, followed by
    the key that rotates and that all heads share.
    Tokens fill the slots in the order in which they come, wherever they stand; a negative position marks
    padding, which is not kept.
    So each example of a batch has its own length, and a query sees what came up to its own token.

    `LatentAttention` takes a cache in its call and returns the next one; its `init_cache` makes an empty
    one.

    Args:
        latent: `(*batch, slots, width)`: of each token the latent vector and then the shared key, rotated.
        positions: where the token of each slot stands, `(*batch, slots)`; $2^{31} - 1$ if it is empty.

    Examples:
        >>> cache = LatentCache.init((), max_len=4, width=2)
        >>> cache = cache.append(np.ones((3, 2)), np.arange(3))
        >>> cache.next_positions(1)
        array([3])
    """

    latent: Inexact[np.ndarray, "*batch slots width"]
    positions: Integer[np.ndarray, "*batch slots"]

    @classmethod
    def init(
        cls, batch_shape: int | Sequence[int], max_len: int, width: int
    ) -> "LatentCache":
        """Make room for tokens, and keep none yet.

        Args:
            batch_shape: the batch axes, `(8,)` or just 8.
            max_len: how many tokens there are, at least 1.
            width: how many numbers are kept of a token, `kv_rank + rotary_dim` of the layer; 0 or more.
        """
        shape = contract.latent_shape(batch_shape, max_len, width)
        return cls(np.zeros(shape), np.full(shape[:-1], EMPTY))

    @property
    def bytes_per_token(self) -> int:
        """How many bytes the vector of a token takes, its position not counted."""
        return self.latent.shape[-1] * self.latent.dtype.itemsize

    def next_positions(self, n: int) -> Integer[np.ndarray, "*batch n"]:
        """Where the next `n` tokens of each example stand: after the largest position that is kept.

        Args:
            n: how many tokens come.

        Returns:
            `(*batch, n)`.
        """
        contract.latent_arrays(self)
        return following(self, contract.integer("n", n))

    def append(
        self,
        latent: Inexact[np.ndarray, "*batch n width"],
        positions: Integer[np.ndarray, "*#batch n"],
    ) -> "LatentCache":
        """Keep the tokens that come.

        Args:
            latent: `(*batch, n, width)`.
            positions: where they stand, `(n)` or `(*batch, n)`; a negative one marks padding.

        Returns:
            The next cache.

        Raises:
            ValueError: if shapes do not fit, or there are more tokens than slots.
        """
        contract.latent_entry(latent, positions, self)
        *batch, slots = self.positions.shape
        positions = np.broadcast_to(positions, (*batch, latent.shape[-2])).astype(np.int64)
        places = numbers(self, positions)
        contract.cache_room(np.max(places, initial=-1), slots)
        new = LatentCache(self.latent.copy(), self.positions.copy())
        for *example, token in np.argwhere(positions >= 0):
            slot = places[(*example, token)]
            new.latent[(*example, slot)] = latent[(*example, token)]
            new.positions[(*example, slot)] = positions[(*example, token)]
        return new

    def trim(self, n: int | Integer[np.ndarray, "*batch"]) -> "LatentCache":
        """Forget the newest tokens, such as drafts that were rejected.

        Args:
            n: how many tokens, or how many of each example, `(*batch)`.

        Returns:
            The cache without them.

        Raises:
            ValueError: if fewer tokens are kept.
        """
        contract.latent_arrays(self)
        newest = trimmed(self, n)
        latent = np.where(newest[..., None], 0, self.latent)
        return LatentCache(latent, np.where(newest, EMPTY, self.positions))
