"""Attention: a weighted mean of values, the weights from queries and keys."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Inexact, Integer, Num

from posattn import contract
from posattn.reference.attention.masks import causal_mask, of_pairs, of_selected
from posattn.reference.validated import validated

__all__ = ["attention_weights", "dropout", "masked_softmax", "scaled_dot_product_attention"]

Scores = Inexact[np.ndarray, "*batch n_q n_k"]
Mask = Bool[np.ndarray, "*#batch #n_q n_k"]
PairMask = Mask | contract.PositionMask
Bias = (
    Inexact[np.ndarray, "*#batch #n_q n_k"] | contract.PositionBias | contract.ContentBias
)


def _double(x: Inexact[np.ndarray, "*shape"]) -> Inexact[np.ndarray, "*shape"]:
    return x.astype(np.complex128 if np.iscomplexobj(x) else np.float64)


@validated
def masked_softmax(scores: Scores, mask: Mask | None = None) -> Scores:
    r"""Normalise scores over the keys that may be attended to.

    .. math:: w_{ij} = \frac{m_{ij} \exp(s_{ij})}{\sum_{l} m_{il} \exp(s_{il})},
        \qquad w_{ij} = 0 \text{ where no } m_{il} \text{ is True.}

    A score of minus infinity counts as masked.
    The largest score is subtracted first, which changes nothing but prevents overflow.

    Args:
        scores: $s$, `(*batch, n_q, n_k)`.
        mask: $m$, bool, True means may attend; its shape broadcasts to that of `scores`.

    Returns:
        The weights $w$, `(*batch, n_q, n_k)`. Each row sums to 1, or is 0 if nothing may be
        attended to, and then so is its gradient.

    Raises:
        ValueError: if `scores` have fewer than two axes or `mask` does not fit.

    Examples:
        >>> scores = np.array([[0.0, np.log(3.0), 7.0], [1.0, 2.0, 3.0]])
        >>> masked_softmax(scores, np.array([[True, True, False], [False, False, False]]))
        array([[0.25, 0.75, 0.  ],
               [0.  , 0.  , 0.  ]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.2.
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    return _normalised(_double(scores), mask)


def _normalised(scores, mask, sinks=None):
    """The softmax over the keys that are seen, whose sum a sink joins in each head."""
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    peak = np.max(scores.real, axis=-1, keepdims=True, initial=np.finfo(float).min)
    if sinks is not None:
        sinks = _double(sinks)[..., None, None]
        peak = np.maximum(peak, sinks.real)
    exp = np.exp(scores - peak)
    total = np.sum(exp, axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - peak)
    return exp / np.where(total == 0, 1, total)


@validated
def attention_weights(
    query: Inexact[np.ndarray, "*batch n_q d"],
    key: Inexact[np.ndarray, "*groups n_k d"],
    *,
    mask: PairMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Num[np.ndarray, "... n_q"] | None = None,
    key_positions: Num[np.ndarray, "... n_k"] | None = None,
    scale: float | None = None,
    sinks: Inexact[np.ndarray, "*h"] | None = None,
    soft_cap: float | None = None,
    select: Integer[np.ndarray, "..."] | None = None,
) -> Scores:
    r"""How much each query attends to each key.

    .. math:: \mathbf{W} = \operatorname{softmax}\left(\frac{\mathbf{Q}\mathbf{K}^\top}{\sqrt{d}}
        + \mathbf{B}\right) \in \mathbb{R}^{n_q \times n_k},

    the softmax taken over the keys that `mask`, `causal` and `select` allow.
    Two options change it in each head. A soft cap $c$ keeps the scores $s$ before the bias within
    $(-c, c)$, and a sink $a$ adds to the sum of each row as a key without a value would:

    .. math:: w_{ij} = \frac{\exp(c \tanh(s_{ij} / c) + b_{ij})}
        {\exp(a) + \sum_l \exp(c \tanh(s_{il} / c) + b_{il})}, \qquad
        s_{ij} = \frac{\mathbf{q}_i \cdot \mathbf{k}_j}{\sqrt{d}}.

    A row with a sink sums to less than 1, so a head may attend to next to nothing.

    Args:
        query: $\mathbf{Q}$, `(*batch, n_q, d)`: as for `scaled_dot_product_attention`, like all that follow.
        key: $\mathbf{K}$, `(*batch, n_k, d)`, whose heads may be fewer.
        mask: True means may attend.
        causal: hide the future.
        bias: $\mathbf{B}$, what is added to the scores.
        query_positions: where the queries stand.
        key_positions: where the keys stand.
        scale: the factor on the scores, $1/\sqrt{d}$ if not given.
        sinks: $a$, one for each head of queries, `(h)`.
        soft_cap: $c$, above 0; no cap if not given.
        select: indices of the keys that each query reads, `(*batch, n_q, k)`.

    Returns:
        $\mathbf{W}$, `(*batch, n_q, n_k)`. Each row sums to 1, with `sinks` to less, or is 0 if it
        may attend to nothing.

    Examples:
        >>> weights = attention_weights(np.eye(2), np.eye(2), causal=True, scale=np.log(3.0))
        >>> weights
        array([[1.  , 0.  ],
               [0.25, 0.75]])
        >>> attention_weights(np.eye(2), np.eye(2), scale=0.0, sinks=np.array(np.log(2.0)))
        array([[0.25, 0.25],
               [0.25, 0.25]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, equation 1; the soft cap is that of
        :cite:t:`gemma2024gemma2`, the sinks are those of :cite:t:`openai2025gptoss`, after what
        :cite:t:`xiao2024efficient` saw.
    """
    contract.attention(query, key, grouped=True)
    contract.sinks(sinks, query)
    soft_cap = contract.soft_cap(soft_cap)
    positions = positions_of(query, key, query_positions, key_positions)
    mask = of_pairs(mask, positions, (*query.shape[:-1], key.shape[-2]))
    mask = visible(query, key, mask, causal, select)
    key = zero_unattended(key, mask)
    bias = total_bias(bias, query, key, positions)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    scores = by_head(_double(query), _double(key).mT) * scale
    if soft_cap is not None:
        scores = soft_cap * np.tanh(scores / soft_cap)
    return _normalised(scores if bias is None else scores + bias, mask, sinks)


@validated
def scaled_dot_product_attention(
    query: Inexact[np.ndarray, "*batch n_q d"],
    key: Inexact[np.ndarray, "*groups n_k d"],
    value: Inexact[np.ndarray, "*groups n_k d_v"],
    *,
    mask: PairMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Num[np.ndarray, "... n_q"] | None = None,
    key_positions: Num[np.ndarray, "... n_k"] | None = None,
    scale: float | None = None,
    sinks: Inexact[np.ndarray, "*h"] | None = None,
    soft_cap: float | None = None,
    select: Integer[np.ndarray, "..."] | None = None,
    dropout_rate: float = 0.0,
    rng: np.random.Generator | None = None,
) -> Inexact[np.ndarray, "*batch n_q d_v"]:
    r"""Replace each query by a weighted mean of the values.

    .. math:: \operatorname{softmax}\left(\frac{\mathbf{Q}\mathbf{K}^\top}{\sqrt{d}}
        + \mathbf{B}\right)\mathbf{V} \in \mathbb{R}^{n_q \times d_v}.

    A key that no query may attend to has no influence, even if it or its value is
    NaN or infinite. What `sinks` and `soft_cap` do to the weights says :func:`attention_weights`.

    Args:
        query: $\mathbf{Q}$, `(*batch, n_q, d)`.
        key: $\mathbf{K}$, `(*batch, n_k, d)`, of the same batch axes, width and dtype. The last
            batch axis is that of heads, and keys may have fewer: each head of keys then serves
            as many neighboring heads of queries (grouped heads).
        value: $\mathbf{V}$, `(*batch, n_k, d_v)`, of the same batch axes as the keys and of
            the same dtype.
        mask: bool, True means may attend: an array that broadcasts to `(*batch, n_q, n_k)`, or a
            function of the positions of queries and keys that returns one, such as `Window`.
            Padding `(b, n_k)` is given as `padding[:, None, None]`: as it is, its rows would be queries.
        causal: hide the future; queries are aligned to the end of the keys.
        bias: $\mathbf{B}$, what is added to the scores: an array that broadcasts to
            `(*batch, n_q, n_k)`, a function of the positions of queries and keys that returns
            one, an object with a method `scores` (see :class:`MultiHeadAttention`), or a list of
            those, which are added up.
        query_positions: where the queries stand, `(n_q)`, or one row for each example, all heads
            alike. If not given, they stand at the last $n_q$ positions of the keys. Only
            biases and masks use positions.
        key_positions: where the keys stand, likewise; $0, \ldots, n_k - 1$ if not given.
        scale: the factor on the scores, $1/\sqrt{d}$ if not given.
        sinks: one score for each head of queries, `(h)`, or `()` where queries have no axis of heads.
            It joins the sum that divides the weights of its head, and has no value.
        soft_cap: the scores $s$ before the bias become $c \tanh(s / c)$, where $c$ is this number
            above 0; no cap if not given.
        select: indices of the keys that each query reads, `(*batch, n_q, k)` for all heads alike, or with
            the axis of heads (of keys or of queries) before `n_q`; -1 is no key, and a key given twice
            counts once. Of these, a query attends to what `mask` and `causal` allow. All if not given.
        dropout_rate: probability in [0, 1) of dropping a weight; the others grow to make up.
        rng: where the randomness comes from; None means no dropout.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Examples:
        >>> value = np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> scaled_dot_product_attention(np.eye(2), np.eye(2), value, causal=True, scale=np.log(3.0))
        array([[1.  , 0.  ],
               [0.25, 1.5 ]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, equation 1; the soft cap is that of
        :cite:t:`gemma2024gemma2`, and the sinks are those of :cite:t:`openai2025gptoss`.
    """
    contract.attention(query, key, value, grouped=True)
    positions = positions_of(query, key, query_positions, key_positions)
    mask = of_pairs(mask, positions, (*query.shape[:-1], key.shape[-2]))
    mask = visible(query, key, mask, causal, select)
    weights = attention_weights(
        query,
        key,
        mask=mask,
        bias=bias,
        query_positions=positions.query,
        key_positions=positions.key,
        scale=scale,
        sinks=sinks,
        soft_cap=soft_cap,
    )
    weights = dropout(weights, dropout_rate, rng)
    out = by_head(weights, _double(zero_unattended(value, mask)))
    return sum(
        (b.values(weights, *positions) for b in biases(bias) if changes_values(b)), out
    )


@validated
def dropout(
    x: Inexact[np.ndarray, "*shape"],
    dropout_rate: float,
    rng: np.random.Generator | None = None,
) -> Inexact[np.ndarray, "*shape"]:
    r"""Set entries to zero at random and scale the others, so that the mean stays.

    .. math:: y = \frac{u}{1 - p}\, x, \qquad u \sim \operatorname{Bernoulli}(1 - p).

    Args:
        x: any shape.
        dropout_rate: the probability $p$ in [0, 1).
        rng: where the randomness comes from; None means no dropout.

    Returns:
        $y$, of the same shape.

    Raises:
        ValueError: if `dropout_rate` lies outside [0, 1).

    Examples:
        >>> dropout(np.ones(6), 0.5, np.random.default_rng(0))
        array([2., 0., 0., 0., 2., 2.])
        >>> dropout(np.ones(2), 0.5)
        array([1., 1.])
    """
    contract.floating("x", x)
    rate = contract.dropout_rate(dropout_rate)
    if rng is None or rate == 0:
        return _double(x)
    return _double(x) * (rng.random(x.shape) >= rate) / (1 - rate)


class Positions(NamedTuple):
    """Where queries and keys stand: of each `(n)`, or one row for each example."""

    query: np.ndarray
    key: np.ndarray


def positions_of(query, key, query_positions, key_positions):
    """Where queries and keys stand: the last query at the last key, unless something else is given."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    contract.attention_positions(query_positions, key_positions, query.shape[:-3], n_q, n_k)
    if query_positions is None:
        query_positions = (
            np.arange(n_k - n_q, n_k)
            if key_positions is None
            else key_positions[..., n_k - n_q :]
        )
    key_positions = np.arange(n_k) if key_positions is None else key_positions
    return Positions(query_positions, key_positions)


def visible(query, key, mask, causal, select=None):
    """Turn `causal` and `select` into parts of the mask."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    contract.mask(mask, (*query.shape[:-1], n_k))
    if causal:
        mask = causal_mask(n_q, n_k) if mask is None else mask & causal_mask(n_q, n_k)
    if select is not None:
        contract.selected(select, query, key)
        chosen = of_selected(select, query, key)
        mask = chosen if mask is None else mask & chosen
    return mask


def biases(bias):
    """The parts of a bias, one if it is no list."""
    parts = bias if isinstance(bias, list | tuple) else [bias]
    return [part for part in parts if part is not None]


def changes_values(bias):
    """Whether a bias adds something to the output of the heads, too."""
    return hasattr(bias, "scores") and hasattr(bias, "values")


def total_bias(bias, query, key, positions):
    """Add up what the parts of a bias add to the scores, or give None."""
    total = None
    for part in biases(bias):
        if hasattr(part, "scores"):
            part = part.scores(query, for_each_head(key, query), *positions)
        elif callable(part):
            part = part(*positions)
        contract.array("bias", part)
        contract.bias(part, (*query.shape[:-1], key.shape[-2]))
        total = part if total is None else total + part
    return total


def by_head(x, y):
    """Multiply matrices head by head, where each head of `y` may serve several of `x`."""
    if x.ndim < 3 or x.shape[-3] == y.shape[-3]:
        return x @ y
    *batch, heads, n, width = x.shape
    product = x.reshape(*batch, y.shape[-3], heads // y.shape[-3] * n, width) @ y
    return product.reshape(*batch, heads, n, y.shape[-1])


def for_each_head(x, query):
    """Give each head of queries the head of keys or values that serves it."""
    if query.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    return np.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    if mask is None:
        return x
    seen = np.any(mask, axis=-2)
    if seen.ndim > 1 and x.ndim > 2 and seen.shape[-2] not in (1, x.shape[-3]):
        *batch, heads, n_k = seen.shape  # several heads of queries share one of keys
        groups = heads // x.shape[-3]
        seen = np.any(seen.reshape(*batch, x.shape[-3], groups, n_k), axis=-2)
    return np.where(seen[..., None], x, 0)
