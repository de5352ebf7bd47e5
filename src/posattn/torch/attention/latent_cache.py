"""A cache of latent vectors: one for each token, from which all heads read their keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.utils._pytree import GetAttrKey, register_pytree_node

from posattn import contract
from posattn.torch.attention.cache import EMPTY, following, numbers, trimmed
from posattn.torch.attention.masks import readable
from posattn.torch.validated import validated

__all__ = ["LatentCache"]


@validated
@dataclass(eq=False)
class LatentCache:
    """The latent vectors of the tokens so far, each with its position.

    Twin of :class:`posattn.reference.LatentCache`.
    `append` changes this cache and returns it; `copy.deepcopy(cache)` keeps an earlier state.
    A pytree whose leaves are the arrays, so that a step with it can be exported.
    There is one slot more than tokens: it takes padding, stays empty, and nobody attends to it.
    Where the values of positions are not at hand (on a device, in a compiled program) a token beyond
    the end makes the vectors of its example NaN, instead of an error.

    Args:
        latent: `(*batch, slots, width)`: of each token the latent vector and then the shared key, rotated.
        positions: where the token of each slot stands, `(*batch, slots)`; `2**31 - 1` if it is empty.

    Examples:
        >>> cache = LatentCache.init((), max_len=4, width=2)
        >>> _ = cache.append(torch.ones(3, 2), torch.arange(3))
        >>> cache.next_positions(1)
        tensor([3])
    """

    latent: Float[Tensor, "*batch slots width"]
    positions: Integer[Tensor, "*batch slots"]

    @classmethod
    def init(
        cls,
        batch_shape: int | Sequence[int],
        max_len: int,
        width: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "LatentCache":
        """Make room for tokens, and keep none yet.

        Twin of :meth:`posattn.reference.LatentCache.init`.

        Args:
            batch_shape: the batch axes, `(8,)` or just 8.
            max_len: how many tokens there are, at least 1.
            width: how many numbers are kept of a token, `kv_rank + rotary_dim` of the layer; 0 or more.
            dtype: of the vectors; PyTorch's default one if not given.
            device: where the cache lives.
        """
        *batch, slots, width = contract.latent_shape(batch_shape, max_len, width)
        latent = torch.zeros((*batch, slots + 1, width), dtype=dtype, device=device)
        return cls(latent, torch.full((*batch, slots + 1), EMPTY, device=device))

    @property
    def bytes_per_token(self) -> int:
        """How many bytes the vector of a token takes, its position not counted."""
        return self.latent.shape[-1] * self.latent.element_size()

    def next_positions(self, n: int) -> Integer[Tensor, "*batch n"]:
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
        latent: Float[Tensor, "*batch n width"],
        positions: Integer[Tensor, "*#batch n"],
    ) -> "LatentCache":
        """Keep the tokens that come in this cache.

        Twin of :meth:`posattn.reference.LatentCache.append`.

        Args:
            latent: `(*batch, n, width)`.
            positions: where they stand, `(n)` or `(*batch, n)`; a negative one marks padding.

        Returns:
            This cache, which has changed.
        """
        contract.latent_entry(latent, positions, self)
        slots = self.positions.shape[-1] - 1
        positions = positions.long().expand(*self.positions.shape[:-1], -1)
        kept = positions >= 0
        slot = numbers(self, positions)
        if not readable(positions):
            latent = latent.masked_fill((slot >= slots)[..., None], torch.nan)
        elif 0 not in positions.shape:
            contract.cache_room(int(slot.max()), slots)
        slot = slot.clamp(max=slots - 1).where(kept, slots)
        self.positions.scatter_(-1, slot, positions.where(kept, EMPTY))
        slot, kept = (x[..., None].expand(latent.shape) for x in (slot, kept))
        self.latent.scatter_(-2, slot, latent.where(kept, 0))
        return self

    def trim(self, n: int | Integer[Tensor, "*batch"]) -> "LatentCache":
        """Forget the newest tokens.

        Twin of :meth:`posattn.reference.LatentCache.trim`.

        Args:
            n: how many tokens, or how many of each example, `(*batch)`.

        Returns:
            This cache, which has changed.
        """
        contract.latent_arrays(self)
        newest, lost = trimmed(self, n)
        self.latent.masked_fill_(newest[..., None], 0)
        if lost is not None:
            self.latent.masked_fill_(lost[..., None, None], torch.nan)
        self.positions.masked_fill_(newest, EMPTY)
        return self


register_pytree_node(
    LatentCache,
    lambda cache: ([cache.latent, cache.positions], None),
    lambda leaves, _: LatentCache(*leaves),
    flatten_with_keys_fn=lambda cache: (
        [(GetAttrKey(name), getattr(cache, name)) for name in ("latent", "positions")],
        None,
    ),
    serialized_type_name="posattn.torch.LatentCache",
)
