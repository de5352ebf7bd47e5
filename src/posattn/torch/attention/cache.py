"""A cache of keys and values: what decoding need not compute again."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.utils._pytree import GetAttrKey, register_pytree_node

from posattn import contract
from posattn.torch.attention.masks import readable, transformed
from posattn.torch.validated import validated

__all__ = ["KVCache"]

ARRAYS = ("key", "value", "positions")
EMPTY = 2**31 - 1  # the position of a slot that holds nothing: later than any query


@validated
@dataclass(eq=False)
class KVCache:
    """The keys and values of the tokens so far, each with its position.

    Twin of :class:`posattn.reference.KVCache`.
    `append` changes this cache and returns it; `copy.deepcopy(cache)` keeps an earlier state.
    A pytree whose leaves are the arrays, so that a step with it can be exported.
    There is one slot more than tokens: it takes padding, stays empty, and nobody attends to it.
    Where the values of positions are not at hand (on a device, in a compiled program) a token beyond
    the end makes the values of its example NaN, instead of an error.

    Args:
        key: `(*batch, h, slots, d_h)`.
        value: `(*batch, h, slots, d_h)`.
        positions: where the token of each slot stands, `(*batch, slots)`; `2**31 - 1` if it is empty.
        window: how many tokens a query sees, its own among them; all if None.
        rotated: whether keys are kept as `rotate` leaves them.

    Examples:
        >>> cache = KVCache.init((), num_kv_heads=1, max_len=4, head_dim=2)
        >>> _, seen = cache.append(torch.ones(1, 3, 2), torch.ones(1, 3, 2), torch.arange(3))
        >>> cache.next_positions(1)
        tensor([3])
        >>> seen.mask(torch.tensor([1])).int()
        tensor([[1, 1, 0, 0, 0]], dtype=torch.int32)
    """

    key: Float[Tensor, "*batch h slots d_h"]
    value: Float[Tensor, "*batch h slots d_h"]
    positions: Integer[Tensor, "*batch slots"]
    window: int | None = None
    rotated: bool = True

    @classmethod
    def init(
        cls,
        batch_shape: int | Sequence[int],
        num_kv_heads: int,
        max_len: int,
        head_dim: int,
        *,
        window: int | None = None,
        rotated: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> "KVCache":
        """Make room for tokens, and keep none yet.

        Twin of :meth:`posattn.reference.KVCache.init`.

        Args:
            batch_shape: the batch axes, `(8,)` or just 8.
            num_kv_heads: the number of heads of keys and values.
            max_len: how many positions there are, at least 1.
            head_dim: the width of a head.
            window: how many tokens a query sees, its own among them; all if not given. The cache
                then needs room for these only.
            rotated: whether keys are kept as `rotate` leaves them.
            dtype: of keys and values; PyTorch's default one if not given.
            device: where the cache lives.

        Returns:
            The empty cache.
        """
        *batch, heads, slots, width = contract.cache_shape(
            batch_shape, num_kv_heads, max_len, head_dim, window
        )
        shape = (*batch, heads, slots + 1, width)
        key, value = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        positions = torch.full((*batch, slots + 1), EMPTY, device=device)
        return cls(key, value, positions, window, rotated)

    def next_positions(self, n: int) -> Integer[Tensor, "*batch n"]:
        """Where the next `n` tokens of each example stand: after the last one that is kept.

        Twin of :meth:`posattn.reference.KVCache.next_positions`.

        Args:
            n: how many tokens come.

        Returns:
            `(*batch, n)`.
        """
        contract.cache_arrays(self)
        return following(self, contract.integer("n", n))

    def append(
        self,
        key: Float[Tensor, "*batch h n d_h"],
        value: Float[Tensor, "*batch h n d_h"],
        positions: Integer[Tensor, "*#batch n"],
    ) -> tuple["KVCache", "KVCache"]:
        """Keep the tokens that come in this cache, and say what they may attend to.

        Twin of :meth:`posattn.reference.KVCache.append`.

        Args:
            key: `(*batch, h, n, d_h)`.
            value: `(*batch, h, n, d_h)`.
            positions: where they stand, `(n)` or `(*batch, n)`; a negative one marks padding.

        Returns:
            This cache, which has changed, and a cache that holds what these tokens may attend to. It is
            the same, except where several tokens enter a cache with a window.
        """
        return appended(self, key, value, positions)

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
        """
        contract.cache_arrays(self)
        kept = self.positions if key_positions is None else key_positions
        contract.position_pair(query_positions, kept, integers=True)
        return seen(query_positions, kept, self.window)


