"""Masks: which query may attend to which key. True means may attend."""

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Integer, Real

from posattn import contract
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["Chunk", "Window", "causal_mask", "length_mask", "window_mask"]


def _places(n_q, n_k):
    """The positions of queries, as a column, and of keys, the last query standing at the last key."""
    n_q = contract.integer("n_q", n_q)
    n_k = n_q if n_k is None else contract.integer("n_k", n_k)
    return jnp.arange(n_k - n_q, n_k)[:, None], jnp.arange(n_k)


@validated
def causal_mask(n_q: int, n_k: int | None = None) -> Bool[Array, "n_q n_k"]:
    """Let each query attend to its own position and to the past.

    Twin of :func:`posattn.reference.causal_mask`.
    Two ranges are compared: nothing larger than the mask is made on the way.

    Args:
        n_q: number of queries, at least 0.
        n_k: number of keys, at least 0; the number of queries if not given.

    Returns:
        The mask, `(n_q, n_k)`.

    Examples:
        >>> causal_mask(2)
        Array([[ True, False],
               [ True,  True]], dtype=bool)
    """
    query, key = _places(n_q, n_k)
    return key <= query


@validated
def length_mask(
    lengths: Integer[Array | np.ndarray, "batch"]
    | Integer[Array | np.ndarray, "batch n_q"],
    n_k: int,
) -> Bool[Array, "batch _ n_k"]:
    """Let queries attend to the first keys only, as many as `lengths` says.

    Twin of :func:`posattn.reference.length_mask`.
    The values of `lengths` are checked if they are in a NumPy array.
    Those of a JAX array are not, because reading them would make the host wait for the device: there a
    negative length counts as 0, and one above `n_k` as `n_k`.

    Args:
        lengths: number of keys that may be attended to, from 0 to `n_k`; `(batch)` for one per
            example, or `(batch, n_q)` for one per query.
        n_k: number of keys, at least 0.

    Returns:
        The mask, `(batch, 1, n_k)` or `(batch, n_q, n_k)`.

    Examples:
        >>> length_mask(jnp.array([3, 1]), 4).astype(int)
        Array([[[1, 1, 1, 0]],
        <BLANKLINE>
               [[1, 0, 0, 0]]], dtype=int32)
    """
    n_k = contract.integer("n_k", n_k)
    contract.lengths(lengths, n_k, known=isinstance(lengths, np.ndarray))
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    return jnp.arange(n_k) < per_query[..., None]


@validated
def window_mask(n_q: int, n_k: int, window: int) -> Bool[Array, "n_q n_k"]:
    """Let each query attend to the keys nearer than `window` positions, on both sides.

    Twin of :func:`posattn.reference.window_mask`.

    Args:
        n_q: number of queries, at least 0.
        n_k: number of keys, at least 0.
        window: the width, at least 1: with a causal mask, so many tokens are seen, the query's own
            among them.

    Returns:
        The mask, `(n_q, n_k)`.

    Examples:
        >>> window_mask(3, 3, 2).astype(int)
        Array([[1, 1, 0],
               [1, 1, 1],
               [0, 1, 1]], dtype=int32)
    """
    window = contract.integer("window", window, least=1)
    query, key = _places(n_q, n_k)
    return (key > query - window) & (key < query + window)


@validated
@register
@dataclass(frozen=True)
class Window:
    """Let each query attend to the keys nearer than `window` positions, on both sides.

    Twin of :class:`posattn.reference.Window`; a pytree without leaves, equal to all of the same width.

    Args:
        window: the width, at least 1.

    Examples:
        >>> Window(2)(jnp.array([3]), jnp.arange(6)).astype(int)
        Array([[0, 0, 1, 1, 1, 0]], dtype=int32)
    """

    window: int = field(metadata={"static": True})

    def __post_init__(self):
        object.__setattr__(self, "window", contract.integer("window", self.window, least=1))

    def __call__(
        self,
        query_positions: Real[Array | np.ndarray, "*#batch n_q"],
        key_positions: Real[Array | np.ndarray, "*#batch n_k"],
    ) -> Bool[Array | np.ndarray, "*batch n_q n_k"]:
        """Which query may attend to which key.

        Twin of calling :class:`posattn.reference.Window`.

        Args:
            query_positions: `(n_q)` or `(*batch, n_q)`.
            key_positions: `(n_k)` or `(*batch, n_k)`.

        Returns:
            True means may attend, `(*batch, n_q, n_k)`.
        """
        return abs(relative_positions(query_positions, key_positions)) < self.window


