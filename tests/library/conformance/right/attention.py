"""Attention and its masks as others write them. All are right."""

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tests.library.conformance.examples import right


def past(n_q, n_k):
    """What a query at the end of the keys may see."""
    return np.tril(np.ones((n_q, n_k), dtype=bool), k=n_k - n_q)


@right("masked_softmax")
def largest_subtracted(scores, mask=None):
    """The largest score is subtracted, and a sum of nothing counts as one."""
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=np.finfo(scores.dtype).min)
    exp = np.exp(scores - top)
    total = exp.sum(axis=-1, keepdims=True)
    return exp / np.where(total == 0, 1, total)


@right("masked_softmax", "jax")
def softmax_where(scores, mask=None):
    """The argument where of JAX's own softmax."""
    return jax.nn.softmax(scores, axis=-1, where=mask)


@right("masked_softmax", "torch")
def filled_twice(scores, mask=None):
    """Minus infinity before the softmax, and zero after it."""
    if mask is None:
        return scores.softmax(-1)
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(~mask.expand_as(weights), 0.0)


@right("attention", "torch", skip=("NaN",))
def kernel_of_torch(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """PyTorch's own function, with one mask for all: aligned at the end, added to the bias."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    seen = torch.ones(n_q, n_k, dtype=torch.bool)
    seen = seen.tril(n_k - n_q) if causal else seen
    seen = seen if mask is None else seen & mask
    added = torch.zeros(()) if bias is None else bias
    added = torch.where(seen, added, float("-inf")).to(query.dtype)
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=added, scale=scale)


@right("attention", "torch", skip=("NaN",))
def smallest_number_added(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None
):
    """The smallest number is added where something is hidden, and rows without keys are cleared."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    seen = torch.from_numpy(past(*scores.shape[-2:])) if causal else torch.tensor(True)
    seen = (seen if mask is None else seen & mask).expand_as(scores)
    least = torch.finfo(scores.dtype).min
    scores = scores + torch.zeros_like(scores).masked_fill(~seen, least)
    weights = torch.softmax(scores.float(), dim=-1).to(query.dtype)
    return (weights * seen.any(-1, keepdim=True)) @ value


@right("attention")
def key_after_key(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """One key after the other, a running maximum and a running sum, as in FlashAttention."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    n_q, n_k = query.shape[-2], key.shape[-2]
    shape = (*query.shape[:-1], 1)
    seen = past(n_q, n_k) if causal else np.ones((n_q, n_k), dtype=bool)
    seen = np.broadcast_to(seen if mask is None else seen & mask, (*query.shape[:-1], n_k))
    bias = np.zeros((n_q, n_k)) if bias is None else bias
    top, total, made = np.full(shape, -1e30), np.zeros(shape), 0.0
    for j in range(n_k):
        here = seen[..., j : j + 1]
        score = np.sum(query * key[..., j : j + 1, :], -1, keepdims=True) * scale
        score = np.where(here, score + bias[..., j : j + 1], -1e30)
        new = np.maximum(top, score)
        weight, kept = np.where(here, np.exp(score - new), 0), np.exp(top - new)
        part = np.where(here, value[..., j : j + 1, :], 0) * weight
        top, total, made = new, total * kept + weight, made * kept + part
    return (made / np.where(total == 0, 1, total)).astype(value.dtype)


@right("attention", "jax", skip=("NaN",))
def einsum_in_jax(query, key, value, *, mask=None, causal=False, bias=None, scale=None):
    """Two einsums, and a softmax over what is seen."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = jnp.einsum("...qd,...kd->...qk", query * scale, key)
    scores = scores if bias is None else scores + bias
    seen = jnp.asarray(past(*scores.shape[-2:])) if causal else True
    seen = seen if mask is None else jnp.logical_and(seen, mask)
    seen = None if seen is True else jnp.broadcast_to(seen, scores.shape)
    return jnp.einsum("...qk,...kd->...qd", jax.nn.softmax(scores, where=seen), value)


def repeated(x, heads):
    """Keys or values that heads share, once for each head."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


@right("sinks", "torch")
def sink_as_a_column(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, sinks=None
):
    """The sink is one more column of scores, which is dropped after the softmax, as in gpt-oss."""
    key, value = (repeated(x, query.shape[1]) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    seen = torch.from_numpy(past(*scores.shape[-2:])) if causal else torch.tensor(True)
    scores = scores.masked_fill(~(seen if mask is None else seen & mask), float("-inf"))
    column = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores, column], dim=-1).softmax(dim=-1)
    return weights[..., :-1] @ value


@right("sinks", "torch", skip=("length",))
def sink_as_a_gate(query, key, value, *, causal=False, bias=None, scale=None, sinks=None):
    """What came without a sink, times the sigmoid of the logarithm of its sum minus the sink."""
    key, value = (repeated(x, query.shape[1]) for x in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    if causal:
        scores = scores.masked_fill(
            ~torch.from_numpy(past(*scores.shape[-2:])), float("-inf")
        )
    gate = torch.sigmoid(scores.logsumexp(-1, keepdim=True) - sinks[:, None, None])
    return scores.softmax(-1) @ value * gate


@right("soft_cap")
def cap_before_the_mask(
    query, key, value, *, mask=None, causal=False, bias=None, scale=None, soft_cap=None
):
    """Scaled, divided, bent and multiplied; then bias and mask, as in Gemma 2."""
    scores = query @ np.swapaxes(key, -1, -2)
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = np.tanh(scores / soft_cap) * soft_cap
    scores = scores if bias is None else scores + bias
    seen = past(*scores.shape[-2:]) if causal else np.True_
    return largest_subtracted(scores, seen if mask is None else seen & mask) @ value