def following(cache, n):
    """Where the next `n` tokens of each example stand."""
    ends = (cache.positions + 1) & EMPTY  # which makes 0 of an empty slot
    first = ends.amax(-1, keepdim=True)
    return first if n == 1 else first + torch.arange(n, device=first.device)


def appended(cache, key, value, positions):
    """The cache with the tokens that come written into it, and one that holds what these may attend to."""
    contract.cache_entry(key, value, positions, cache)
    slots = cache.positions.shape[-1] - 1
    place = _place(positions) if key.shape[-2] == 1 else None
    if place is not None:
        return _with_token(cache, key, value, place, slots)
    positions = positions.long().expand(*cache.positions.shape[:-1], -1)
    last = positions.amax(-1, keepdim=True) if key.shape[-2] else positions
    kept = positions >= 0
    wraps = cache.window == slots
    if wraps:
        kept = kept & (positions > last - slots)  # of a long chunk only the end
    elif not readable(positions):
        beyond = (last >= slots)[..., None, :, None]
        value = value.masked_fill(beyond, torch.nan)
    elif 0 not in positions.shape:
        contract.cache_room(int(positions.max()), slots)
    together = cache
    if wraps and key.shape[-2] != 1:
        both = [torch.cat(pair, -2) for pair in ((cache.key, key), (cache.value, value))]
        known = positions.masked_fill(positions < 0, EMPTY)
        known = torch.cat([cache.positions, known], dim=-1)
        together = KVCache(*both, known, cache.window, cache.rotated)
    slot = positions % slots if wraps else positions.clamp(max=slots - 1)
    slot = slot.where(kept, slots)
    cache.positions.scatter_(-1, slot, positions.where(kept, EMPTY))
    slot, kept = (x[..., None, :, None].expand(key.shape) for x in (slot, kept))
    cache.key.scatter_(-2, slot, key.where(kept, 0))
    cache.value.scatter_(-2, slot, value.where(kept, 0))
    return cache, together


def _with_token(cache, key, value, position, slots):
    """Keep one token of each example, all at the same position, which is known."""
    if cache.window == slots:
        slot = position % slots
    else:
        contract.cache_room(position, slots)
        slot = position
    cache.key[..., slot, :] = key[..., 0, :]
    cache.value[..., slot, :] = value[..., 0, :]
    cache.positions[..., slot] = position
    return cache, cache


def seen(queries, keys, window=None):
    """Which keys queries may attend to, by the positions of both."""
    queries, keys = queries[..., :, None], keys[..., None, :]
    past = keys <= queries
    return past if window is None else past & (keys > queries - window)


def _place(positions):
    """Where all tokens stand if it is one place and at hand, None otherwise or if they are padding."""
    if not _known(positions):
        return None
    signed = positions.long()  # unsigned integers have no smallest one in PyTorch
    first, last = (int(end) for end in signed.aminmax())
    return first if first == last and first >= 0 else None


def _known(positions):
    """Whether there are positions and they can be read."""
    return readable(positions) and not transformed() and 0 not in positions.shape


def visible_to(cache, positions):
    """The part of a cache that queries may attend to, the mask within, and whether that is causal.

    There is no mask where queries attend to the whole part, or to all of it but the future.
    Where positions can be read, slots that nobody has reached yet are left out.
    """
    if not _known(positions):
        return cache, cache.mask, False
    if cache.window is None:  # the token at a position is in the slot of that number
        end = max(int(positions.long().max()) + 1, 1)
        key, value = cache.key[..., :end, :], cache.value[..., :end, :]
        cache = KVCache(key, value, cache.positions[..., :end], None, cache.rotated)
    n = positions.shape[-1]
    if n > 1:
        causal = cache.window is None and bool(
            (cache.positions == torch.arange(end)).all()
            and (positions.long() == torch.arange(end - n, end)).all()
        )
        return cache, None if causal else cache.mask, causal
    mask = seen(positions, cache.positions, cache.window)
    if mask.all():
        return cache, None, False
    return cache, mask[..., None, :, :] if mask.ndim > 2 else mask, False


def _with_names(cache):
    leaves = [(GetAttrKey(name), getattr(cache, name)) for name in ARRAYS]
    return leaves, [cache.window, cache.rotated]


def _flat(cache):
    return [getattr(cache, name) for name in ARRAYS], [cache.window, cache.rotated]


register_pytree_node(
    KVCache,
    _flat,
    lambda leaves, settings: KVCache(*leaves, *settings),
    flatten_with_keys_fn=_with_names,
    serialized_type_name="posattn.torch.KVCache",
)
