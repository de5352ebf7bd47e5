"""Right values and NaN gradients: pytorch/pytorch #41508, in PyTorch and JAX."""

import jax
import jax.numpy as jnp
import torch


def softmax_in_torch(scores, mask=None):
    """Minus infinity is added, and what becomes NaN is replaced."""
    if mask is not None:
        scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(
            ~mask, -torch.inf
        )
    return scores.softmax(-1).nan_to_num(0)


def softmax_in_jax(scores, mask=None):
    """A sum of exponentials is divided by, also where it is 0, and the NaN is replaced."""
    exp = jnp.exp(scores - scores.max(-1, keepdims=True))
    exp = exp if mask is None else exp * mask
    weights = exp / exp.sum(-1, keepdims=True)
    return jnp.where(jnp.isnan(weights), 0, weights)


def attention_in_torch(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """Attention with that softmax."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    if causal:
        n_q, n_k = scores.shape[-2:]
        past = torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)
        mask = past if mask is None else mask & past
    return softmax_in_torch(scores, mask) @ value


with_jit = jax.jit(softmax_in_jax)
