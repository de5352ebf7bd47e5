"""Attention: a weighted mean of values, the weights from queries and keys."""

from collections.abc import Sequence

from jaxtyping import Bool, Float, Integer, Real
from torch import Tensor

from posattn import contract
from posattn.torch.attention import definition, fused, gathered, tiled
from posattn.torch.attention.call import checked
from posattn.torch.attention.definition import masked_softmax
from posattn.torch.attention.random import Rng, dropout
from posattn.torch.validated import validated

__all__ = ["attention_weights", "dropout", "masked_softmax", "scaled_dot_product_attention"]

Scores = Float[Tensor, "*batch n_q n_k"]
PairMask = Bool[Tensor, "*#batch #n_q n_k"] | contract.PositionMask
Bias = Float[Tensor, "*#batch #n_q n_k"] | contract.PositionBias | contract.ContentBias


@validated
def attention_weights(
    query: Float[Tensor, "*batch n_q d"],
    key: Float[Tensor, "*groups n_k d"],
    *,
    mask: PairMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Real[Tensor, "... n_q"] | None = None,
    key_positions: Real[Tensor, "... n_k"] | None = None,
    scale: float | None = None,
    sinks: Float[Tensor, "*h"] | None = None,
    soft_cap: float | None = None,
    select: Integer[Tensor, "..."] | None = None,
) -> Scores:
    """How much each query attends to each key.

    Twin of :func:`posattn.reference.attention_weights`.
    Half-precision scores are computed in float32; the weights have the dtype of `query`.

    Args:
        query: Q, `(*batch, n_q, d)`: as for `scaled_dot_product_attention`, like all that follow.
        key: K, `(*batch, n_k, d)`, whose heads may be fewer.
        mask: True means may attend.
        causal: hide the future.
        bias: B, what is added to the scores.
        query_positions: where the queries stand.
        key_positions: where the keys stand.
        scale: the factor on the scores, 1/sqrt(d) if not given.
        sinks: one for each head of queries, `(h)`.
        soft_cap: c, above 0; no cap if not given.
        select: indices of the keys that each query reads, `(*batch, n_q, k)`.

    Returns:
        W, `(*batch, n_q, n_k)`. Each row sums to 1, with `sinks` to less, or is 0 if it may
        attend to nothing.

    Examples:
        >>> import math, torch
        >>> attention_weights(torch.eye(2), torch.eye(2), causal=True, scale=math.log(3))
        tensor([[1.0000, 0.0000],
                [0.2500, 0.7500]])
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
    return definition.weights(gathered.as_mask(call))


@validated
def scaled_dot_product_attention(
    query: Float[Tensor, "*batch n_q d"],
    key: Float[Tensor, "*groups n_k d"],
    value: Float[Tensor, "*groups n_k d_v"],
    *,
    mask: PairMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Real[Tensor, "... n_q"] | None = None,
    key_positions: Real[Tensor, "... n_k"] | None = None,
    scale: float | None = None,
    sinks: Float[Tensor, "*h"] | None = None,
    soft_cap: float | None = None,
    select: Integer[Tensor, "..."] | None = None,
    dropout_rate: float = 0.0,
    rng: Rng | None = None,
) -> Float[Tensor, "*batch n_q d_v"]:
    """Replace each query by a weighted mean of the values.

    Twin of :func:`posattn.reference.scaled_dot_product_attention`.
    Without dropout PyTorch's fused kernel runs; with it the weights are built and thinned out.

    Args:
        query: Q, `(*batch, n_q, d)`.
        key: K, `(*batch, n_k, d)`, of the same batch axes, width and dtype. The last batch axis
            is that of heads, and keys may have fewer: each head of keys then serves as many
            neighboring heads of queries (grouped heads).
        value: V, `(*batch, n_k, d_v)`, of the same batch axes as the keys and of the same
            dtype.
        mask: bool, True means may attend: an array that broadcasts to `(*batch, n_q, n_k)`, or a
            function of the positions of queries and keys that returns one, such as `Window`.
            Padding `(b, n_k)` is given as `padding[:, None, None]`: as it is, its rows would be queries.
        causal: hide the future; queries are aligned to the end of the keys.
        bias: B, what is added to the scores: an array that broadcasts to `(*batch, n_q, n_k)`,
            a function of the positions of queries and keys that returns one, an object with a
            method `scores` (see `MultiHeadAttention`), or a list of those, which are added up.
        query_positions: where the queries stand, `(n_q)`, or one row for each example, all
            heads alike. If not given, they stand at the last n_q positions of the keys. Only
            biases and masks use positions.
        key_positions: where the keys stand, likewise; 0, ..., n_k - 1 if not given.
        scale: the factor on the scores, 1/sqrt(d) if not given.
        sinks: one score for each head of queries, `(h)`, or `()` where queries have no axis of heads.
            It joins the sum that divides the weights of its head, and has no value.
        soft_cap: the scores s before the bias become c * tanh(s / c), where c is this number above
            0; no cap if not given.
        select: indices of the keys that each query reads, `(*batch, n_q, k)` for all heads alike, or with
            the axis of heads (of keys or of queries) before `n_q`; -1 is no key, and a key given twice
            counts once. Of these, a query attends to what `mask` and `causal` allow. All if not given.
        dropout_rate: probability in [0, 1) of dropping a weight; the others grow to make up.
        rng: where the numbers are drawn from.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Examples:
        >>> import math, torch
        >>> value = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> scaled_dot_product_attention(torch.eye(2), torch.eye(2), value, causal=True, scale=math.log(3))
        tensor([[1.0000, 0.0000],
                [0.2500, 1.5000]])
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
    """Attention by the path that suits the call: all at once if it is small, else in parts."""
    if call.select is not None and gathered.suits(call):
        return gathered.attend(call)
    call = gathered.as_mask(call)
    whole = (definition if call.needs_weights else fused).attend
    return whole(call) if tiled.is_small(call) else tiled.attend(call, whole)
