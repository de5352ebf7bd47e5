"""A cache of keys and values: each token is projected once, and later queries find it here."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["KVCache"]

EMPTY = 2**31 - 1  # the position of a slot that holds nothing: later than any query


@validated
@register
@dataclass(frozen=True, eq=False)
class KVCache:
    """The keys and values of the tokens so far, in arrays that never change their shape.

    Twin of :class:`posattn.reference.KVCache`; a pytree whose leaves are the arrays.
    So one compilation serves all steps, also inside `jax.lax.scan`; jit a step with
    `donate_argnums` for the cache, and the arrays are written in place.

    Make one with `KVCache.init(batch_shape, num_kv_heads, max_len, head_dim)`.

    Args:
        key: the keys, `(*batch, h_kv, slots, d_h)`.
        value: the values, likewise.
        positions: where the token in each slot stands, `(*batch, slots)`, int32;
            $2^{31} - 1$ if it is empty.
        window: how many tokens a query sees, its own among them; all if None.
        rotated: whether keys are rotated before they are stored, rather than at each call.
        index: a `LatentCache` of the keys of the layer's indexer; None if it has none.

    Examples:
        >>> from posattn.jax import MultiHeadAttention, Rotary
        >>> layer = MultiHeadAttention.init(jax.random.key(0), 8, 2, rotate=Rotary())
        >>> cache = KVCache.init((3,), 2, 16, 4)
        >>> x = jax.random.normal(jax.random.key(1), (3, 5, 8))
        >>> _, cache = layer(x[:, :4], cache=cache)
        >>> last, cache = jax.jit(layer)(x[:, 4:], cache=cache)
        >>> bool(jnp.allclose(last, layer(x, causal=True)[:, 4:], atol=1e-6))
        True
        >>> cache.next_positions(1)[0]
        Array([5], dtype=int32)
    """

    key: Float[Array, "*batch h slots d_h"]
    value: Float[Array, "*batch h slots d_h"]
    positions: Integer[Array, "*batch slots"]
    window: int | None = field(default=None, metadata={"static": True})
    rotated: bool = field(default=True, metadata={"static": True})
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
        dtype: DTypeLike | None = None,
    ) -> "KVCache":
        """Make an empty cache.

        Twin of :meth:`posattn.reference.KVCache.init`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            num_kv_heads: the number of heads of keys and values, at least 1.
            max_len: how many tokens a row can have, at least 1.
            head_dim: the width of a head, at least 1.
            window: how many tokens a query sees, its own among them; a row may then have any length,
                if the window is not larger than `max_len`. All if not given.
            rotated: store rotated keys, which is right where a rotation depends only on a token's own
                position. Otherwise all keys are rotated at each call.
            dtype: of keys and values; JAX's default one if not given.

        Returns:
            The cache.
        """
        shape = contract.cache_shape(batch_shape, num_kv_heads, max_len, head_dim, window)
        dtype = jnp.result_type(float if dtype is None else dtype)
        empty = jnp.full((*shape[:-3], shape[-2]), EMPTY, jnp.int32)
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), empty, window, rotated)

    def next_positions(self, n: int) -> Integer[Array, "*batch n"]:
        """The positions after the largest stored one of each row.

        Twin of :meth:`posattn.reference.KVCache.next_positions`.

        Args:
            n: how many, at least 0.

        Returns:
            The positions, `(*batch, n)`.
        """
        contract.cache_arrays(self)
        return following(self, contract.integer("n", n))

    def append(
        self,
        key: Float[Array, "*batch h n d_h"],
        value: Float[Array, "*batch h n d_h"],
        positions: Integer[Array | np.ndarray, "*#batch n"],
    ) -> tuple["KVCache", "KVCache"]:
        """Store tokens, each in the next slot.

        Twin of :meth:`posattn.reference.KVCache.append`.
        Under `jax.jit` a token for which there is no slot, or that falls behind others where there is a
        window, cannot raise: it is dropped, and :class:`MultiHeadAttention` answers it with NaN.

        Args:
            key: the keys, `(*batch, h_kv, n, d_h)`.
            value: the values, likewise.
            positions: where the tokens stand, `(n)` or `(*batch, n)`; a negative one marks padding,
                which is not stored.

        Returns:
            The next cache, and a cache that holds what these tokens may attend to. It is the same,
            except where several tokens enter a cache with a window: the first of them still see
            what the last of them have put out.
        """
        contract.cache_entry(key, value, positions, self)
        *batch, slots = self.positions.shape
        n = key.shape[-2]
        positions = jnp.broadcast_to(jnp.asarray(positions, jnp.int32), (*batch, n))
        lost = beyond(self, positions, self.window)
        wraps = self.window == slots
        slot = positions % slots if wraps else numbers(self, positions)
        if not isinstance(lost, jax.core.Tracer) and lost.size:
            if wraps:
                contract.cache_rises(bool(lost.any()), self.window)
            else:
                contract.cache_room(int(slot.max()), slots)
        kept = (positions >= 0) & ~lost
        if wraps:  # of a long chunk only the end
            last = jnp.max(positions, axis=-1, keepdims=True, initial=-1)
            kept &= positions > last - slots
        slot = jnp.where(kept, slot, slots)  # beyond the last: dropped
        store = jnp.vectorize(_store, signature="(h,s,d),(h,n,d),(n)->(h,s,d)")
        place = jnp.vectorize(placed, signature="(s),(n),(n)->(s)")
        new = replace(
            self,
            key=store(self.key, key, slot),
            value=store(self.value, value, slot),
            positions=place(self.positions, positions, slot),
        )
        if not wraps or n == 1:
            return new, new
        known = jnp.where(positions < 0, EMPTY, positions)
        seen = replace(
            self,
            key=jnp.concatenate([self.key, key], axis=-2),
            value=jnp.concatenate([self.value, value], axis=-2),
            positions=jnp.concatenate([self.positions, known], axis=-1),
        )
        return new, seen

    def trim(self, n: int | Integer[Array | np.ndarray, "*batch"]) -> "KVCache":
        """Forget the newest tokens, such as drafts that were rejected.

        Twin of :meth:`posattn.reference.KVCache.trim`.

        Args:
            n: how many tokens, or how many of each example, `(*batch)`.

        Returns:
            The cache without them.
        """
        contract.cache_arrays(self)
        newest, lost = trimmed(self, n, self.window == self.positions.shape[-1])
        key, value = (
            jnp.where(newest[..., None, :, None], 0, x) for x in (self.key, self.value)
        )
        value = jnp.where(lost[..., None, None, None], jnp.nan, value)
        positions = jnp.where(newest, EMPTY, self.positions)
        index = None if self.index is None else self.index.trim(n)
        return replace(self, key=key, value=value, positions=positions, index=index)

    def mask(
        self, query_positions: Integer[Array | np.ndarray, "*#batch n_q"]
    ) -> Bool[Array, "*batch n_q slots"]:
        """Which slots queries may attend to, whose tokens came last: theirs and earlier ones in the window.

        Twin of :meth:`posattn.reference.KVCache.mask`.

        Args:
            query_positions: where the last tokens stand, `(n_q)` or `(*batch, n_q)`; a negative one of
                padding, which was not stored.

        Returns:
            The mask, `(*batch, n_q, slots)`.
        """
        contract.cache_arrays(self)
        contract.position_pair(query_positions, self.positions, integers=True)
        return held(self, jnp.asarray(query_positions, jnp.int32), self.window)


def trimmed(cache, n, wraps=False):
    """Which slots hold the `n` newest tokens of each example, and which examples lack so many."""
    slots = cache.positions.shape[-1]
    there = cache.positions != EMPTY
    n = jnp.asarray(contract.cache_trim(n, cache.positions))
    kept = there.sum(axis=-1)
    beyond = wraps & (there & (cache.positions >= slots)).any(axis=-1)
    lost = (n < 0) | (n > kept) | (beyond & (n > 0))
    if not isinstance(lost, jax.core.Tracer):
        each = (jnp.broadcast_to(x, kept.shape).ravel().tolist() for x in (beyond, kept, n))
        for one in zip(*each, strict=True):
            contract.cache_trimmed(*one, slots)
    later = jax.lax.cumsum(there.astype(jnp.int32), axis=there.ndim - 1, reverse=True)
    return there & (later <= n[..., None]), lost


def following(cache, n):
    """Where the next `n` tokens of each example stand."""
    last = jnp.max(jnp.where(cache.positions == EMPTY, -1, cache.positions), axis=-1)
    return last[..., None] + 1 + jnp.arange(n, dtype=jnp.int32)


@register
@dataclass(frozen=True)
class Past:
    """Which keys queries may attend to that stand after all of them that came before, by positions."""

    window: int | None = field(default=None, metadata={"static": True})

    def __call__(self, queries, keys):
        queries, keys = queries[..., :, None], keys[..., None, :]
        past = keys <= queries
        return past if self.window is None else past & (keys > queries - self.window)


def numbers(cache, positions):
    """The slot of each token that comes, `(*batch, n)`: how many are kept before it."""
    held = jnp.sum(cache.positions != EMPTY, axis=-1, keepdims=True, dtype=jnp.int32)
    return held + jnp.cumsum(positions >= 0, axis=-1, dtype=jnp.int32) - 1


def beyond(cache, positions, window=None):
    """Which tokens a cache has no slot for, or that do not stand after all others where that is needed."""
    slots = cache.positions.shape[-1]
    if window == slots:
        return fallen(cache, positions)
    return (positions >= 0) & (numbers(cache, positions) >= slots)


def fallen(cache, positions):
    """Which tokens that come do not stand after all that came before."""
    positions = jnp.broadcast_to(
        positions, (*cache.positions.shape[:-1], positions.shape[-1])
    )
    before = jnp.concatenate([following(cache, 1) - 1, positions], axis=-1)
    largest = jax.lax.cummax(before, axis=before.ndim - 1)[..., :-1]
    return (positions >= 0) & (positions <= largest)


def rule_of(cache, positions, follow, window=None):
    """A function of the next cache that makes the mask of tokens that come: an array, or a rule."""
    if not follow and positions.shape[-1] > 1:
        found = fallen(cache, positions)
        follow = not isinstance(found, jax.core.Tracer) and not found.any()
    if follow or window == cache.positions.shape[-1]:
        return lambda _: Past(window)
    return lambda cache: held(cache, positions, window)[..., None, :, :]


def held(cache, positions, window=None):
    """Which slots the tokens that came last may attend to, of which these are the positions."""
    slots = cache.positions.shape[-1]
    kept = positions >= 0
    if window is not None and window <= slots:  # there positions rise
        return Past(window)(positions, cache.positions)
    own = numbers(cache, positions) - jnp.sum(kept, axis=-1, keepdims=True)
    past = (jnp.arange(slots) <= own[..., None]) & kept[..., None]
    if window is None:
        return past
    offsets = positions[..., :, None] - cache.positions[..., None, :]
    return past & (abs(offsets) < window)


def _store(buffer, tokens, slots):
    return buffer.at[:, slots].set(tokens, mode="drop")


def placed(buffer, tokens, slots):
    """Write tokens into the first axis of a buffer, and drop what has no slot."""
    return buffer.at[slots].set(tokens, mode="drop")
