"""Attention by its definition: scores, a softmax over keys, a weighted mean of values."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from posattn import contract
from posattn.jax.attention.call import as_mask, changes_values, visible, without_hidden
from posattn.jax.attention.random import dropout
from posattn.jax.validated import validated

__all__ = ["masked_softmax"]

Scores = Float[Array, "*batch n_q n_k"]


@validated
def masked_softmax(
    scores: Scores, mask: Bool[Array, "*#batch #n_q n_k"] | None = None
) -> Scores:
    """Normalise scores over the keys that may be attended to.

    Twin of :func:`posattn.reference.masked_softmax`.
    Half precision is computed in float32, where the sum of a long row has room, and rounded once.

    Args:
        scores: `(*batch, n_q, n_k)`; minus infinity counts as masked.
        mask: bool, True means may attend; its shape broadcasts to that of `scores`.

    Returns:
        The weights, `(*batch, n_q, n_k)`. Each row sums to 1, or is 0 if nothing may be attended to,
        and then so is its gradient.

    Examples:
        >>> masked_softmax(jnp.zeros((1, 3)), jnp.array([[True, True, False]]))
        Array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    wide = jnp.promote_types(scores.dtype, jnp.float32)
    return normalised(scores.astype(wide), mask).astype(scores.dtype)


def normalised(scores, mask, sinks=None):
    """The softmax over the keys that are seen, whose sum a sink joins in each head."""
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    peak = jnp.max(scores, axis=-1, keepdims=True, initial=jnp.finfo(scores.dtype).min)
    if sinks is not None:
        sinks = sinks.astype(scores.dtype)[..., None, None]
        peak = jnp.maximum(peak, sinks)
    peak = jax.lax.stop_gradient(peak)
    exp = jnp.exp(scores - peak)
    total = jnp.sum(exp, axis=-1, keepdims=True)
    if sinks is not None:
        total = total + jnp.exp(sinks - peak)
    return exp / jnp.where(total == 0, 1, total)


def weights(call):
    """How much each query attends to each key, before dropout."""
    call = as_mask(call)
    seen = visible(call)
    return weigh(replace(call, key=without_hidden(call.key, call, seen)), seen)


def attend(call):
    """Attention, all queries and keys at once."""
    seen = visible(call)
    key, value = (without_hidden(x, call, seen) for x in (call.key, call.value))
    kept = dropout(weigh(replace(call, key=key), seen), call.dropout_rate, call.rng)
    changing = (part for part in call.biases if changes_values(part))
    return sum(
        (part.values(kept, *call.positions) for part in changing), by_head(kept, value)
    )


def weigh(call, seen):
    """The softmax of the scores, over the keys that are seen."""
    scores = score(call)
    contract.mask(seen, scores.shape)
    return normalised(scores, seen, call.sinks).astype(call.query.dtype)


def score(call):
    """The scores of a call with their biases, in float32 or more."""
    query, key = call.query, call.key
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = by_head(query.astype(wide), key.astype(wide).mT) * call.scale
    if call.soft_cap is not None:
        scores = call.soft_cap * jnp.tanh(scores / call.soft_cap)
    for part in call.biases:
        if hasattr(part, "scores"):
            part = part.scores(query, for_each_head(key, query), *call.positions)
        elif callable(part):
            part = part(*call.positions)
        contract.array("bias", part)
        contract.bias(part, scores.shape)
        scores = scores + part.astype(wide)
    return scores


def by_head(x, y):
    """Multiply matrices head by head, where each head of `y` may serve several of `x`."""
    if x.ndim < 3 or x.shape[-3] == y.shape[-3]:
        return x @ y
    *batch, heads, n, width = x.shape
    groups = *batch, y.shape[-3], heads // y.shape[-3]
    x = x.reshape(*groups, n, width)  # in two steps: heads may be spread over a mesh
    product = x.reshape(*groups[:-1], groups[-1] * n, width) @ y
    return product.reshape(*groups, n, y.shape[-1]).reshape(*batch, heads, n, y.shape[-1])


def for_each_head(x, query):
    """Give each head of queries the head of keys that serves it."""
    if query.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    many = query.shape[-3]
    *batch, few, n, width = x.shape
    copies = jnp.broadcast_to(x[..., None, :, :], (*batch, few, many // few, n, width))
    return copies.reshape(*batch, many, n, width)
