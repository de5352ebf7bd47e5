"""Masks: which query may attend to which key. True means may attend."""

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import torch
from jaxtyping import Bool, Integer, Real
from torch import Tensor

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["Chunk", "Window", "causal_mask", "length_mask", "window_mask"]


def _positions(n_q, n_k, device):
    """Where queries (as a column) and keys stand, the last query at the last key."""
    n_q = contract.integer("n_q", n_q)
    n_k = n_q if n_k is None else contract.integer("n_k", n_k)
    queries = torch.arange(n_k - n_q, n_k, device=device)
    return queries[:, None], torch.arange(n_k, device=device)


def readable(x):
    """Whether the values of `x` are at hand: on the CPU, and not while a program is compiled."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def transformed():
    """Whether a transformation of `torch.func` runs, under which nothing is computed again."""
    # private: no public name of torch 2.13 tells whether a transformation runs
    return torch._C._functorch.peek_interpreter_stack() is not None


@validated
def causal_mask(
    n_q: int, n_k: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "n_q n_k"]:
    """Let each query attend to its own position and to the past.

    Twin of :func:`posattn.reference.causal_mask`; the mask is made on `device`.

    Args:
        n_q: number of queries, at least 0.
        n_k: number of keys, at least 0; the number of queries if not given.
        device: where the result lives.

    Returns:
        The mask, `(n_q, n_k)`.

    Examples:
        >>> causal_mask(2)
        tensor([[ True, False],
                [ True,  True]])
    """
    queries, keys = _positions(n_q, n_k, device)
    return keys <= queries


@validated
def length_mask(
    lengths: Integer[Tensor, "batch"] | Integer[Tensor, "batch n_q"], n_k: int
) -> Bool[Tensor, "batch _ n_k"]:
    """Let queries attend to the first keys only, as many as `lengths` says.

    Twin of :func:`posattn.reference.length_mask`; the mask is made where `lengths` are.
    The values of `lengths` are checked on the CPU only, and not under `torch.compile`: to read them
    elsewhere would stop the program until they are known. One that is too large counts as `n_k`.

    Args:
        lengths: number of keys that may be attended to, from 0 to `n_k`; `(batch)` for one per
            example, or `(batch, n_q)` for one per query.
        n_k: number of keys, at least 0.

    Returns:
        The mask, `(batch, 1, n_k)` or `(batch, n_q, n_k)`.

    Examples:
        >>> length_mask(torch.tensor([3, 1]), 4).int()
        tensor([[[1, 1, 1, 0]],
        <BLANKLINE>
                [[1, 0, 0, 0]]], dtype=torch.int32)
    """
    n_k = contract.integer("n_k", n_k)
    contract.array("lengths", lengths)
    contract.lengths(lengths, n_k, known=readable(lengths))
    lengths = lengths.long()  # also of a dtype that PyTorch does not compare
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    return torch.arange(n_k, device=lengths.device) < per_query[..., None]


@validated
def window_mask(
    n_q: int, n_k: int, window: int, *, device: torch.device | str | None = None
) -> Bool[Tensor, "n_q n_k"]:
    """Let each query attend to the keys nearer than `window` positions, on both sides.

    Twin of :func:`posattn.reference.window_mask`; the mask is made on `device`.

    Args:
        n_q: number of queries, at least 0.
        n_k: number of keys, at least 0.
        window: the width w, at least 1.
        device: where the result lives.

    Returns:
        The mask, `(n_q, n_k)`.

    Examples:
        >>> window_mask(3, 3, 2).int()
        tensor([[1, 1, 0],
                [1, 1, 1],
                [0, 1, 1]], dtype=torch.int32)
    """
    window = contract.integer("window", window, least=1)
    queries, keys = _positions(n_q, n_k, device)
    return (keys < queries + window) & (keys > queries - window)


@validated
@dataclass(frozen=True)
class Window:
    """Let each query attend to the keys nearer than `window` positions, on both sides.

    Twin of :class:`posattn.reference.Window`; the mask is made where the positions are.

    Args:
        window: the width w, at least 1.

    Examples:
        >>> Window(2)(torch.tensor([3]), torch.arange(6)).int()
        tensor([[0, 0, 1, 1, 1, 0]], dtype=torch.int32)
    """

    window: int

    def __post_init__(self):
        object.__setattr__(self, "window", contract.integer("window", self.window, least=1))

    def __call__(
        self,
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Bool[Tensor, "*batch n_q n_k"]:
        """Which query may attend to which key.

        Twin of calling :class:`posattn.reference.Window`.

        Args:
            query_positions: `(n_q)` or `(*batch, n_q)`.
            key_positions: `(n_k)` or `(*batch, n_k)`.

        Returns:
            True means may attend, `(*batch, n_q, n_k)`.
        """
        return relative_positions(query_positions, key_positions).abs() < self.window


@validated
@dataclass(frozen=True)
class Chunk:
    """Let each query attend to the keys of its own chunk of `size` positions.

    Twin of :class:`posattn.reference.Chunk`; the mask is made where the positions are.

    Args:
        size: the number of positions in a chunk, at least 1.

    Examples:
        >>> Chunk(2)(torch.tensor([3]), torch.arange(6)).int()
        tensor([[0, 0, 1, 1, 0, 0]], dtype=torch.int32)
    """

    size: int

    def __post_init__(self):
        object.__setattr__(self, "size", contract.integer("size", self.size, least=1))

    def __call__(
        self,
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Bool[Tensor, "*batch n_q n_k"]:
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
    query_positions: Real[Tensor, "*#batch n_q"], key_positions: Real[Tensor, "*#batch n_k"]
) -> Real[Tensor, "*batch n_q n_k"]:
    """Key minus query, exactly: integers stay integers, and unsigned ones get a sign."""
    query, key = _exact(query_positions, key_positions)
    return key[..., None, :] - query[..., :, None]


def _exact(query_positions, key_positions):
    """Positions in 64 bits, so that nothing is rounded and nothing wraps."""
    contract.position_pair(query_positions, key_positions)
    given = query_positions, key_positions
    return [p.double() if p.is_floating_point() else p.long() for p in given]


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
    heads = max(x.ndim for x in positions) > 1  # all heads of an example stand alike
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


def zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    if mask is None:
        return x
    seen = mask.any(-2)
    if (
        seen.ndim > 1
        and x.ndim > 2
        and seen.shape[-2] != 1
        and seen.shape[-2] != x.shape[-3]
    ):
        seen = seen.unflatten(-2, (x.shape[-3], -1)).any(-2)
    return x.masked_fill(~seen[..., None], 0)


def of_selected(select, query, key):
    """Which keys each query selects, `(*#batch, #h, n_q, n_k)`, from their indices."""
    n_k = key.shape[-2]
    select = select.long()  # also of a dtype that PyTorch does not compare
    select = torch.where(select < 0, n_k, select)
    chosen = torch.zeros(
        *select.shape[:-1], n_k + 1, dtype=torch.bool, device=select.device
    )
    chosen = chosen.scatter(-1, select, True)[..., :n_k]
    if query.ndim > 2 and select.ndim < query.ndim:
        return chosen.unsqueeze(-3)
    if query.ndim > 2 and chosen.shape[-3] not in (1, query.shape[-3]):
        return chosen.repeat_interleave(query.shape[-3] // chosen.shape[-3], dim=-3)
    return chosen
