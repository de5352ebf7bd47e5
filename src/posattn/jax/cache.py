"""A cache of keys and values: each token is projected once, and later queries find it here."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer

from posattn import contract

__all__ = ["KVCache"]


@register_dataclass
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
        positions: where the token in each slot stands, `(*batch, slots)`, int32, -1 if it is empty.
        window: how many tokens a query sees, its own among them; all if None.
        turned: whether keys are rotated before they are stored, rather than at each call.

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
    turned: bool = field(default=True, metadata={"static": True})

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
        dtype: DTypeLike | None = None,
    ) -> "KVCache":
        """Make an empty cache.

        Twin of :meth:`posattn.reference.KVCache.init`.

        Args:
            batch_shape: the batch axes of the sequences, `(b)` for `(b, n, d)`.
            num_kv_heads: the number of heads of keys and values, at least 1.
            max_len: how many tokens a row can have, at least 1.
            head_dim: the width of a head, at least 1.
            window: how many tokens a query sees, its own among them; a row may then have any length,
                if the window is not larger than `max_len`. All if not given.
            turned: store rotated keys, which is right where a rotation depends on a token's own position
                alone; otherwise all keys are rotated at each call.
            dtype: of keys and values; JAX's default one if not given.

        Returns:
            The cache.

        Raises:
            TypeError: if a number is not an integer.
            ValueError: if a number is too small.
        """
        batch = tuple(contract.integer("batch_shape", size) for size in batch_shape)
        heads = contract.integer("num_kv_heads", num_kv_heads, least=1)
        slots = contract.integer("max_len", max_len, least=1)
        head_dim = contract.integer("head_dim", head_dim, least=1)
        if window is not None:
            window = contract.integer("window", window, least=1)
            slots = min(window, slots)
        dtype = jnp.result_type(float if dtype is None else dtype)
        shape = (*batch, heads, slots, head_dim)
        empty = jnp.full((*batch, slots), -1, jnp.int32)
        return cls(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), empty, window, turned)

    def next_positions(self, n: int) -> Integer[Array, "*batch n"]:
        """The positions after the last stored one of each row.

        Twin of :meth:`posattn.reference.KVCache.next_positions`.

        Args:
            n: how many, at least 0.

        Returns:
            The positions, `(*batch, n)`.

        Raises:
            TypeError: if `n` is not an integer.
            ValueError: if `n` is negative.
        """
        n = contract.integer("n", n)
        last = jnp.max(self.positions, axis=-1, keepdims=True)
        return last + 1 + jnp.arange(n, dtype=jnp.int32)

    def append(
        self,
        key: Float[Array, "*batch h n d_h"],
        value: Float[Array, "*batch h n d_h"],
        positions: Integer[Array | np.ndarray, "*#batch n"],
    ) -> "KVCache":
        """Store tokens, each in the slot of its position.

        Twin of :meth:`posattn.reference.KVCache.append`.
        Under `jax.jit` a position for which there is no slot cannot raise: the token is dropped, and
        :class:`MultiHeadAttention` answers it with NaN.

        Args:
            key: the keys, `(*batch, h_kv, n, d_h)`.
            value: the values, likewise.
            positions: where the tokens stand, `(n)` or `(*batch, n)`; a negative one marks padding,
                which is not stored.

        Returns:
            The cache with these tokens, another object.

        Raises:
            TypeError: if an array is not of its kind.
            ValueError: if shapes do not fit, or a position has no slot.
        """
        *batch, heads, slots, head_dim = self.key.shape
        for name, given, held in (("key", key, self.key), ("value", value, self.value)):
            contract.floating(name, given, like=held, owner="the cache")
            contract.parameter(name, given, (*batch, heads, "n", head_dim))
        n = key.shape[-2]
        contract.cache_positions(positions, tuple(batch), n)
        if not isinstance(positions, jax.core.Tracer) and self.ends and positions.size:
            contract.cache_room(int(positions.max()), slots)
        positions = jnp.broadcast_to(jnp.asarray(positions, jnp.int32), (*batch, n))
        last = jnp.max(positions, axis=-1, keepdims=True, initial=-1)
        kept = (positions >= 0) & ~self.beyond(positions)
        if not self.ends:
            kept &= positions > last - slots  # later tokens need the slots of those before
        slot = jnp.where(
            kept, positions % slots, slots
        )  # where there is no slot, nothing is stored
        store = jnp.vectorize(_store, signature="(h,s,d),(h,n,d),(n)->(h,s,d)")
        place = jnp.vectorize(_place, signature="(s),(n),(n)->(s)")
        return KVCache(
            store(self.key, key, slot),
            store(self.value, value, slot),
            place(self.positions, positions, slot),
            self.window,
            self.turned,
        )

    def mask(
        self, query_positions: Integer[Array | np.ndarray, "*#batch n_q"]
    ) -> Bool[Array, "*batch n_q slots"]:
        """Which tokens of the cache a query may attend to: its own and those before, in the window.

        Twin of :meth:`posattn.reference.KVCache.mask`.

        Args:
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.

        Returns:
            The mask, `(*batch, n_q, slots)`.

        Raises:
            TypeError: if positions are no array of integers.
            ValueError: if their shape does not fit.
        """
        batch, n_q = self.positions.shape[:-1], query_positions.shape[-1]
        contract.cache_positions(query_positions, batch, n_q)
        return within(query_positions, self.positions, self.window)

    @property
    def ends(self) -> bool:
        """Whether a row can have no more tokens than there are slots."""
        return self.window is None or self.window > self.key.shape[-2]

    def beyond(self, positions):
        """Which positions have no slot."""
        return (positions >= self.key.shape[-2]) & self.ends


def within(query_positions, key_positions, window):
    """Which keys are stored, not after the query, and in its window."""
    query, key = query_positions[..., :, None], key_positions[..., None, :]
    seen = (key >= 0) & (key <= query)
    return seen if window is None else seen & (key > query - window)


def _store(buffer, tokens, slots):
    return buffer.at[:, slots].set(tokens, mode="drop")


def _place(buffer, tokens, slots):
    return buffer.at[slots].set(tokens, mode="drop")
