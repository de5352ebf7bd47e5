"""A cache of keys and values: what decoding need not compute again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Inexact, Integer

from posattn import contract
from posattn.reference.validated import validated

__all__ = ["KVCache"]

EMPTY = 2**31 - 1  # the position of a slot that holds nothing: later than any query


@validated
@dataclass(frozen=True, eq=False)
class KVCache:
    r"""The keys and values of the tokens so far, each with its position.

    Tokens fill the slots in the order in which they come, wherever they stand: positions may repeat, as of
    text beside an image or of a tree of drafts, fall, and leave gaps.
    A negative position marks padding: such a token is not kept.
    So each example of a batch has its own length, and a query sees what came up to its own token, as
    `causal` lets it without a cache.
    In a cache with a window of $w$ tokens positions rise: a token at position $p$ stands in slot
    $p \bmod w$, where it replaces one that has left the window, and a query sees less than $w$ before it.

    `MultiHeadAttention` takes a cache in its call and returns the next one.
    The keys are kept rotated, as the layer's `rotate` leaves them, because a rotation by a token's
    own position never changes.
    A scheme whose frequencies change with the length of the sequence needs `rotated=False`: keys are
    then kept as they were projected, and rotated at every step.

    Make an empty one with `KVCache.init(batch_shape, num_kv_heads, max_len, head_dim)`.

    Args:
        key: `(*batch, h, slots, d_h)`.
        value: `(*batch, h, slots, d_h)`.
        positions: where the token of each slot stands, `(*batch, slots)`; $2^{31} - 1$ if it is empty.
        window: how many tokens a query sees, its own among them; all if None.
        rotated: whether keys are kept as `rotate` leaves them.
        index: a `LatentCache` of the keys of the layer's indexer; None if it has none.

    Examples:
        >>> cache = KVCache.init((), num_kv_heads=1, max_len=4, head_dim=2)
        >>> cache, seen = cache.append(np.ones((1, 3, 2)), np.ones((1, 3, 2)), np.arange(3))
        >>> cache.next_positions(1)
        array([3])
        >>> seen.mask(np.arange(1, 3)).astype(int)
        array([[1, 1, 0, 0],
               [1, 1, 1, 0]])
    """

    key: Inexact[np.ndarray, "*batch h slots d_h"]
    value: Inexact[np.ndarray, "*batch h slots d_h"]
    positions: Integer[np.ndarray, "*batch slots"]
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
    ) -> "KVCache":
        """Make room for tokens, and keep none yet.

        Args:
            batch_shape: the batch axes, `(8,)` or just 8.
            num_kv_heads: the number of heads of keys and values.
            max_len: how many tokens there are, at least 1.
            head_dim: the width of a head.
            window: how many tokens a query sees, its own among them; all if not given. The cache
                then needs room for these only.
            rotated: whether keys are kept as `rotate` leaves them.
        """
        shape = contract.cache_shape(batch_shape, num_kv_heads, max_len, head_dim, window)
        positions = np.full((*shape[:-3], shape[-2]), EMPTY)
        return cls(np.zeros(shape), np.zeros(shape), positions, window, rotated)

    def next_positions(self, n: int) -> Integer[np.ndarray, "*batch n"]:
        """Where the next `n` tokens of each example stand: after the largest position that is kept.

        Args:
            n: how many tokens come.

        Returns:
            `(*batch, n)`.
        """
        contract.cache_arrays(self)
        return following(self, contract.integer("n", n))

    def append(
        self,
        key: Inexact[np.ndarray, "*batch h n d_h"],
        value: Inexact[np.ndarray, "*batch h n d_h"],
        positions: Integer[np.ndarray, "*#batch n"],
    ) -> tuple["KVCache", "KVCache"]:
        """Keep the tokens that come, and say what they may attend to.

        Args:
            key: `(*batch, h, n, d_h)`.
            value: `(*batch, h, n, d_h)`.
            positions: where they stand, `(n)` or `(*batch, n)`; a negative one marks padding.

        Returns:
            The next cache, and a cache that holds what these tokens may attend to. It is the same,
            except where several tokens enter a cache with a window: the first of them still see
            what the last of them have put out.

        Raises:
            ValueError: if shapes do not fit, there are more tokens than slots, or positions do not rise in a
                cache with a window.
        """
        batch, slots = self.positions.shape[:-1], self.positions.shape[-1]
        contract.cache_entry(key, value, positions, self)
        positions = np.broadcast_to(positions, (*batch, key.shape[-2])).astype(np.int64)
        kept = positions >= 0
        places = numbers(self, positions)
        wraps = self.window == slots
        if not wraps:
            contract.cache_room(np.max(places, initial=-1), slots)
        else:
            contract.cache_rises(fallen(self, positions).any(), self.window)
            last = np.max(positions, axis=-1, keepdims=True, initial=-1)
            kept = kept & (positions > last - slots)  # of a long chunk only the end
            places = positions % slots
        new = KVCache(self.key.copy(), self.value.copy(), self.positions.copy())
        new = replace(new, window=self.window, rotated=self.rotated, index=self.index)
        for *example, token in np.argwhere(kept):
            at, where = tuple(example), positions[(*example, token)]
            slot = places[(*example, token)]
            new.key[(*at, slice(None), slot)] = key[(*at, slice(None), token)]
            new.value[(*at, slice(None), slot)] = value[(*at, slice(None), token)]
            new.positions[(*at, slot)] = where
        if not wraps or key.shape[-2] == 1:
            return new, new
        known = np.where(positions < 0, EMPTY, positions)
        pairs = (self.key, key), (self.value, value)
        both = [np.concatenate(pair, axis=-2) for pair in pairs]
        where = np.concatenate([self.positions, known], axis=-1)
        return new, KVCache(*both, where, self.window, self.rotated)

    def trim(self, n: int | Integer[np.ndarray, "*batch"]) -> "KVCache":
        """Forget the newest tokens, such as drafts that were rejected.

        Args:
            n: how many tokens, or how many of each example, `(*batch)`.

        Returns:
            The cache without them.

        Raises:
            ValueError: if fewer tokens are kept, or a cache with a window has wrapped: what its
                newest tokens put out is gone.
        """
        contract.cache_arrays(self)
        newest = trimmed(self, n, self.window == self.positions.shape[-1])
        key, value = (
            np.where(newest[..., None, :, None], 0, x) for x in (self.key, self.value)
        )
        positions = np.where(newest, EMPTY, self.positions)
        index = None if self.index is None else self.index.trim(n)
        return replace(self, key=key, value=value, positions=positions, index=index)

    def mask(
        self, query_positions: Integer[np.ndarray, "*#batch n_q"]
    ) -> Bool[np.ndarray, "*batch n_q slots"]:
        """Which slots queries may attend to, whose tokens came last: theirs and earlier ones in the window.

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
    """Which slots hold the `n` newest tokens of each example: the last ones that are not empty."""
    slots = cache.positions.shape[-1]
    there = cache.positions != EMPTY
    n = np.broadcast_to(contract.cache_trim(n, cache.positions), there.shape[:-1])[
        ..., None
    ]
    for has, where, some in zip(
        *(x.reshape(-1, x.shape[-1]) for x in (there, cache.positions, n)), strict=True
    ):
        beyond = wraps and bool((where[has] >= slots).any())
        contract.cache_trimmed(beyond, int(has.sum()), int(some[0]), slots)
    return there & (np.cumsum(there[..., ::-1], axis=-1)[..., ::-1] <= n)


