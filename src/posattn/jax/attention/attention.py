"""Attention: a weighted mean of values, the weights from queries and keys."""

import math
from collections.abc import Sequence
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Real

from posattn import contract
from posattn.jax.attention import tiled
from posattn.jax.attention.masks import causal_mask, of_pairs

__all__ = ["attention_weights", "dropout", "masked_softmax", "scaled_dot_product_attention"]

Scores = Float[Array, "*batch n_q n_k"]
Mask = Bool[Array, "*#batch #n_q n_k"] | contract.PositionMask
Bias = Float[Array, "*#batch #n_q n_k"] | contract.PositionBias | contract.ContentBias


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

    Raises:
        TypeError: if `scores` are not floating or `mask` is not bool.
        ValueError: if `scores` have fewer than two axes or `mask` does not fit.

    Examples:
        >>> masked_softmax(jnp.zeros((1, 3)), jnp.array([[True, True, False]]))
        Array([[0.5, 0.5, 0. ]], dtype=float32)
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    dtype = scores.dtype
    scores = scores.astype(jnp.promote_types(dtype, jnp.float32))
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    peak = jnp.max(scores, axis=-1, keepdims=True, initial=jnp.finfo(scores.dtype).min)
    exp = jnp.exp(scores - jax.lax.stop_gradient(peak))
    total = jnp.sum(exp, axis=-1, keepdims=True)
    return (exp / jnp.where(total == 0, 1, total)).astype(dtype)


def attention_weights(
    query: Float[Array, "*batch n_q d"],
    key: Float[Array, "*kv_batch n_k d"],
    *,
    mask: Mask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Real[Array | np.ndarray, "*#examples n_q"] | None = None,
    key_positions: Real[Array | np.ndarray, "*#examples n_k"] | None = None,
    scale: float | None = None,
) -> Scores:
    """How much each query attends to each key.

    Twin of :func:`posattn.reference.attention_weights`.
    Half-precision scores are computed in float32; the weights have the dtype of `query`.

    Args:
        query: `(*batch, n_q, d)`; where there are three axes or more, the last of the batch is that
            of heads.
        key: `(*batch, n_k, d)`, of the same batch axes, width and dtype; it may have fewer heads, a
            divisor of their number, and then each serves as many neighboring heads of queries.
        mask: bool, True means may attend; its shape broadcasts to `(*batch, n_q, n_k)`; or a function
            of the positions of queries and keys that returns one, such as `Window`.
        causal: hide the future; queries are aligned to the end of the keys.
        bias: what is added to the scores: an array that broadcasts to `(*batch, n_q, n_k)`, a
            function of the positions of queries and keys that returns one, an object with a
            method `scores`, or a list of those, which are added up.
        query_positions: where the queries stand, in tokens, `(n_q)`, or one row for each example,
            `(*batch, n_q)` without the axis of heads. If not given, they stand at the last `n_q`
            positions of the keys. Only biases and masks use positions.
        key_positions: where the keys stand, likewise; from 0 on if not given.
        scale: the factor on the products of queries and keys, one over the root of $d$ if not given.

    Returns:
        The weights, `(*batch, n_q, n_k)`. Each row sums to 1, or is 0 if it may attend to nothing.

    Raises:
        TypeError: if an array is missing or has a wrong or different dtype.
        ValueError: if shapes do not fit, or `scale` is not finite.

    Examples:
        >>> attention_weights(jnp.eye(2), jnp.eye(2), causal=True, scale=math.log(3)).round(4)
        Array([[1.  , 0.  ],
               [0.25, 0.75]], dtype=float32)
    """
    contract.attention(query, key, grouped=True)
    where = positions_of(query, key, query_positions, key_positions)
    seen = visible(query, key, [mask], causal, where)
    key = key if mask is None else zero_unattended(key, seen)
    return weigh(query, key, seen, bias, where, scale)


def scaled_dot_product_attention(
    query: Float[Array, "*batch n_q d"],
    key: Float[Array, "*kv_batch n_k d"],
    value: Float[Array, "*kv_batch n_k d_v"],
    *,
    mask: Mask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Real[Array | np.ndarray, "*#examples n_q"] | None = None,
    key_positions: Real[Array | np.ndarray, "*#examples n_k"] | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    rng: Array | None = None,
) -> Float[Array, "*batch n_q d_v"]:
    """Replace each query by a weighted mean of the values.

    Twin of :func:`posattn.reference.scaled_dot_product_attention`.
    Long sequences, of more than 2**18 pairs of queries and keys, are attended to in tiles, with memory
    that grows with the length; their derivatives are those of the reverse mode, and first ones only.

    Args:
        query: `(*batch, n_q, d)`; where there are three axes or more, the last of the batch is that
            of heads.
        key: `(*batch, n_k, d)`, of the same batch axes, width and dtype; it may have fewer heads, a
            divisor of their number, and then each serves as many neighboring heads of queries.
        value: `(*batch, n_k, d_v)`, of the batch axes of `key` and the same dtype.
        mask: bool, True means may attend; its shape broadcasts to `(*batch, n_q, n_k)`; or a function
            of the positions of queries and keys that returns one, such as `Window`.
        causal: hide the future; queries are aligned to the end of the keys.
        bias: what is added to the scores: an array that broadcasts to `(*batch, n_q, n_k)`, a
            function of the positions of queries and keys that returns one, an object with a
            method `scores`, or a list of those, which are added up.
        query_positions: where the queries stand, in tokens, `(n_q)`, or one row for each example,
            `(*batch, n_q)` without the axis of heads. If not given, they stand at the last `n_q`
            positions of the keys. Only biases and masks use positions.
        key_positions: where the keys stand, likewise; from 0 on if not given.
        scale: the factor on the products of queries and keys, one over the root of $d$ if not given.
        dropout_rate: probability in [0, 1) of dropping a weight; the others grow to make up.
        rng: a JAX key where dropout draws from; None means no dropout.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Raises:
        TypeError: if an array is missing or has a wrong or different dtype, or `rng` is no key.
        ValueError: if shapes do not fit, or a number lies outside its range.

    Examples:
        >>> value = jnp.array([[1.0, 0.0], [0.0, 2.0]])
        >>> x = jnp.eye(2)
        >>> scaled_dot_product_attention(x, x, value, causal=True, scale=math.log(3)).round(4)
        Array([[1.  , 0.  ],
               [0.25, 1.5 ]], dtype=float32)
    """
    contract.attention(query, key, value, grouped=True)
    where = positions_of(query, key, query_positions, key_positions)
    options = bias, where, scale, dropout_rate, rng
    # without a mask the last query attends to all keys
    return attend(query, key, value, [mask], *options, causal=causal, clean=mask is None)


