"""Attention: a weighted mean of values, the weights from queries and keys."""

from collections.abc import Sequence

import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer, Real

from posattn import contract
from posattn.jax.attention import definition, gathered, tiled
from posattn.jax.attention.call import as_mask, checked
from posattn.jax.attention.definition import masked_softmax
from posattn.jax.attention.random import dropout
from posattn.jax.validated import validated

__all__ = ["attention_weights", "dropout", "masked_softmax", "scaled_dot_product_attention"]

Scores = Float[Array, "*batch n_q n_k"]
Mask = Bool[Array, "*#batch #n_q n_k"] | contract.PositionMask
Bias = Float[Array, "*#batch #n_q n_k"] | contract.PositionBias | contract.ContentBias


@validated
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
    sinks: Float[Array, "*h"] | None = None,
    soft_cap: float | None = None,
    select: Integer[Array | np.ndarray, "..."] | None = None,
) -> Scores:
    """How much each query attends to each key.

    Twin of :func:`posattn.reference.attention_weights`.
    Half-precision scores are computed in float32; the weights have the dtype of `query`.

    Args:
        query: `(*batch, n_q, d)`: as for `scaled_dot_product_attention`, like all that follow.
        key: `(*batch, n_k, d)`, whose heads may be fewer.
        mask: True means may attend.
        causal: hide the future.
        bias: what is added to the scores.
        query_positions: where the queries stand.
        key_positions: where the keys stand.
        scale: the factor on the scores, 1/sqrt(d) if not given.
        sinks: one for each head of queries, `(h)`.
        soft_cap: c, above 0; no cap if not given.
        select: indices of the keys that each query reads, `(*batch, n_q, k)`.

    Returns:
        The weights, `(*batch, n_q, n_k)`. Each row sums to 1, with `sinks` to less, or is 0 if it may
        attend to nothing.

    Examples:
        >>> import math
        >>> import jax.numpy as jnp
        >>> attention_weights(jnp.eye(2), jnp.eye(2), causal=True, scale=math.log(3)).round(4)
        Array([[1.  , 0.  ],
               [0.25, 0.75]], dtype=float32)
    """
    call = checked(
        query,
        key,
        mask=mask,
        causal=causal,
        bias=bias,
        query_positions=query_positions,
        key_positions=key_positions,
        scale=scale,
        sinks=sinks,
        soft_cap=soft_cap,
        select=select,
    )
    return definition.weights(call)


@validated
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
    sinks: Float[Array, "*h"] | None = None,
    soft_cap: float | None = None,
    select: Integer[Array | np.ndarray, "..."] | None = None,
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
            Padding `(b, n_k)` is given as `padding[:, None, None]`: as it is, its rows would be queries.
        causal: hide the future; queries are aligned to the end of the keys.
        bias: what is added to the scores: an array that broadcasts to `(*batch, n_q, n_k)`, a
            function of the positions of queries and keys that returns one, an object with a
            method `scores`, or a list of those, which are added up.
        query_positions: where the queries stand, in tokens, `(n_q)`, or one row for each example,
            `(*batch, n_q)` without the axis of heads. If not given, they stand at the last `n_q`
            positions of the keys. Only biases and masks use positions.
        key_positions: where the keys stand, likewise; from 0 on if not given.
        scale: the factor on the products of queries and keys, one over the root of $d$ if not given.
        sinks: one score for each head of queries, `(h)`, or `()` where queries have no axis of heads.
            It joins the sum that divides the weights of its head, and has no value.
        soft_cap: the scores s before the bias become c * tanh(s / c), where c is this number above
            0; no cap if not given.
        select: indices of the keys that each query reads, `(*batch, n_q, k)` for all heads alike, or with
            the axis of heads (of keys or of queries) before `n_q`; -1 is no key, and a key given twice
            counts once. Of these, a query attends to what `mask` and `causal` allow. All if not given.
        dropout_rate: probability in [0, 1) of dropping a weight; the others grow to make up.
        rng: a JAX key where dropout draws from; None means no dropout.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Examples:
        >>> import math
        >>> import jax.numpy as jnp
        >>> value = jnp.array([[1.0, 0.0], [0.0, 2.0]])
        >>> x = jnp.eye(2)
        >>> scaled_dot_product_attention(x, x, value, causal=True, scale=math.log(3)).round(4)
        Array([[1.  , 0.  ],
               [0.25, 1.5 ]], dtype=float32)
    """
    call = checked(
        query,
        key,
        value,
        mask=mask,
        causal=causal,
        bias=bias,
        query_positions=query_positions,
        key_positions=key_positions,
        scale=scale,
        sinks=sinks,
        soft_cap=soft_cap,
        select=select,
        dropout_rate=dropout_rate,
        rng=rng,
    )
    return attend(call)


def attend(call):
    """Attention by the path that suits the call: all at once if it is small, else in tiles."""
    if call.select is not None and gathered.suits(call):
        return gathered.attend(call)
    call = as_mask(call)
    path = definition if tiled.at_once(call) else tiled
    return path.attend(call)
