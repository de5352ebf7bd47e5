"""Attention: a weighted mean of values, the weights from queries and keys."""

import math
import warnings
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Integer, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention import tiled
from posattn.torch.attention.masks import causal_mask, of_pairs, zero_unattended

__all__ = ["attention_weights", "dropout", "masked_softmax", "scaled_dot_product_attention"]

Scores = Float[Tensor, "*batch n_q n_k"]
Mask = Bool[Tensor, "*#batch #n_q n_k"]
PairMask = Mask | contract.PositionMask
Bias = Float[Tensor, "*#batch #n_q n_k"] | contract.PositionBias | contract.ContentBias
Rng = torch.Generator | int | Integer[Tensor, ""]


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

    Raises:
        TypeError: if `scores` are not floating or `mask` is not bool.
        ValueError: if `scores` have fewer than two axes or `mask` does not fit.

    Examples:
        >>> masked_softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    if scores.shape[-1] == 0:
        return scores
    dtype = scores.dtype
    scores = scores.to(torch.promote_types(dtype, torch.float32))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    peak = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    exp = torch.exp(scores - peak)
    total = exp.sum(-1, keepdim=True)
    return (exp / total.masked_fill(total == 0, 1)).to(dtype)


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
) -> Scores:
    """How much each query attends to each key.

    Twin of :func:`posattn.reference.attention_weights`.
    Half-precision scores are computed in float32; the weights have the dtype of `query`.

    Args:
        query: Q, `(*batch, n_q, d)`.
        key: K, `(*batch, n_k, d)`, of the same batch axes, width and dtype. The last batch axis
            is that of heads, and keys may have fewer: each head of keys then serves as many
            neighboring heads of queries (grouped heads).
        mask: bool, True means may attend: an array that broadcasts to `(*batch, n_q, n_k)`, or a
            function of the positions of queries and keys that returns one, such as `Window`.
        causal: hide the future; queries are aligned to the end of the keys.
        bias: B, what is added to the scores: an array that broadcasts to `(*batch, n_q, n_k)`,
            a function of the positions of queries and keys that returns one, an object with a
            method `scores` (see `MultiHeadAttention`), or a list of those, which are added up.
        query_positions: where the queries stand, `(n_q)`, or one row for each example, all
            heads alike. If not given, they stand at the last n_q positions of the keys. Only
            biases and masks use positions.
        key_positions: where the keys stand, likewise; 0, ..., n_k - 1 if not given.
        scale: the factor on the scores, 1/sqrt(d) if not given.

    Returns:
        W, `(*batch, n_q, n_k)`. Each row sums to 1, or is 0 if it may attend to nothing.

    Raises:
        TypeError: if an array is missing or has a wrong or different dtype.
        ValueError: if shapes do not fit, or `scale` is not finite.

    Examples:
        >>> attention_weights(torch.eye(2), torch.eye(2), causal=True, scale=math.log(3))
        tensor([[1.0000, 0.0000],
                [0.2500, 0.7500]])
    """
    contract.attention(query, key, grouped=True)
    where = positions_of(query, key, query_positions, key_positions)
    mask = visible(query, key, of_pairs(mask, query, key, where), causal)
    key = zero_unattended(key, mask)
    bias = total_bias(bias, query, key, where)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = by_head(query.to(wide), key.to(wide).mT) * scale
    if bias is not None:
        scores = scores + bias.to(wide)
    return masked_softmax(scores, mask).to(query.dtype)


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
        causal: hide the future; queries are aligned to the end of the keys.
        bias: B, what is added to the scores: an array that broadcasts to `(*batch, n_q, n_k)`,
            a function of the positions of queries and keys that returns one, an object with a
            method `scores` (see `MultiHeadAttention`), or a list of those, which are added up.
        query_positions: where the queries stand, `(n_q)`, or one row for each example, all
            heads alike. If not given, they stand at the last n_q positions of the keys. Only
            biases and masks use positions.
        key_positions: where the keys stand, likewise; 0, ..., n_k - 1 if not given.
        scale: the factor on the scores, 1/sqrt(d) if not given.
        dropout_rate: probability in [0, 1) of dropping a weight; the others grow to make up.
        rng: where the numbers are drawn from.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Raises:
        TypeError: if an array is missing or has a wrong or different dtype, or `rng` is no
            generator.
        ValueError: if shapes do not fit, or a number lies outside its range.

    Examples:
        >>> value = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> scaled_dot_product_attention(torch.eye(2), torch.eye(2), value, causal=True, scale=math.log(3))
        tensor([[1.0000, 0.0000],
                [0.2500, 1.5000]])
    """
    contract.attention(query, key, value, grouped=True)
    if not callable(mask):
        contract.mask(mask, (*query.shape[:-1], key.shape[-2]))
    parts = biases(bias)
    drop = contract.dropout_rate(dropout_rate), seed(rng), None
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    aligned = query_positions is None and key_positions is None
    where = positions_of(query, key, query_positions, key_positions)
    arguments = query, key, value, mask, causal, parts, where, scale, drop
    if tiled.is_small(query, key):
        return attend(*arguments)
    return tiled.attend(attend, *arguments, aligned=aligned)


def attend(query, key, value, mask, causal, parts, where, scale, drop, finite=False):
    """Attention whose arguments are known to be good, all queries at once.

    `finite` says that so are the keys and values to which nobody attends.
    """
    if causal and mask is None and not parts and query.shape[-2] == key.shape[-2]:
        lower = True  # a bool of its own: of open sizes the comparison would be none
    else:
        lower, seen = False, visible(query, key, of_pairs(mask, query, key, where), causal)
        if not finite and mask is not None:  # else the last query attends to all keys
            key, value = zero_unattended(key, seen), zero_unattended(value, seen)
        mask = seen
    bias = total_bias(parts, query, key, where)
    return mix(query, key, value, mask, bias, lower, parts, where, scale, drop)


def mix(query, key, value, mask, bias, causal, parts, where, scale, drop):
    """Attention, likewise, to keys that are finite where nobody attends, with what `parts` add to values."""
    rate, rng, place = drop
    changing = [part for part in parts if changes_values(part)]
    if changing or (rate > 0 and rng is not None):
        options = {"mask": mask, "causal": causal, "bias": bias, "scale": scale}
        weights = _thin(attention_weights(query, key, **options), rate, rng, place)
        out = by_head(weights, value)
        return sum((part.values(weights, *where) for part in changing), out)
    return tiled.fused(query, key, value, _merge(mask, bias, query.dtype), causal, scale)


def dropout(
    x: Float[Tensor, "*shape"], dropout_rate: float, rng: Rng | None = None
) -> Float[Tensor, "*shape"]:
    """Set entries to zero at random and scale the others, so that the mean stays.

    Twin of :func:`posattn.reference.dropout`.

    Args:
        x: any shape.
        dropout_rate: the probability p in [0, 1).
        rng: where the numbers are drawn from.

    Returns:
        y, of the same shape.

    Raises:
        TypeError: if `x` is not floating or `rng` is no generator.
        ValueError: if `dropout_rate` lies outside [0, 1).

    Examples:
        >>> kept = dropout(torch.ones(1000), 0.5, torch.Generator().manual_seed(0))
        >>> kept.unique()
        tensor([0., 2.])
    """
    contract.floating("x", x)
    return _thin(x, contract.dropout_rate(dropout_rate), seed(rng))


def _thin(x, rate, rng, place=None):
    """Drop entries of `x`, which may be a part of a larger array: see `uniform`."""
    if rng is None or rate == 0:
        return x
    return x * (uniform(rng, x.shape, x.device, place) >= rate) / (1 - rate)


def seed(rng):
    """A number that fixes what is drawn: `rng` itself, or the next one of a generator."""
    whole = isinstance(rng, Tensor) and rng.ndim == 0 and not rng.is_floating_point()
    # of a tensor, torch.compile does not know whether it is a generator (torch 2.15)
    if whole or not isinstance(rng, torch.Generator):
        contract.rng(
            rng,
            rng is None or whole or contract.is_index(rng),
            "torch.Generator, or a seed: an integer or a tensor () of one",
        )
        return rng
    if torch._C._current_graph_task_id() != -1:
        raise ValueError(
            "rng must be a seed where a forward pass is computed again (checkpointing), got a "
            "torch.Generator, which would draw other numbers than at first"
        )
    return torch.randint(2**63 - 1, (), generator=rng, device=rng.device)


def uniform(seed, shape, device, place=None):
    """Numbers in [0, 1), a function of the seed and of their place: SplitMix64 at that place.

    What is given as `place` says of which array the last two axes are a part: in which row
    and column they start, and how many rows and columns it has.
    """
    start = _mix(torch.as_tensor(seed, dtype=torch.int64, device=device) + 1)
    if place is None:
        places = torch.arange(math.prod(shape), device=device).reshape(shape)
    else:
        *batch, n, m = shape
        row, column, rows, columns = place
        places = torch.arange(math.prod(batch), device=device).reshape(*batch, 1, 1) * rows
        places = (places + torch.arange(row, row + n, device=device)[:, None]) * columns
        places = places + torch.arange(column, column + m, device=device)
    return (_mix(start + places * _GAMMA) >> 11 & (1 << 53) - 1).double() * 2.0**-53


_GAMMA = 0x9E3779B97F4A7C15 - 2**64


def _mix(z):
    """The output function of SplitMix64, on 64-bit integers that wrap around."""
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * (0x94D049BB133111EB - 2**64)
    return z ^ (z >> 31 & (1 << 33) - 1)


def warn_of_no_dropout(layer, rng):
    """Say that a layer in training drops nothing, because nothing was given to draw from."""
    silent = layer.training and layer.dropout_rate > 0 and rng is None
    if silent and not torch.compiler.is_compiling():
        warnings.warn(
            f"{type(layer).__name__} is in training with dropout_rate = {layer.dropout_rate}, but "
            "drops nothing without rng: give the call a seed or a torch.Generator",
            stacklevel=3,
        )


def positions_of(query, key, query_positions, key_positions):
    """Where queries and keys stand: the last query at the last key, unless something else is given."""
    n_q, n_k, device = query.shape[-2], key.shape[-2], key.device
    contract.attention_positions(query_positions, key_positions, query.shape[:-3], n_q, n_k)
    if query_positions is None:
        query_positions = (
            torch.arange(n_k - n_q, n_k, device=device)
            if key_positions is None
            else key_positions[..., n_k - n_q :]
        )
    if key_positions is None:
        key_positions = torch.arange(n_k, device=device)
    return query_positions, key_positions


def visible(query, key, mask, causal):
    """Turn `causal` into part of the mask."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    contract.mask(mask, (*query.shape[:-1], n_k))
    if causal:
        future_hidden = causal_mask(n_q, n_k, device=query.device)
        mask = future_hidden if mask is None else mask & future_hidden
    return mask