def dropout(
    x: Float[Array, "*shape"], dropout_rate: float, rng: Array | None = None
) -> Float[Array, "*shape"]:
    """Set entries to zero at random and scale the others, so that the mean stays.

    Twin of :func:`posattn.reference.dropout`; `rng` is a JAX key.

    Args:
        x: any shape.
        dropout_rate: probability in [0, 1) of dropping an entry.
        rng: where the randomness comes from; None means no dropout.

    Returns:
        `x` with some entries dropped, of the same shape.

    Raises:
        TypeError: if `x` is not floating or `rng` is no key.
        ValueError: if `dropout_rate` lies outside [0, 1).

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


def weigh(query, key, mask, bias, where, scale):
    """The weights of attention, from what is checked, for keys that are finite or attended to."""
    return masked_softmax(score(query, key, bias, where, scale), mask).astype(query.dtype)


def score(query, key, bias, where, scale):
    """The scores of attention, likewise, with their biases, in float32 or more."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = by_head(query.astype(wide), key.astype(wide).mT) * scale
    for part in biases(bias):
        if hasattr(part, "scores"):
            part = part.scores(query, for_each_head(key, query), *where)
        elif callable(part):
            part = part(*where)
        contract.array("bias", part)
        contract.bias(part, scores.shape)
        scores = scores + part.astype(wide)
    return scores


def attend(query, key, value, masks, *options, causal=False, clean=False):
    """Attention, likewise, in tiles if it is large; `clean` says that no key is hidden from all queries."""
    where = options[1]
    masks = [mask for mask in masks if mask is not None]
    if not tiled.at_once(query, key, where):
        return tiled.attend(query, key, value, masks, causal, *options)
    seen = visible(query, key, masks, causal, where)
    if not clean:
        key, value = zero_unattended(key, seen), zero_unattended(value, seen)
    return mix(query, key, value, seen, *options)


def mix(query, key, value, mask, bias, where, scale, dropout_rate, rng):
    """Attention, likewise, with what its biases add to the output."""
    weights = dropout(weigh(query, key, mask, bias, where, scale), dropout_rate, rng)
    out = by_head(weights, value)
    return sum((b.values(weights, *where) for b in biases(bias) if changes_values(b)), out)


def positions_of(query, key, query_positions, key_positions):
    """Where queries and keys stand: the last query at the last key, unless something else is given."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    contract.attention_positions(query_positions, key_positions, query.shape[:-3], n_q, n_k)
    if query_positions is None:
        query_positions = (
            jnp.arange(n_k - n_q, n_k)
            if key_positions is None
            else key_positions[..., n_k - n_q :]
        )
    return query_positions, jnp.arange(n_k) if key_positions is None else key_positions


def visible(query, key, masks, causal, where):
    """What masks let queries see, and `causal`; None if it is all."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    past = causal_mask(n_q, n_k) if causal else None
    return all_of([*masks, past], where, (*query.shape[:-1], n_k))


def all_of(masks, where, shape):
    """What masks for scores of `shape` let see together, some of them functions of positions."""
    masks = [of_pairs(mask, where, shape) for mask in masks if mask is not None]
    return reduce(jnp.logical_and, masks) if masks else None


def biases(bias):
    """The parts of a bias, one if it is no list."""
    parts = bias if isinstance(bias, list | tuple) else [bias]
    return [part for part in parts if part is not None]


def changes_values(bias):
    """Whether a bias adds something to the output of the heads, too."""
    return hasattr(bias, "scores") and hasattr(bias, "values")


def by_head(x, y):
    """Multiply matrices head by head, where each head of `y` may serve several of `x`."""
    if x.ndim < 3 or x.shape[-3] == y.shape[-3]:
        return x @ y
    *batch, heads, n, width = x.shape
    product = x.reshape(*batch, y.shape[-3], heads // y.shape[-3] * n, width) @ y
    return product.reshape(*batch, heads, n, y.shape[-1])


def for_heads(mask, shape):
    """A mask for scores of `shape`, `(*batch, h, n_q, n_k)`, with an axis of heads if it has none."""
    contract.layer_mask(mask, shape)
    return (
        mask
        if mask is None or callable(mask) or mask.ndim == len(shape)
        else mask[..., None, :, :]
    )


def for_each_head(x, query):
    """Give each head of queries the head of keys that serves it."""
    if query.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    return jnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    seen = jnp.any(mask, axis=-2)
    if seen.ndim > 1 and x.ndim > 2 and seen.shape[-2] not in (1, x.shape[-3]):
        *batch, heads, n_k = seen.shape  # several heads of queries share one of keys
        seen = seen.reshape(*batch, x.shape[-3], heads // x.shape[-3], n_k).any(axis=-2)
    return jnp.where(seen[..., None], x, 0)
