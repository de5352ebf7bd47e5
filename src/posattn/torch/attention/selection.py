"""Selection: the indices of the keys that each query reads."""

import math

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn import functional

from posattn import contract
from posattn.torch.attention.indexer import group_tokens, in_order
from posattn.torch.attention.masks import causal_mask
from posattn.torch.validated import validated

__all__ = ["group_mask", "select_blocks", "select_groups", "select_keys"]

Scores = Float[Tensor, "*batch n_q n_k"]
Mask = Bool[Tensor, "*#batch #n_q n_k"]
TokenMask = Bool[Tensor, "*#batch n_k"]
Indices = Integer[Tensor, "*batch n_q count"]


@validated
def select_keys(
    scores: Scores, count: int, *, mask: Mask | None = None, causal: bool = False
) -> Indices:
    """The keys with the highest scores, `count` of them for each query; of equal ones the earlier.

    Twin of :func:`posattn.reference.select_keys`.

    Args:
        scores: such as those of `indexer_scores`, `(*batch, n_q, n_k)`; minus infinity counts as masked.
        count: how many keys a query reads at most.
        mask: bool, True means may attend; its shape broadcasts to that of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1, `(*batch, n_q, min(count, n_k))`: what attention
        takes as `select`.

    Examples:
        >>> select_keys(torch.tensor([[0.0, 2.0, 0.0, 1.0], [5.0, 0.0, 0.0, 0.0]]), 2)
        tensor([[1, 3],
                [0, 1]])
    """
    count = contract.choice(scores, count, mask)
    scores = scores.detach()
    seen = _visible(scores, mask, causal)
    scores = scores if seen is None else scores.masked_fill(~seen, -math.inf)
    count = min(count, scores.shape[-1])
    if count == 0:
        return scores.new_zeros(*scores.shape[:-1], 0, dtype=torch.int64)
    # PyTorch's own choice among equal scores is any: the least that is chosen, the earliest first
    least = scores.topk(count, sorted=False).values.amin(-1, keepdim=True)
    above = scores > least
    equal = (scores == least) & (least > -math.inf)
    left = count - above.sum(-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(-1) <= left))
    n_k = scores.shape[-1]
    places = torch.arange(n_k, device=scores.device, dtype=torch.int32)
    places = torch.where(chosen, places, n_k).topk(count, largest=False).values.long()
    return places.masked_fill(places == n_k, -1)


