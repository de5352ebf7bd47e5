"""Masks: which query may attend to which key. True means may attend."""

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
from jaxtyping import Bool, Integer, Num, Real

from posattn import contract
from posattn.reference.validated import validated

__all__ = ["Chunk", "Window", "causal_mask", "length_mask", "window_mask"]


def _distances(n_q: int, n_k: int | None) -> Integer[np.ndarray, "n_q n_k"]:
    """Key position minus query position, the last query standing at the last key."""
    n_q = contract.integer("n_q", n_q)
    n_k = n_q if n_k is None else contract.integer("n_k", n_k)
    return np.arange(n_k) - np.arange(n_k - n_q, n_k)[:, None]


@validated
def causal_mask(n_q: int, n_k: int | None = None) -> Bool[np.ndarray, "n_q n_k"]:
    r"""Let each query attend to its own position and to the past.

    Queries are aligned to the end of the keys: query $i$ stands at position $i + n_k - n_q$, so
    entry $(i, j)$ is True where $j \le i + n_k - n_q$.
    With one query (decoding) nothing is hidden.
    With more queries than keys the first queries stand before every key and see none.

    Args:
        n_q: number of queries, at least 0.
        n_k: number of keys, at least 0; the number of queries if not given.

    Returns:
        The mask, `(n_q, n_k)`.

    Examples:
        >>> causal_mask(3).astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [1, 1, 1]])
        >>> causal_mask(1, 4)
        array([[ True,  True,  True,  True]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.2.3.
    """
    return _distances(n_q, n_k) <= 0


@validated
def length_mask(
    lengths: Integer[np.ndarray, "batch"] | Integer[np.ndarray, "batch n_q"], n_k: int
) -> Bool[np.ndarray, "batch _ n_k"]:
    r"""Let queries attend to the first keys only, as many as `lengths` says.

    Entry $(b, i, j)$ is True where $j < \ell_b$, or $j < \ell_{b,i}$ with one length per query.

    Args:
        lengths: $\ell$, the number of keys that may be attended to, from 0 to `n_k`; `(batch)`
            for one per example $b$, or `(batch, n_q)` for one per query $i$.
        n_k: number of keys, at least 0.

    Returns:
        The mask, `(batch, 1, n_k)` or `(batch, n_q, n_k)`.

    Raises:
        ValueError: if `lengths` has another rank, or a length is negative or larger than `n_k`.

    Examples:
        >>> length_mask(np.array([3, 1]), 4).astype(int)
        array([[[1, 1, 1, 0]],
        <BLANKLINE>
               [[1, 0, 0, 0]]])
    """
    n_k = contract.integer("n_k", n_k)
    contract.lengths(lengths, n_k)
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    return np.arange(n_k) < per_query[..., None]


@validated
def window_mask(n_q: int, n_k: int, window: int) -> Bool[np.ndarray, "n_q n_k"]:
    r"""Let each query attend to the keys nearer than `window` positions, on both sides.

    Entry $(i, j)$ is True where $|j - (i + n_k - n_q)| < w$.
    Together with a causal mask this is the sliding window that holds $w$ tokens, the query's own
    among them.
    Others count differently: Longformer's $w$ is $w / 2$ tokens on each side, here $w / 2 + 1$, and
    Mistral's text has $W$ tokens before the query's own, here $W + 1$.

    Args:
        n_q: number of queries, at least 0.
        n_k: number of keys, at least 0.
        window: the width $w$, at least 1.

    Returns:
        The mask, `(n_q, n_k)`.

    Examples:
        >>> window_mask(4, 4, 2).astype(int)
        array([[1, 1, 0, 0],
               [1, 1, 1, 0],
               [0, 1, 1, 1],
               [0, 0, 1, 1]])

    References:
        :cite:t:`beltagy2020longformer`, section 3.1; :cite:t:`jiang2023mistral`.
    """
    window = contract.integer("window", window, least=1)
    return np.abs(_distances(n_q, n_k)) < window


@validated
@dataclass(frozen=True)
class Window:
    r"""Let each query attend to the keys nearer than `window` positions, on both sides.

    Key $j$ is seen by query $i$ where $|k_j - q_i| < w$, with $q_i$ and $k_j$ their positions.
    The rule of :func:`window_mask` as a function of positions, to be given as a mask: so no array of
    $n_q \times n_k$ entries is made, and a fast path skips what the window hides.

    Args:
        window: the width $w$, at least 1.

    Examples:
        >>> Window(2)(np.array([3]), np.arange(6)).astype(int)
        array([[0, 0, 1, 1, 1, 0]])
        >>> Window(2) == Window(2)
        True

    References:
        :cite:t:`beltagy2020longformer`, section 3.1; :cite:t:`jiang2023mistral`.
    """

    window: int

    def __post_init__(self):
        object.__setattr__(self, "window", contract.integer("window", self.window, least=1))

    def __call__(
        self,
        query_positions: Num[np.ndarray, "*#batch n_q"],
        key_positions: Num[np.ndarray, "*#batch n_k"],
    ) -> Bool[np.ndarray, "*batch n_q n_k"]:
        """Which query may attend to which key.

        Args:
            query_positions: `(n_q)` or `(*batch, n_q)`.
            key_positions: `(n_k)` or `(*batch, n_k)`.

        Returns:
            True means may attend, `(*batch, n_q, n_k)`.
        """
        return np.abs(relative_positions(query_positions, key_positions)) < self.window


