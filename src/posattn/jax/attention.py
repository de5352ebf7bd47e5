"""Attention: a weighted mean of values, the weights from queries and keys."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from posattn import contract
from posattn.jax.masks import causal_mask

__all__ = ["attention_weights", "dropout", "masked_softmax", "scaled_dot_product_attention"]

Scores = Float[Array, "*batch n_q n_k"]
Mask = Bool[Array, "*#batch #n_q n_k"]
Bias = Float[Array, "*#batch #n_q n_k"] | Callable


def masked_softmax(scores: Scores, mask: Mask | None = None) -> Scores:
    """Normalise scores over the keys that may be attended to.

    Twin of :func:`posattn.reference.masked_softmax`.

    Examples:
        >>> masked_softmax(jnp.zeros((1, 3)), jnp.array([[True, True, False]]))
        Array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    peak = jnp.max(scores, axis=-1, keepdims=True, initial=jnp.finfo(scores.dtype).min)
    exp = jnp.exp(scores - jax.lax.stop_gradient(peak))
    total = jnp.sum(exp, axis=-1, keepdims=True)
    return exp / jnp.where(total == 0, 1, total)


def attention_weights(
    query: Float[Array, "*batch n_q d"],
    key: Float[Array, "*batch n_k d"],
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
        >>> attention_weights(jnp.eye(2), jnp.eye(2), causal=True, scale=math.log(3)).round(4)
        Array([[1.  , 0.  ],
               [0.25, 0.75]], dtype=float32)
    """
    contract.attention(query, key)
    mask, bias = mask_and_bias(query, key, mask, causal, bias)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = query.astype(wide) @ zero_unattended(key, mask).astype(wide).mT * scale
    if bias is not None:
        scores = scores + bias.astype(wide)
    return masked_softmax(scores, mask).astype(query.dtype)


def scaled_dot_product_attention(
    query: Float[Array, "*batch n_q d"],
    key: Float[Array, "*batch n_k d"],
    value: Float[Array, "*batch n_k d_v"],
    *,
    mask: Mask | None = None,
    causal: bool = False,
    bias: Bias | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    rng: Array | None = None,
) -> Float[Array, "*batch n_q d_v"]:
    """Replace each query by a weighted mean of the values.

    Twin of :func:`posattn.reference.scaled_dot_product_attention`.

    Examples:
        >>> value = jnp.array([[1.0, 0.0], [0.0, 2.0]])
        >>> x = jnp.eye(2)
        >>> scaled_dot_product_attention(x, x, value, causal=True, scale=math.log(3)).round(4)
        Array([[1.  , 0.  ],
               [0.25, 1.5 ]], dtype=float32)
    """
    contract.attention(query, key, value)
    mask, bias = mask_and_bias(query, key, mask, causal, bias)
    weights = attention_weights(query, key, mask=mask, bias=bias, scale=scale)
    return dropout(weights, dropout_rate, rng) @ zero_unattended(value, mask)


def dropout(
    x: Float[Array, "*shape"], dropout_rate: float, rng: Array | None = None
) -> Float[Array, "*shape"]:
    """Set entries to zero at random and scale the others, so that the mean stays.

    Twin of :func:`posattn.reference.dropout`; `rng` is a JAX key.

    Examples:
        >>> kept = dropout(jnp.ones(1000), 0.5, jax.random.key(0))
        >>> jnp.unique(kept)
        Array([0., 2.], dtype=float32)
    """
    contract.floating("x", x)
    rate = contract.dropout_rate(dropout_rate)
    contract.rng(rng, rng is None or is_key(rng), "JAX key")
    if rng is None or rate == 0:
        return x
    return x * jax.random.bernoulli(rng, 1 - rate, x.shape) / (1 - rate)


def is_key(rng):
    """Whether `rng` is what JAX draws from: a key, typed or raw."""
    return isinstance(rng, Array) and (
        jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) or rng.dtype == jnp.uint32
    )


def mask_and_bias(query, key, mask, causal, bias):
    """Turn `causal` into part of the mask, and a function of positions into the bias it returns."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    if callable(bias):
        bias = bias(jnp.arange(n_k - n_q, n_k), jnp.arange(n_k))
    shape = (*query.shape[:-1], n_k)
    contract.mask(mask, shape)
    contract.bias(bias, shape)
    if causal:
        mask = causal_mask(n_q, n_k) if mask is None else mask & causal_mask(n_q, n_k)
    return mask, bias


def zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    return x if mask is None else jnp.where(jnp.any(mask, axis=-2)[..., None], x, 0)