@validated
@register
@dataclass(frozen=True)
class Chunk:
    """Let each query attend to the keys of its own chunk of `size` positions.

    Twin of :class:`posattn.reference.Chunk`; a pytree without leaves, equal to all of the same size.

    Args:
        size: the number of positions in a chunk, at least 1.

    Examples:
        >>> Chunk(2)(jnp.array([3]), jnp.arange(6)).astype(int)
        Array([[0, 0, 1, 1, 0, 0]], dtype=int32)
    """

    size: int = field(metadata={"static": True})

    def __post_init__(self):
        object.__setattr__(self, "size", contract.integer("size", self.size, least=1))

    def __call__(
        self,
        query_positions: Real[Array | np.ndarray, "*#batch n_q"],
        key_positions: Real[Array | np.ndarray, "*#batch n_k"],
    ) -> Bool[Array | np.ndarray, "*batch n_q n_k"]:
        """Which query may attend to which key.

        Twin of calling :class:`posattn.reference.Chunk`.

        Args:
            query_positions: `(n_q)` or `(*batch, n_q)`.
            key_positions: `(n_k)` or `(*batch, n_k)`.

        Returns:
            True means may attend, `(*batch, n_q, n_k)`.
        """
        query, key = _exact(query_positions, key_positions)
        return query[..., :, None] // self.size == key[..., None, :] // self.size


def relative_positions(
    query_positions: Real[Array | np.ndarray, "*#batch n_q"],
    key_positions: Real[Array | np.ndarray, "*#batch n_k"],
) -> Real[Array | np.ndarray, "*batch n_q n_k"]:
    """Key minus query, exactly: integers stay integers, and unsigned ones get a sign.

    NumPy arrays give a NumPy array, so that fractions keep 64 bits.
    """
    query, key = _exact(query_positions, key_positions)
    return key[..., None, :] - query[..., :, None]


def _exact(query_positions, key_positions):
    """Positions in as many bits as JAX computes with, or in 64 where both are NumPy's."""
    contract.position_pair(query_positions, key_positions)
    given = query_positions, key_positions
    numpy = np if all(isinstance(p, np.ndarray) for p in given) else jnp
    return [
        numpy.asarray(p, float if jnp.issubdtype(p.dtype, jnp.floating) else int)
        for p in given
    ]


@register
@dataclass(frozen=True, eq=False)
class Every:
    """What several masks let see together; a function of positions if all of them are."""

    masks: tuple[Any, ...]

    def __call__(self, query_positions, key_positions):
        return reduce(
            jnp.logical_and, (mask(query_positions, key_positions) for mask in self.masks)
        )


def span(mask):
    """How many tokens a query sees at most of its past, its own among them, if a mask says so."""
    if isinstance(mask, Window):
        return mask.window
    return mask.size if isinstance(mask, Chunk) else None


def where_not_cached(mask, cache):
    """The mask of a layer, or None if a cache hides all that it hides."""
    held = None if cache is None else cache.window
    known = held is not None and isinstance(mask, Window) and held <= mask.window
    return None if known else mask


def of_pairs(mask, positions, shape):
    """A mask for scores of `shape`, `(*batch, h, n_q, n_k)`, also of one that is a function of positions."""
    if isinstance(mask, Every):
        each = [of_pairs(part, positions, shape) for part in mask.masks]
        return reduce(jnp.logical_and, each)
    if callable(mask):
        mask = mask(*positions)
        contract.array("mask", mask)
        heads = (
            max(len(x.shape) for x in positions) > 1
        )  # all heads of an example stand alike
        mask = jnp.asarray(mask)[..., None, :, :] if heads else jnp.asarray(mask)
    contract.mask(mask, shape)
    return mask


def all_of(masks):
    """What masks let see together, None if they hide nothing."""
    given = tuple(part for mask in masks for part in parts_of(mask))
    return Every(given) if len(given) > 1 else next(iter(given), None)


def for_one_argument(mask, positions, shape):
    """A mask as functions outside take it: an array, unless it is a function of positions as a whole."""
    whole = all(map(callable, parts_of(mask)))
    return mask if whole else of_pairs(mask, positions, shape)


def parts_of(mask):
    """The masks that one is made of, each an array or a function of positions."""
    if isinstance(mask, Every):
        return mask.masks
    return () if mask is None else (mask,)


def for_heads(mask, shape):
    """A mask for scores of `shape`, `(*batch, h, n_q, n_k)`, with an axis of heads if it has none."""
    contract.layer_mask(mask, shape)
    return (
        mask
        if mask is None or callable(mask) or mask.ndim == len(shape)
        else mask[..., None, :, :]
    )


def zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    seen = jnp.any(mask, axis=-2)
    if seen.ndim > 1 and x.ndim > 2 and seen.shape[-2] not in (1, x.shape[-3]):
        *batch, heads, n_k = seen.shape  # several heads of queries share one of keys
        seen = seen.reshape(*batch, x.shape[-3], heads // x.shape[-3], n_k).any(axis=-2)
    return jnp.where(seen[..., None], x, 0)


def of_selected(select, query, key):
    """Which keys each query selects, `(*#batch, #h, n_q, n_k)`, from their indices."""
    n_k = key.shape[-2]
    select = jnp.where(jnp.asarray(select) < 0, n_k, select)
    chosen = jnp.zeros((*select.shape[:-1], n_k), bool)
    chosen = jnp.put_along_axis(chosen, select, True, axis=-1, inplace=False, mode="drop")
    if query.ndim > 2 and select.ndim < query.ndim:
        return chosen[..., None, :, :]
    if query.ndim > 2 and chosen.shape[-3] not in (1, query.shape[-3]):
        return jnp.repeat(chosen, query.shape[-3] // chosen.shape[-3], axis=-3)
    return chosen
