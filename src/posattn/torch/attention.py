"""Attention: a weighted mean of values, the weights from queries and keys."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from posattn import contract
from posattn.torch.masks import causal_mask

__all__ = ["attention_weights", "dropout", "masked_softmax", "scaled_dot_product_attention"]

Scores = Float[Tensor, "*batch n_q n_k"]
Mask = Bool[Tensor, "*#batch #n_q n_k"]
Bias = Float[Tensor, "*#batch #n_q n_k"] | Callable


def masked_softmax(scores: Scores, mask: Mask | None = None) -> Scores:
    """Normalise scores over the keys that may be attended to.

    Twin of :func:`posattn.reference.masked_softmax`.

    Examples:
        >>> masked_softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    if scores.shape[-1] == 0:
        return scores
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    peak = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    exp = torch.exp(scores - peak)
    total = exp.sum(-1, keepdim=True)
    return exp / total.masked_fill(total == 0, 1)


def attention_weights(
    query: Float[Tensor, "*batch n_q d"],
    key: Float[Tensor, "*batch n_k d"],
    *,
    mask: Mask | None = None,
    causal: bool = False,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Scores:
    """How much each query attends to each key.

    Twin of :func:`posattn.reference.attention_weights`.
    Half-precision scores are computed in float32; the weights have the dtype of `query`.

    Examples:
        >>> attention_weights(torch.eye(2), torch.eye(2), causal=True, scale=math.log(3))
        tensor([[1.0000, 0.0000],
                [0.2500, 0.7500]])
    """
    contract.attention(query, key)
    mask, bias = mask_and_bias(query, key, mask, causal, bias)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(wide) @ zero_unattended(key, mask).to(wide).mT * scale
    if bias is not None:
        scores = scores + bias.to(wide)
    return masked_softmax(scores, mask).to(query.dtype)


def scaled_dot_product_attention(
    query: Float[Tensor, "*batch n_q d"],
    key: Float[Tensor, "*batch n_k d"],
    value: Float[Tensor, "*batch n_k d_v"],
    *,
    mask: Mask | None = None,
    causal: bool = False,
    bias: Bias | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    rng: torch.Generator | None = None,
) -> Float[Tensor, "*batch n_q d_v"]:
    """Replace each query by a weighted mean of the values.

    Twin of :func:`posattn.reference.scaled_dot_product_attention`.
    Without dropout PyTorch's fused kernel runs; with it the weights are built and thinned out.

    Examples:
        >>> value = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> scaled_dot_product_attention(torch.eye(2), torch.eye(2), value, causal=True, scale=math.log(3))
        tensor([[1.0000, 0.0000],
                [0.2500, 1.5000]])
    """
    contract.attention(query, key, value)
    if causal and mask is None and bias is None and query.shape[-2] == key.shape[-2]:
        merged, is_causal = None, True
    else:
        mask, bias = mask_and_bias(query, key, mask, causal, bias)
        key, value = zero_unattended(key, mask), zero_unattended(value, mask)
        merged, is_causal = _merge(mask, bias, query.dtype), False
    scale = None if scale is None else contract.scale(scale)
    contract.rng(rng, rng is None or isinstance(rng, torch.Generator), "torch.Generator")
    if contract.dropout_rate(dropout_rate) > 0 and rng is not None:
        weights = attention_weights(
            query, key, mask=mask, causal=is_causal, bias=bias, scale=scale
        )
        return dropout(weights, dropout_rate, rng) @ value
    lift = (None,) * (4 - query.ndim)
    out = functional.scaled_dot_product_attention(
        query[lift], key[lift], value[lift], merged, is_causal=is_causal, scale=scale
    )
    return out[(0,) * len(lift)]


def dropout(
    x: Float[Tensor, "*shape"], dropout_rate: float, rng: torch.Generator | None = None
) -> Float[Tensor, "*shape"]:
    """Set entries to zero at random and scale the others, so that the mean stays.

    Twin of :func:`posattn.reference.dropout`.

    Examples:
        >>> kept = dropout(torch.ones(1000), 0.5, torch.Generator().manual_seed(0))
        >>> kept.unique()
        tensor([0., 2.])
    """
    contract.floating("x", x)
    rate = contract.dropout_rate(dropout_rate)
    contract.rng(rng, rng is None or isinstance(rng, torch.Generator), "torch.Generator")
    if rng is None or rate == 0:
        return x
    keep = torch.rand(x.shape, generator=rng, device=x.device) >= rate
    return x * keep / (1 - rate)


def mask_and_bias(query, key, mask, causal, bias):
    """Turn `causal` into part of the mask, and a function of positions into the bias it returns."""
    n_q, n_k, device = query.shape[-2], key.shape[-2], query.device
    if callable(bias):
        bias = bias(
            torch.arange(n_k - n_q, n_k, device=device), torch.arange(n_k, device=device)
        )
    shape = (*query.shape[:-1], n_k)
    contract.mask(mask, shape)
    contract.bias(bias, shape)
    if causal:
        future_hidden = causal_mask(n_q, n_k, device=device)
        mask = future_hidden if mask is None else mask & future_hidden
    return mask, bias


def _merge(mask, bias, dtype):
    """The one array that the fused kernel takes for mask and bias."""
    if bias is None:
        return mask
    return bias.to(dtype) if mask is None else torch.where(mask, bias.to(dtype), -math.inf)


def zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    return x if mask is None else x.masked_fill(~mask.any(-2)[..., None], 0)