@validated
@dataclass(frozen=True)
class Chunk:
    r"""Let each query attend to the keys of its own chunk of `size` positions.

    Key $j$ is seen by query $i$ where $\lfloor k_j / c \rfloor = \lfloor q_i / c \rfloor$, with $q_i$ and
    $k_j$ their positions.
    Chunks begin at the multiples of $c$, so unlike a window they do not move with the query: with a
    causal mask the first token of a chunk sees only itself.

    Args:
        size: the number $c$ of positions in a chunk, at least 1.

    Examples:
        >>> Chunk(2)(np.array([3]), np.arange(6)).astype(int)
        array([[0, 0, 1, 1, 0, 0]])
        >>> Chunk(2) == Chunk(2)
        True
    """

    size: int

    def __post_init__(self):
        object.__setattr__(self, "size", contract.integer("size", self.size, least=1))

    def __call__(
        self,
        query_positions: Num[np.ndarray, "*#batch n_q"],
        key_positions: Num[np.ndarray, "*#batch n_k"],
    ) -> Bool[np.ndarray, "*batch n_q n_k"]:
        """Which query may attend to which key.

        Args:
            query_positions: `(n_q)` or `(*batch, n_q)`.
            key_positions: `(n_k)` or `(*batch, n_k)`.

        Returns:
            True means may attend, `(*batch, n_q, n_k)`.
        """
        query, key = _exact(query_positions, key_positions)
        return query[..., :, None] // self.size == key[..., None, :] // self.size


def relative_positions(
    query_positions: Real[np.ndarray, "*#batch n_q"],
    key_positions: Real[np.ndarray, "*#batch n_k"],
) -> Real[np.ndarray, "*batch n_q n_k"]:
    """Key minus query, exactly: integers stay integers, and unsigned ones get a sign."""
    query, key = _exact(query_positions, key_positions)
    return key[..., None, :] - query[..., :, None]


def _exact(query_positions, key_positions):
    """Positions in 64 bits, so that nothing is rounded and nothing wraps."""
    contract.position_pair(query_positions, key_positions)
    return (
        p.astype(np.float64 if p.dtype.kind == "f" else np.int64)
        for p in (query_positions, key_positions)
    )


@dataclass(frozen=True)
class Every:
    """What several masks that are functions of positions let see together."""

    masks: tuple[Any, ...]

    def __call__(self, query_positions, key_positions):
        return reduce(and_, (mask(query_positions, key_positions) for mask in self.masks))


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
        return reduce(and_, (of_pairs(each, positions, shape) for each in mask.masks))
    if not callable(mask):
        return mask
    found = mask(*positions)
    contract.array("mask", found)
    heads = max(len(x.shape) for x in positions) > 1  # all heads of an example stand alike
    found = found[..., None, :, :] if heads else found
    contract.mask(found, shape)
    return found


def all_of(masks, positions, shape):
    """What masks let see together; a function of positions if all of them are, None if there are none."""
    given = tuple(mask for mask in masks if mask is not None)
    if len(given) < 2:
        return given[0] if given else None
    every = Every(given)
    return every if all(map(callable, given)) else of_pairs(every, positions, shape)


def for_heads(mask, shape):
    """Give a mask that holds for every head an axis for them: it fits scores of `shape` then."""
    contract.layer_mask(mask, shape)
    shared = mask is not None and not callable(mask) and mask.ndim < len(shape)
    return mask[..., None, :, :] if shared else mask


def of_selected(select, query, key):
    """Which keys each query selects, `(*#batch, #h, n_q, n_k)`, from their indices."""
    n_k = key.shape[-2]
    chosen = np.zeros((*select.shape[:-1], n_k + 1), bool)
    np.put_along_axis(chosen, np.where(select < 0, n_k, select), True, axis=-1)
    chosen = chosen[..., :n_k]
    if query.ndim > 2 and select.ndim < query.ndim:
        return chosen[..., None, :, :]
    if query.ndim > 2 and chosen.shape[-3] not in (1, query.shape[-3]):
        return np.repeat(chosen, query.shape[-3] // chosen.shape[-3], axis=-3)
    return chosen
