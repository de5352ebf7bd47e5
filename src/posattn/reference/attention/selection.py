"""Selection: the indices of the keys that each query reads."""

import numpy as np
from jaxtyping import Bool, Inexact, Integer

from posattn import contract
from posattn.reference.attention.indexer import group_tokens, in_order
from posattn.reference.attention.masks import causal_mask
from posattn.reference.validated import validated

__all__ = ["group_mask", "select_blocks", "select_groups", "select_keys"]

Scores = Inexact[np.ndarray, "*batch n_q n_k"]
Mask = Bool[np.ndarray, "*#batch #n_q n_k"]
TokenMask = Bool[np.ndarray, "*#batch n_k"]
Indices = Integer[np.ndarray, "*batch n_q count"]


@validated
def select_keys(
    scores: Scores, count: int, *, mask: Mask | None = None, causal: bool = False
) -> Indices:
    r"""The keys with the highest scores, `count` of them for each query.

    Equal scores are common, since many of an indexer's are 0: the earlier key is then chosen.
    A query that may attend to fewer keys gets all of them, and -1 in place of the others. So nothing
    differs from full attention until there are more than `count` keys.

    Args:
        scores: such as those of :func:`indexer_scores`, `(*batch, n_q, n_k)`; minus infinity counts as
            masked.
        count: how many keys a query reads at most.
        mask: bool, True means may attend; its shape broadcasts to that of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1, `(*batch, n_q, min(count, n_k))`: what attention
        takes as `select`.

    Raises:
        ValueError: if `scores` have fewer than two axes, `mask` does not fit or `count` is negative.

    Examples:
        >>> scores = np.array([[0.0, 2.0, 0.0, 1.0], [5.0, 0.0, 0.0, 0.0]])
        >>> select_keys(scores, 2)
        array([[1, 3],
               [0, 1]])
        >>> select_keys(scores[:, :2], 2, causal=True)
        array([[ 0, -1],
               [ 0,  1]])

    References:
        :cite:t:`deepseek2025v32`, section 2.1.
    """
    count = contract.choice(scores, count, mask)
    scores = np.where(_visible(scores.shape, mask, causal), scores.real, -np.inf)
    best = np.argsort(-scores, axis=-1, kind="stable")[..., :count]
    hidden = np.take_along_axis(scores, best, axis=-1) == -np.inf
    return rising(np.where(hidden, -1, best))