def following(cache, n):
    """Where the next `n` tokens of each example stand."""
    kept = np.where(cache.positions == EMPTY, -1, cache.positions)
    return np.max(kept, axis=-1)[..., None] + 1 + np.arange(n)


def numbers(cache, positions):
    """The slot of each token that comes, `(*batch, n)`: how many are kept before it."""
    held = np.sum(cache.positions != EMPTY, axis=-1, keepdims=True)
    return held + np.cumsum(positions >= 0, axis=-1) - 1


def fallen(cache, positions):
    """Which tokens that come do not stand after all that came before."""
    before = np.concatenate([following(cache, 1) - 1, positions], axis=-1)
    return (positions >= 0) & (positions <= np.maximum.accumulate(before, -1)[..., :-1])


def held(cache, positions, window=None):
    """Which slots the tokens that came last may attend to, of which these are the positions."""
    slots = cache.positions.shape[-1]
    kept = positions >= 0
    offsets = positions[..., :, None] - cache.positions[..., None, :].astype(np.int64)
    if window is not None and window <= slots:  # there positions rise
        return (offsets >= 0) & (offsets < window)
    own = numbers(cache, positions) - np.sum(kept, axis=-1, keepdims=True)
    past = (np.arange(slots) <= own[..., None]) & kept[..., None]
    return past if window is None else past & (np.abs(offsets) < window)
