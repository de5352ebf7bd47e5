"""A cache of keys and values: what decoding need not compute again."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
    Where the values of positions are not at hand (on a device, in a compiled program) a token beyond the
    end, or one that falls behind others where there is a window, makes the values of its example NaN,
    instead of an error.

    Args:
        key: `(*batch, h, slots, d_h)`.
        value: `(*batch, h, slots, d_h)`.
        positions: where the token of each slot stands, `(*batch, slots)`; `2**31 - 1` if it is empty.
        window: how many tokens a query sees, its own among them; all if None.
        rotated: whether keys are kept as `rotate` leaves them.
        index: a `LatentCache` of the keys of the layer's indexer; None if it has none.

    Examples:
        >>> cache = KVCache.init((), num_kv_heads=1, max_len=4, head_dim=2)
        >>> _, seen = cache.append(torch.ones(1, 3, 2), torch.ones(1, 3, 2), torch.arange(3))
        >>> cache.next_positions(1)
        tensor([3])
        >>> seen.mask(torch.tensor([2])).int()
        tensor([[1, 1, 1, 0, 0]], dtype=torch.int32)
    """

    key: Float[Tensor, "*batch h slots d_h"]
    value: Float[Tensor, "*batch h slots d_h"]
    positions: Integer[Tensor, "*batch slots"]
    window: int | None = None
    rotated: bool = True
    index: Any = None

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
            max_len: how many tokens there are, at least 1.
            head_dim: the width of a head.
            window: how many tokens a query sees, its own among them; all if not given. The cache
                then needs room for these only.
            rotated: whether keys are kept as `rotate` leaves them.
            dtype: of keys and values; PyTorch's default one if not given.
            device: where the cache lives.
        """
        *batch, heads, slots, width = contract.cache_shape(
            batch_shape, num_kv_heads, max_len, head_dim, window
        )
        shape = (*batch, heads, slots + 1, width)
        key, value = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        positions = torch.full((*batch, slots + 1), EMPTY, device=device)
        return cls(key, value, positions, window, rotated)

    def next_positions(self, n: int) -> Integer[Tensor, "*batch n"]:
        """Where the next `n` tokens of each example stand: after the largest position that is kept.

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
        return appended(self, key, value, positions)[:2]

    def trim(self, n: int | Integer[Tensor, "*batch"]) -> "KVCache":
        """Forget the newest tokens, such as drafts that were rejected.

        Twin of :meth:`posattn.reference.KVCache.trim`.

        Args:
            n: how many tokens, or how many of each example, `(*batch)`.

        Returns:
            This cache, which has changed.
        """
        contract.cache_arrays(self)
        newest, lost = trimmed(self, n, self.window == self.positions.shape[-1] - 1)
        for x in (self.key, self.value):
            x.masked_fill_(newest[..., None, :, None], 0)
        if lost is not None:
            self.value.masked_fill_(lost[..., None, None, None], torch.nan)
        self.positions.masked_fill_(newest, EMPTY)
        if self.index is not None:
            self.index.trim(n)
        return self

    def mask(
        self, query_positions: Integer[Tensor, "*#batch n_q"]
    ) -> Bool[Tensor, "*batch n_q slots"]:
        """Which slots queries may attend to, whose tokens came last: theirs and earlier ones in the window.

        Twin of :meth:`posattn.reference.KVCache.mask`.

        Args:
            query_positions: where the last tokens stand, `(n_q)` or `(*batch, n_q)`; a negative one of
                padding, which was not kept.

        Returns:
            True means may attend, `(*batch, n_q, slots)`.
        """
        contract.cache_arrays(self)
        contract.position_pair(query_positions, self.positions, integers=True)
        return held(self, query_positions, self.window)


def trimmed(cache, n, wraps=False):
    """Which slots hold the `n` newest tokens of each example, and which examples lack so many, if unknown."""
    slots = cache.positions.shape[-1] - 1
    there = cache.positions != EMPTY
    n = torch.as_tensor(contract.cache_trim(n, cache.positions), device=there.device)
    kept, beyond = there.sum(-1), wraps & (there & (cache.positions >= slots)).any(-1)
    lost = None
    if readable(cache.positions) and readable(n) and not transformed():
        for each in zip(
            *(x.expand(kept.shape).ravel().tolist() for x in (beyond, kept, n)), strict=True
        ):
            contract.cache_trimmed(*each, slots)
    else:
        lost = (n < 0) | (n > kept) | (beyond & (n > 0))
    return there & (there.flip(-1).cumsum(-1).flip(-1) <= n[..., None]), lost


def following(cache, n):
    """Where the next `n` tokens of each example stand."""
    ends = (cache.positions + 1) & EMPTY  # which makes 0 of an empty slot
    first = ends.amax(-1, keepdim=True)
    return first if n == 1 else first + torch.arange(n, device=first.device)


def filled(cache):
    """How many slots hold a token, in each example."""
    return (cache.positions != EMPTY).sum(-1)


def numbers(cache, positions):
    """The slot of each token that comes, `(*batch, n)`: how many are kept before it."""
    return filled(cache)[..., None] + (positions >= 0).cumsum(-1) - 1


def rising(cache, positions):
    """Which tokens that come stand after all that came before, or are padding: `(*batch, n)`."""
    before = torch.cat([following(cache, 1) - 1, positions], dim=-1)
    return (positions < 0) | (positions > before.cummax(-1).values[..., :-1])