def biases(bias):
    """The parts of a bias, one if it is no list."""
    parts = bias if isinstance(bias, (list, tuple, nn.ModuleList)) else [bias]
    return [part for part in parts if part is not None]


def changes_values(bias):
    """Whether a bias adds something to the output of the heads, too."""
    return hasattr(bias, "scores") and hasattr(bias, "values")


def total_bias(bias, query, key, where):
    """Add up what the parts of a bias add to the scores, or give None."""
    total = None
    for part in biases(bias):
        if hasattr(part, "scores"):
            part = part.scores(query, for_each_head(key, query), *where)
        elif callable(part):
            part = part(*where)
        contract.array("bias", part)
        contract.bias(part, (*query.shape[:-1], key.shape[-2]))
        total = part if total is None else total + part
    return total


def by_head(x, y):
    """Multiply matrices head by head, where each head of `y` may serve several of `x`."""
    if x.ndim < 3 or x.shape[-3] == y.shape[-3]:
        return x @ y
    grouped = x.unflatten(-3, (y.shape[-3], -1)).flatten(-3, -2) @ y
    return grouped.reshape(*x.shape[:-1], y.shape[-1])


def for_each_head(x, query):
    """Give each head of queries the head of keys or values that serves it."""
    if query.ndim < 3 or x.shape[-3] == query.shape[-3]:
        return x
    return x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3)


def _merge(mask, bias, dtype):
    """The one array that the fused kernel takes for mask and bias."""
    if bias is None:
        return mask
    return bias.to(dtype) if mask is None else torch.where(mask, bias.to(dtype), -math.inf)