@validated
def group_mask(
    n_q: int,
    n_k: int,
    size: int,
    *,
    mask: TokenMask | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "*batch n_q groups"]:
    """Which groups of keys are complete at each query: the causal mask of `group_keys`.

    Twin of :func:`posattn.reference.group_mask`.

    Args:
        n_q: the number of queries, which are aligned to the end of the keys.
        n_k: the number of keys.
        size: m, the tokens of a group, at least 1.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.
        device: where the result lives if there is no mask.

    Returns:
        The mask, `(*batch, n_q, n_k // size)`.

    Examples:
        >>> group_mask(3, 5, 2).int()
        tensor([[1, 0],
                [1, 1],
                [1, 1]], dtype=torch.int32)
    """
    size, n_k = contract.group_size(size, n_k, mask)
    n_q = contract.integer("n_q", n_q)
    mask = torch.ones(n_k, dtype=torch.bool, device=device) if mask is None else mask
    seen = _tokens_seen(mask, n_q, causal=True)
    return torch.arange(n_k // size, device=mask.device) < (seen // size)[..., None]


@validated
def select_groups(
    scores: Float[Tensor, "*batch n_q groups"],
    count: int,
    size: int,
    n_k: int,
    *,
    mask: TokenMask | None = None,
    causal: bool = False,
) -> Indices:
    """The tokens of the groups with the highest scores, and all tokens after the last complete group.

    Twin of :func:`posattn.reference.select_groups`.

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
        >>> select_groups(torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]), 1, 2, 5, causal=True)
        tensor([[ 0,  1,  2],
                [ 2,  3, -1],
                [ 2,  3,  4]])
    """
    count, size, n_k = contract.group_scores(scores, count, size, n_k, mask)
    batch, n_q = scores.shape[:-2], scores.shape[-2]
    mask = scores.new_ones(n_k, dtype=torch.bool) if mask is None else mask
    mask = mask.expand(*batch, n_k)
    seen = _tokens_seen(mask, n_q, causal)
    complete = torch.arange(n_k // size, device=mask.device) < (seen // size)[..., None]
    chosen = select_keys(scores, count, mask=complete)
    members = functional.pad(group_tokens(n_k, size, mask=mask), (0, 0, 1, 0), value=-1)
    rows = (
        (chosen + 1).flatten(-2)[..., None].expand(*batch, -1, size)
    )  # the first row is of no group
    tokens = members.gather(-2, rows).reshape(*batch, n_q, chosen.shape[-1] * size)
    rest = (seen // size * size)[..., None] + torch.arange(size - 1, device=mask.device)
    rest = (rest + 1).masked_fill(rest >= seen[..., None], 0)
    order = functional.pad(in_order(mask)[0], (1, 0), value=-1)
    after = order.gather(-1, rest.flatten(-2)).unflatten(-1, (n_q, size - 1))
    return rising(torch.cat([tokens, after], dim=-1), n_k)


@validated
def select_blocks(
    scores: Scores, count: int, size: int, *, mask: Mask | None = None, causal: bool = False
) -> Indices:
    """The tokens of the blocks whose best key has the highest score, the query's own block among them.

    Twin of :func:`posattn.reference.select_blocks`.

    Args:
        scores: of keys, `(*batch, n_q, n_k)`; minus infinity counts as masked.
        count: how many blocks a query reads at most.
        size: how many neighboring keys a block has, at least 1.
        mask: bool, True means may attend; its shape broadcasts to that of `scores`.
        causal: hide the future; queries are aligned to the end of the keys.

    Returns:
        Indices of keys in rising order, then -1, `(*batch, n_q, min(count, blocks) * size)`.

    Examples:
        >>> scores = torch.tensor([[0.0, 9.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0, 0.0]])
        >>> select_blocks(scores, 2, 2, causal=True)
        tensor([[ 0,  1,  2,  3],
                [ 2,  3,  4, -1]])
    """
    count = contract.choice(scores, count, mask)
    size = contract.integer("size", size, least=1)
    (n_q, n_k), scores = scores.shape[-2:], scores.detach()
    blocks = -(-n_k // size)
    seen = _visible(scores, mask, causal)
    scores = scores if seen is None else scores.masked_fill(~seen, -math.inf)
    scores = functional.pad(scores, (0, blocks * size - n_k), value=-math.inf)
    best = scores.unflatten(-1, (blocks, size)).amax(-1)
    places = torch.arange(n_k - n_q, n_k, device=scores.device)[:, None]
    own = places.div(size, rounding_mode="floor") == torch.arange(
        blocks, device=scores.device
    )
    chosen = select_keys(best.masked_fill(own, math.inf), count)[..., None]
    tokens = chosen.clamp(min=0) * size + torch.arange(size, device=scores.device)
    hidden = scores.gather(-1, tokens.flatten(-2)) == -math.inf
    hidden = hidden | (chosen < 0).expand_as(tokens).flatten(-2)
    return rising(tokens.flatten(-2).masked_fill(hidden, -1), n_k)


def rising(indices, n_k):
    """Indices below `n_k` in rising order with -1 last."""
    ordered = indices.masked_fill(indices < 0, n_k).sort(-1).values
    return ordered.masked_fill(ordered >= n_k, -1)


def _visible(scores, mask, causal):
    """Turn `causal` into part of the mask."""
    if not causal:
        return mask
    past = causal_mask(*scores.shape[-2:], device=scores.device)
    return past if mask is None else mask & past


def _tokens_seen(mask, n_q, causal):
    """How many tokens each query sees, `(*batch, n_q)`."""
    n_k = mask.shape[-1]
    sums = functional.pad(mask.cumsum(-1), (1, 0))
    last = torch.arange(n_k - n_q, n_k, device=mask.device) + 1
    return sums[..., last.clamp(0, n_k) if causal else torch.full_like(last, n_k)]
