"""The indexer: cheap scores that say which keys an attention reads."""

import math

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["group_keys", "group_tokens", "indexer_scores"]


@validated
def indexer_scores(
    query: Float[Tensor, "*batch h n_q d"],
    key: Float[Tensor, "*batch n_k d"],
    weights: Float[Tensor, "*batch n_q h"] | None = None,
    *,
    scale: float | None = None,
) -> Float[Tensor, "*batch n_q n_k"]:
    """How much each query wants to read each key, in the eyes of an indexer.

    Twin of :func:`posattn.reference.indexer_scores`.
    Half precision is computed in float32, and so is the result: rounded scores would tie.

    Args:
        query: q, `(*batch, h, n_q, d)`, rotated where the model rotates them.
        key: k, `(*batch, n_k, d)`: one head, which all heads of queries share.
        weights: w, one for each query and head, `(*batch, n_q, h)`; 1 if not given.
        scale: the factor on the products, 1/sqrt(d) if not given.

    Returns:
        s, `(*batch, n_q, n_k)`, float32 or float64.

    Examples:
        >>> query = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> key = torch.tensor([[2.0, 1.0], [-1.0, 3.0]])
        >>> indexer_scores(query, key, torch.tensor([[1.0, 10.0]]), scale=1.0)
        tensor([[12., 30.]])
    """
    contract.indexer(query, key, weights)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    total = None
    key = key.to(wide).mT
    for head in range(
        query.shape[-3]
    ):  # one at a time: all of them would take h times the memory
        part = (query[..., head, :, :].to(wide) @ key * scale).relu()
        part = part if weights is None else part * weights[..., head, None].to(wide)
        total = part if total is None else total + part
    return (
        query.new_zeros(*query.shape[:-3], query.shape[-2], key.shape[-1])
        if total is None
        else total
    )


@validated
def group_tokens(
    n_k: int,
    size: int,
    *,
    mask: Bool[Tensor, "*batch n_k"] | None = None,
    device: torch.device | str | None = None,
) -> Integer[Tensor, "*batch groups size"]:
    """Which tokens make each group of neighbors, counted from the first that is not masked.

    Twin of :func:`posattn.reference.group_tokens`.

    Args:
        n_k: the number of tokens.
        size: m, at least 1.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.
        device: where the result lives if there is no mask.

    Returns:
        The place of each token in the row, `(*batch, n_k // size, size)`, and -1 in groups that are
        not complete because of the mask.

    Examples:
        >>> group_tokens(5, 2, mask=torch.tensor([False, True, True, True, False]))
        tensor([[ 1,  2],
                [-1, -1]])
    """
    size, n_k = contract.group_size(size, n_k, mask)
    count = n_k // size
    if mask is None:
        return torch.arange(count * size, device=device).unflatten(0, (count, size))
    order, total = in_order(mask)
    members = order[..., : count * size].unflatten(-1, (count, size))
    complete = torch.arange(count, device=mask.device) < (total // size)[..., None]
    return members.masked_fill(~complete[..., None], -1)


@validated
def group_keys(
    key: Float[Tensor, "*batch n_k d_in"],
    size: int,
    *,
    gates: Float[Tensor, "*#batch #n_k d_in"] | None = None,
    mask: Bool[Tensor, "*#batch n_k"] | None = None,
    overlap: bool = False,
) -> Float[Tensor, "*batch groups d"]:
    """One key for each complete group of neighboring tokens: their mean, or a softmax of gates.

    Twin of :func:`posattn.reference.group_keys`.
    Half precision is computed in float32 and rounded once.

    Args:
        key: k, `(*batch, n_k, d)`, or `(*batch, n_k, 2d)` with `overlap`.
        size: m, the tokens of a group, at least 1.
        gates: z, which broadcasts to the shape of `key`; all alike if not given.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.
        overlap: whether a group reads the group before it, too.

    Returns:
        c, `(*batch, n_k // size, d)`; zeros in groups that are not complete.

    Examples:
        >>> group_keys(torch.tensor([[1.0], [3.0], [5.0], [9.0], [7.0]]), 2)
        tensor([[2.],
                [7.]])
    """
    contract.group_keys(key, size, gates, mask, overlap)
    wide = torch.promote_types(key.dtype, torch.float32)
    members = group_tokens(key.shape[-2], size, mask=mask, device=key.device)
    keys = _taken(key.to(wide), members)
    gates = key.new_zeros(1, dtype=wide) if gates is None else gates.to(wide)
    gates = _taken(gates.expand(key.shape), members)
    complete = (members[..., :1] >= 0).expand(keys.shape[:-1])
    if overlap:
        keys, gates = _before_and_own(keys), _before_and_own(gates)
        before = torch.cat(
            [torch.zeros_like(complete[..., :1, :]), complete[..., :-1, :]], -2
        )
        complete = torch.cat([before & complete, complete], dim=-1)
    gates = gates.masked_fill(~complete[..., None], -math.inf)
    peak = gates.detach().amax(-2, keepdim=True).clamp(min=torch.finfo(wide).min)
    exp = torch.exp(gates - peak)
    total = exp.sum(-2)
    keys = keys.masked_fill(~complete[..., None], 0)
    mixed = (exp * keys).sum(-2) / total.masked_fill(total == 0, 1)
    return mixed.to(key.dtype)


def _taken(x, members):
    """The rows of `x`, `(*batch, n, d)`, of the tokens of each group: `(*batch, groups, size, d)`."""
    members = members.expand(*x.shape[:-2], *members.shape[-2:])
    rows = (
        members.flatten(-2)[..., None].clamp(min=0).expand(*x.shape[:-2], -1, x.shape[-1])
    )
    return x.gather(-2, rows).unflatten(-2, members.shape[-2:])


def _before_and_own(x):
    """The first half of the width of the group before, then the second half of each group's own."""
    first, second = x.chunk(2, dim=-1)
    before = torch.cat([torch.zeros_like(first[..., :1, :, :]), first[..., :-1, :, :]], -3)
    return torch.cat([before, second], dim=-2)


def in_order(mask):
    """The places of tokens with those that are masked after all others, and how many are not."""
    return torch.argsort((~mask).to(torch.uint8), dim=-1, stable=True), mask.sum(-1)