def appended(cache, key, value, positions, follow=False):
    """The cache with the tokens that come, one that holds what they may attend to, and two hints.

    How many these are, if that is known and the same in all examples, and whether tokens stand after others.
    """
    contract.cache_entry(key, value, positions, cache)
    slots, n = cache.positions.shape[-1] - 1, key.shape[-2]
    known = _known(positions)
    wraps = cache.window == slots
    if known and not wraps:
        end = _place(filled(cache))
        if end is not None and int(positions.long().min()) >= 0:
            contract.cache_room(end + n - 1, slots)
            if not follow and n > 1 and cache.window is not None:
                rises = rising(cache, positions.long().expand((*key.shape[:-3], n)))
                follow = bool(rises.all())
            return _written(cache, key, value, positions, end), cache, end + n, follow
    if wraps and n == 1 and (place := _place(positions)) is not None:
        newest = int(cache.positions[..., :slots].max())
        if newest == EMPTY:  # it is not full
            newest = int(following(cache, 1).max()) - 1
        contract.cache_rises(newest >= place, cache.window)
        return _written(cache, key, value, positions, place % slots), cache, None, True
    positions = positions.long().expand(*cache.positions.shape[:-1], -1)
    kept = positions >= 0
    together = cache
    rises = rising(cache, positions) if wraps or (known and n > 1) else kept & follow
    follow = follow or wraps or (known and bool(rises.all()))
    if wraps:
        if known:
            contract.cache_rises(not rises.all(), cache.window)
        fits = rises.all(-1, keepdim=True)
        last = positions.amax(-1, keepdim=True) if n else positions
        kept = kept & (positions > last - slots)  # of a long chunk only the end
        slot = positions % slots
    else:
        slot = numbers(cache, positions)
        if known:
            contract.cache_room(int(slot.max()), slots)
        fits = slot[..., -1:] < slots
        slot = slot.clamp(max=slots - 1)
    if not known:
        value = value.where(fits[..., None, :, None], torch.nan)
    if wraps and n != 1:
        both = [torch.cat(pair, -2) for pair in ((cache.key, key), (cache.value, value))]
        beside = positions.masked_fill(positions < 0, EMPTY)
        beside = torch.cat([cache.positions, beside], dim=-1)
        together = KVCache(*both, beside, cache.window, cache.rotated)
    slot = slot.where(kept, slots)
    cache.positions.scatter_(-1, slot, positions.where(kept, EMPTY))
    slot, kept = (x[..., None, :, None].expand(key.shape) for x in (slot, kept))
    cache.key.scatter_(-2, slot, key.where(kept, 0))
    cache.value.scatter_(-2, slot, value.where(kept, 0))
    return cache, together, None, follow


def rule_of(cache, positions, follow):
    """A function of the next cache that makes the mask of tokens that come: an array, or a rule."""
    if positions.shape[-1] > 1:
        placed = positions.expand(*cache.positions.shape[:-1], -1)
        if follow or (_known(positions) and rising(cache, placed).all()):
            return lambda _: seen
    return lambda cache: held(cache, positions)


def _written(cache, key, value, positions, start):
    """Keep tokens of each example from one slot on."""
    n = key.shape[-2]
    cache.key.narrow(-2, start, n).copy_(key)
    cache.value.narrow(-2, start, n).copy_(value)
    cache.positions.narrow(-1, start, n).copy_(positions)
    return cache


def seen(queries, keys, window=None):
    """Which keys queries may attend to, by the positions of both."""
    queries, keys = queries[..., :, None], keys[..., None, :]
    past = keys <= queries
    return past if window is None else past & (keys > queries - window)


def held(cache, positions, window=None):
    """Which slots the tokens that came last may attend to, of which these are the positions."""
    slots = cache.positions.shape[-1]
    kept = positions >= 0
    if window is not None and window < slots:  # there positions rise
        return seen(positions, cache.positions, window)
    own = numbers(cache, positions) - kept.sum(-1, keepdim=True)
    own = own.where(kept, -1)
    past = torch.arange(slots, device=own.device) <= own[..., None]
    if window is None:
        return past
    offsets = positions.long()[..., :, None] - cache.positions[..., None, :]
    return past & (offsets.abs() < window)


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


def visible_to(cache, positions, end, follow):
    """The part of a cache that its last tokens may attend to, the mask within, and whether that is causal.

    There is no mask where they attend to the whole part, or to all of it but the future.
    Where positions can be read, slots that nobody has reached yet are left out.
    """
    n, window, known = positions.shape[-1], cache.window, _known(positions)
    slots = cache.positions.shape[-1]
    if known and (window is None or window >= slots):
        last = max(int(filled(cache).max()), 1) if end is None else end
        key, value = cache.key[..., :last, :], cache.value[..., :last, :]
        cache = KVCache(key, value, cache.positions[..., :last], window, cache.rotated)
    if end is not None and window is None:
        return cache, None, n > 1
    if follow and n > 1:
        return cache, partial(seen, window=window), False
    if end is not None and n == 1:  # whatever came before, it can hide only by its position
        mask = (positions[..., None] - cache.positions[..., None, :]).abs() < window
    else:
        mask = held(cache, positions, window)
    if known and mask.all():
        return cache, None, False
    return cache, mask[..., None, :, :] if mask.ndim > 2 else mask, False


def _with_names(cache):
    names = *ARRAYS, *["index"] * (cache.index is not None)
    leaves = [(GetAttrKey(name), getattr(cache, name)) for name in names]
    return leaves, [cache.window, cache.rotated]


def _flat(cache):
    leaves, settings = _with_names(cache)
    return [leaf for _, leaf in leaves], settings


register_pytree_node(
    KVCache,
    _flat,
    lambda leaves, settings: KVCache(*leaves[:3], *settings, *leaves[3:]),
    flatten_with_keys_fn=_with_names,
    serialized_type_name="posattn.torch.KVCache",
)