@validated
def group_mask(
    n_q: int, n_k: int, size: int, *, mask: TokenMask | None = None
) -> Bool[np.ndarray, "*batch n_q groups"]:
    r"""Which groups of keys are complete at each query: the causal mask of :func:`group_keys`.

    A query that sees $v$ tokens, its own among them, sees the first $\lfloor v / m \rfloor$ groups.

    Args:
        n_q: the number of queries, which are aligned to the end of the keys.
        n_k: the number of keys.
        size: $m$, the tokens of a group, at least 1.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.

    Returns:
        The mask, `(*batch, n_q, n_k // size)`.

    Examples:
        >>> group_mask(5, 5, 2).astype(int)
        array([[0, 0],
               [1, 0],
               [1, 0],
               [1, 1],
               [1, 1]])

    References:
        :cite:t:`deepseek2026v4`, section 2.3.
    """
    size, n_k = contract.group_size(size, n_k, mask)
    n_q = contract.integer("n_q", n_q)
    seen = _tokens_seen(np.ones(n_k, bool) if mask is None else mask, n_q, causal=True)
    return np.arange(n_k // size) < (seen // size)[..., None]


@validated
def select_groups(
    scores: Inexact[np.ndarray, "*batch n_q groups"],
    count: int,
    size: int,
    n_k: int,
    *,
    mask: TokenMask | None = None,
    causal: bool = False,
) -> Indices:
    r"""The tokens of the groups with the highest scores, and all tokens after the last complete group.

    Qwen4-Exp scores the means of 4 keys, GLM-5-Next gated sums of 16 (:func:`group_keys`); both read the
    tokens of the groups and not the mixed keys. A group can be chosen by a query that sees all of it,
    and the tokens that make no group yet are always read: up to `size - 1` of them, the query's own
    among them.

    Args:
        scores: of complete groups, `(*batch, n_q, n_k // size)`.
        count: how many groups a query reads at most.
        size: how many tokens a group has, at least 1.
        n_k: the number of keys.
        mask: bool, True means a token and False padding, `(*batch, n_k)` with the batch axes of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1,
        `(*batch, n_q, min(count, n_k // size) * size + size - 1)`.

    Examples:
        >>> scores = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
        >>> select_groups(scores, 1, 2, 5, causal=True)
        array([[ 0,  1,  2],
               [ 2,  3, -1],
               [ 2,  3,  4]])
    """
    count, size, n_k = contract.group_scores(scores, count, size, n_k, mask)
    batch, n_q = scores.shape[:-2], scores.shape[-2]
    mask = np.broadcast_to(np.ones(n_k, bool) if mask is None else mask, (*batch, n_k))
    seen = _tokens_seen(mask, n_q, causal)
    complete = np.arange(n_k // size) < (seen // size)[..., None]
    chosen = select_keys(scores, count, mask=complete)
    members = np.append(
        group_tokens(n_k, size, mask=mask), np.full((*batch, 1, size), -1), -2
    )
    order = np.append(in_order(mask)[0], np.full((*batch, size - 1), -1), axis=-1)
    rest = (seen // size * size)[..., None] + np.arange(size - 1)
    rest = np.where(rest < seen[..., None], rest, -1)
    places = (np.reshape(chosen, (*batch, -1)), np.reshape(rest, (*batch, -1)))
    tokens = np.take_along_axis(members, places[0][..., None], axis=-2)
    after = np.take_along_axis(order, places[1], axis=-1)
    after = np.where(places[1] < 0, -1, after)
    return rising(
        np.concatenate(
            [tokens.reshape(*batch, n_q, -1), after.reshape(*batch, n_q, -1)], -1
        )
    )


@validated
def select_blocks(
    scores: Scores, count: int, size: int, *, mask: Mask | None = None, causal: bool = False
) -> Indices:
    r"""The tokens of the blocks whose best key has the highest score, the query's own block among them.

    MiniMax-M3 scores keys by one product for each head of keys, so that each group of heads reads blocks
    of its own: `scores` then have an axis of heads, and so has the result.
    Blocks begin at the multiples of `size`, and the last one may be shorter. The query's own block
    counts as the best of all; of every block, only the keys that the query may attend to are read.

    Args:
        scores: of keys, `(*batch, n_q, n_k)`; minus infinity counts as masked.
        count: how many blocks a query reads at most.
        size: how many neighboring keys a block has, at least 1.
        mask: bool, True means may attend; its shape broadcasts to that of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1, `(*batch, n_q, min(count, blocks) * size)`.

    Examples:
        >>> scores = np.array([[0.0, 9.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0, 0.0]])
        >>> select_blocks(scores, 2, 2, causal=True)
        array([[ 0,  1,  2,  3],
               [ 2,  3,  4, -1]])
    """
    count = contract.choice(scores, count, mask)
    size = contract.integer("size", size, least=1)
    *batch, n_q, n_k = scores.shape
    blocks = -(-n_k // size)
    pad = [(0, 0)] * len(scores.shape[:-1]) + [(0, blocks * size - n_k)]
    seen = np.broadcast_to(_visible(scores.shape, mask, causal), scores.shape)
    seen = np.pad(seen & (scores.real > -np.inf), pad)
    best = np.where(seen, np.pad(scores.real, pad), -np.inf)
    best = best.reshape(*batch, n_q, blocks, size).max(-1, initial=-np.inf)
    own = np.arange(n_k - n_q, n_k)[:, None] // size == np.arange(blocks)
    chosen = select_keys(np.where(own, np.inf, best), count)
    tokens = chosen[..., None] * size + np.arange(size)
    tokens = np.where(chosen[..., None] < 0, -1, tokens).reshape(*batch, n_q, -1)
    return rising(
        np.where(np.take_along_axis(seen, tokens, axis=-1) & (tokens >= 0), tokens, -1)
    )


def rising(indices):
    """Indices in rising order with -1 last."""
    last = np.iinfo(indices.dtype).max
    ordered = np.sort(np.where(indices < 0, last, indices), axis=-1)
    return np.where(ordered == last, -1, ordered)


def _visible(shape, mask, causal):
    """Turn `causal` into part of the mask."""
    seen = np.ones((1, 1), bool) if mask is None else mask
    return seen & causal_mask(*shape[-2:]) if causal else seen


def _tokens_seen(mask, n_q, causal):
    """How many tokens each query sees, `(*batch, n_q)`."""
    none = np.zeros((*mask.shape[:-1], 1), int)
    sums = np.cumsum(np.append(none, mask, axis=-1), axis=-1)
    n_k = mask.shape[-1]
    last = np.arange(n_k - n_q, n_k) + 1 if causal else np.full(n_q, n_k)
    return sums[..., np.clip(last, 0, n_k)]
