"""A cache of keys and values: what decoding need not compute again."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.utils._pytree import GetAttrKey, register_pytree_node

from posattn import contract
from posattn.torch.attention.masks import readable

__all__ = ["KVCache"]

ARRAYS = ("key", "value", "positions")
EMPTY = 2**31 - 1  # the position of a slot that holds nothing: later than any query


@dataclass(frozen=True, eq=False)
class KVCache:
    """The keys and values of the tokens so far, each with its position.

    Twin of :class:`posattn.reference.KVCache`.
    The next cache writes into the memory of the one before, which is not to be used any more.
    A pytree whose leaves are the arrays, so that a step with it can be exported.
    There is one slot more than tokens: it takes padding, stays empty, and nobody attends to it.
    Where the values of positions are not at hand (on a device, in a compiled program) a token beyond
    the end makes the values of its example NaN, instead of an error.

    Args:
        key: `(*batch, h, slots, d_h)`.
        value: `(*batch, h, slots, d_h)`.
        positions: where the token of each slot stands, `(*batch, slots)`; `2**31 - 1` if it is empty.
        window: how many tokens a query sees, its own among them; all if None.
        turned: whether keys are kept as `rotate` leaves them.

    Examples:
        >>> cache = KVCache.init((), num_kv_heads=1, max_len=4, head_dim=2)
        >>> cache, seen = cache.append(torch.ones(1, 3, 2), torch.ones(1, 3, 2), torch.arange(3))
        >>> cache.next_positions(1)
        tensor([3])
        >>> seen.mask(torch.tensor([1])).int()
        tensor([[1, 1, 0, 0, 0]], dtype=torch.int32)
    """

    key: Float[Tensor, "*batch h slots d_h"]
    value: Float[Tensor, "*batch h slots d_h"]
    positions: Integer[Tensor, "*batch slots"]
    window: int | None = None
    turned: bool = True

    @classmethod
    def init(
        cls,
        batch_shape: Sequence[int],
        num_kv_heads: int,
        max_len: int,
        head_dim: int,
        *,
        window: int | None = None,
        turned: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "KVCache":
        """Make room for tokens, and keep none yet.

        Twin of :meth:`posattn.reference.KVCache.init`.

        Args:
            batch_shape: the batch axes, such as `(8,)`.
            num_kv_heads: the number of heads of keys and values.
            max_len: how many positions there are, at least 1.
            head_dim: the width of a head.
            window: how many tokens a query sees, its own among them; all if not given. The cache
                then needs room for these only.
            turned: whether keys are kept as `rotate` leaves them.
            dtype: of keys and values; PyTorch's default one if not given.
            device: where the cache lives.

        Returns:
            The empty cache.

        Raises:
            TypeError: if a number is not an integer.
            ValueError: if a number is too small.
        """
        *batch, heads, slots, width = contract.cache_shape(
            batch_shape, num_kv_heads, max_len, head_dim, window
        )
        shape = (*batch, heads, slots + 1, width)
        key, value = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        positions = torch.full((*batch, slots + 1), EMPTY, device=device)
        return cls(key, value, positions, window, turned)

    def next_positions(self, n: int) -> Integer[Tensor, "*batch n"]:
        """Where the next `n` tokens of each example stand: after the last one that is kept.

        Twin of :meth:`posattn.reference.KVCache.next_positions`.

        Args:
            n: how many tokens come.

        Returns:
            `(*batch, n)`.
        """
        contract.cache_arrays(self)
        n = contract.integer("n", n)
        last = self.positions.masked_fill(self.positions == EMPTY, -1).amax(-1)
        return last[..., None] + 1 + torch.arange(n, device=last.device)

    def append(
        self,
        key: Float[Tensor, "*batch h n d_h"],
        value: Float[Tensor, "*batch h n d_h"],
        positions: Integer[Tensor, "*#batch n"],
    ) -> tuple["KVCache", "KVCache"]:
        """Keep the tokens that come, and say what they may attend to.

        Twin of :meth:`posattn.reference.KVCache.append`.

        Args:
            key: `(*batch, h, n, d_h)`.
            value: `(*batch, h, n, d_h)`.
            positions: where they stand, `(n)` or `(*batch, n)`; a negative one marks padding.

        Returns:
            The next cache, and a cache that holds what these tokens may attend to. It is the same,
            except where several tokens enter a cache with a window.

        Raises:
            TypeError: if positions are no integers.
            ValueError: if shapes do not fit, or a position lies beyond the end of the cache.
        """
        contract.cache_entry(key, value, positions, self)
        slots = self.positions.shape[-1] - 1
        positions = positions.long().expand(*self.positions.shape[:-1], -1)
        last = positions.amax(-1, keepdim=True) if key.shape[-2] else positions
        kept = positions >= 0
        wraps = self.window == slots
        if wraps:
            kept = kept & (positions > last - slots)  # of a long chunk only the end
        elif not readable(positions):
            beyond = (last >= slots)[..., None, :, None]
            value = value.masked_fill(beyond, torch.nan)
        elif 0 not in positions.shape:
            contract.cache_room(int(positions.max()), slots)
        together = self
        if wraps and key.shape[-2] != 1:
            both = [torch.cat(pair, -2) for pair in ((self.key, key), (self.value, value))]
            known = positions.masked_fill(positions < 0, EMPTY)
            known = torch.cat([self.positions, known], dim=-1)
            together = KVCache(*both, known, self.window, self.turned)
        slot = positions % slots if wraps else positions.clamp(max=slots - 1)
        slot = slot.where(kept, slots)
        self.positions.scatter_(-1, slot, positions.where(kept, EMPTY))
        slot, kept = (x[..., None, :, None].expand(key.shape) for x in (slot, kept))
        self.key.scatter_(-2, slot, key.where(kept, 0))
        self.value.scatter_(-2, slot, value.where(kept, 0))
        new = KVCache(self.key, self.value, self.positions, self.window, self.turned)
        return new, new if together is self else together

    def mask(
        self,
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch slots"] | None = None,
    ) -> Bool[Tensor, "*batch n_q slots"]:
        """Which slots queries may attend to: those with a token of their past that the window holds.

        Twin of :meth:`posattn.reference.KVCache.mask`.

        Args:
            query_positions: `(n_q)` or `(*batch, n_q)`.
            key_positions: where the tokens of the slots stand, if not where this cache says.

        Returns:
            True means may attend, `(*batch, n_q, slots)`.

        Raises:
            TypeError: if positions are no integers.
            ValueError: if batch axes of positions differ.
        """
        contract.cache_arrays(self)
        kept = self.positions if key_positions is None else key_positions
        contract.position_pair(query_positions, kept, integers=True)
        queries, kept = query_positions[..., :, None], kept[..., None, :]
        seen = kept <= queries
        return seen if self.window is None else seen & (kept > queries - self.window)


def _with_names(cache):
    leaves = [(GetAttrKey(name), getattr(cache, name)) for name in ARRAYS]
    return leaves, [cache.window, cache.turned]


def _flat(cache):
    return [getattr(cache, name) for name in ARRAYS], [cache.window, cache.turned]


register_pytree_node(
    KVCache,
    _flat,
    lambda leaves, settings: KVCache(*leaves, *settings),
    flatten_with_keys_fn=_with_names,
    serialized_type_name="posattn.torch.KVCache",
)
