"""Attention by its definition: scores, a softmax over keys, a weighted mean of values."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posattn import contract
from posattn.torch.attention.call import changes_values, total_bias, visible, without_hidden
from posattn.torch.attention.random import thin
from posattn.torch.validated import validated

__all__ = ["masked_softmax"]

Scores = Float[Tensor, "*batch n_q n_k"]
Mask = Bool[Tensor, "*#batch #n_q n_k"]


@validated
def masked_softmax(scores: Scores, mask: Mask | None = None) -> Scores:
    """Normalise scores over the keys that may be attended to.

    Twin of :func:`posattn.reference.masked_softmax`.
    Half precision is computed in float32, where the sum of a long row has room, and rounded once.

    Args:
        scores: s, `(*batch, n_q, n_k)`.
        mask: m, bool, True means may attend; its shape broadcasts to that of `scores`.

    Returns:
        The weights w, `(*batch, n_q, n_k)`. Each row sums to 1, or is 0 if nothing may be
        attended to, and then so is its gradient.

    Examples:
        >>> masked_softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    wide = torch.promote_types(scores.dtype, torch.float32)
    return normalised(scores.to(wide), mask).to(scores.dtype)


def normalised(scores, mask, sinks=None):
    """The softmax over the keys that are seen, whose sum a sink joins in each head."""
    if scores.shape[-1] == 0:
        return scores
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    peak = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    if sinks is not None:
        sinks = sinks.to(scores.dtype)[..., None, None]
        peak = torch.maximum(peak, sinks.detach())
    exp = torch.exp(scores - peak)
    total = exp.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks - peak)
    return exp / total.masked_fill(total == 0, 1)


def weights(call):
    """How much each query attends to each key, before dropout."""
    seen = visible(call)
    return weigh(call, without_hidden(call.key, call, seen), seen)


def attend(call):
    """Attention with its weights at hand, which are thinned out and may change the values."""
    seen = visible(call)
    key, value = (without_hidden(x, call, seen) for x in (call.key, call.value))
    kept = thin(weigh(call, key, seen), call.dropout_rate, call.seed, call.place)
    changing = (part for part in call.biases if changes_values(part))
    return sum(
        (part.values(kept, *call.positions) for part in changing), by_head(kept, value)
    )


def weigh(call, key, seen):
    """The softmax of the scores, over the keys that are seen."""
    query = call.query
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = by_head(query.to(wide), key.to(wide).mT) * call.scale
    if call.soft_cap is not None:
        scores = call.soft_cap * torch.tanh(scores / call.soft_cap)
    bias = total_bias(call.biases, query, key, call.positions)
    if bias is not None:
        scores = scores + bias.to(wide)
    contract.mask(seen, scores.shape)
    return normalised(scores, seen, call.sinks).to(query.dtype)


def by_head(x, y):
    """Multiply matrices head by head, where each head of `y` may serve several of `x`."""
    if x.ndim < 3 or x.shape[-3] == y.shape[-3]:
        return x @ y
    grouped = x.unflatten(-3, (y.shape[-3], -1)).flatten(-3, -2) @ y
    return grouped.reshape(*x.shape[:-1], y.shape[-1])
