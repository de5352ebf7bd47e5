"""The MLX port: attention and sinusoidal encoding with MLX modules.

Seen working with MLX 0.32 on the CPU, also under `mx.compile`, `mx.grad` and `nn.value_and_grad`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

from posattn import contract

__all__ = [
    "MultiHeadAttention",
    "PositionalEncoding",
    "length_mask",
    "masked_softmax",
    "scaled_dot_product_attention",
    "sinusoidal_encoding",
]


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own projection of the input.

    Port of :class:`posattn.reference.MultiHeadAttention`.
    `query`, `key`, `value` and `output` are `nn.Linear`, whose weight is `(out, in)` as PyTorch's:
    the names and arrays of the torch layer's state dict are what `load_weights` takes.
    Dropout acts when `rng`, a key from `mx.random.key`, is given to the call, not in `train` mode.
    `rotate` and `bias` are functions of positions, or modules with parameters of their own.

    Examples:
        >>> layer = MultiHeadAttention(8, 2)
        >>> x = mx.ones((3, 5, 8))
        >>> layer(x, x, x, causal=True).shape
        (3, 5, 8)
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        use_bias: bool = False,
        dropout_rate: float = 0.0,
        rotate: Callable | None = None,
        bias: Callable | None = None,
        scale: float | None = None,
        dtype: mx.Dtype | None = None,
        rng: mx.array | None = None,
    ):
        super().__init__()
        self.dim = contract.integer("dim", dim, least=1)
        self.num_heads = contract.heads(num_heads, self.dim)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.rotate, self.bias = rotate, bias
        self.scale = None if scale is None else contract.scale(scale)
        _check_rng(rng)
        dtype = mx.float32 if dtype is None else dtype
        bound = math.sqrt(3 / self.dim)
        keys = [None] * 4 if rng is None else mx.random.split(rng, 4)
        for role, key in zip(("query", "key", "value", "output"), keys, strict=True):
            linear = nn.Linear(self.dim, self.dim, bias=use_bias)
            drawn = mx.random.uniform(-bound, bound, linear.weight.shape, key=key)
            linear.weight = drawn.astype(dtype)
            if use_bias:
                linear.bias = mx.zeros(self.dim, dtype)
            setattr(self, role, linear)

    def __call__(
        self,
        query: mx.array,
        key: mx.array,
        value: mx.array,
        *,
        mask: mx.array | None = None,
        causal: bool = False,
        bias: mx.array | None = None,
        key_positions: mx.array | None = None,
        rng: mx.array | None = None,
    ) -> mx.array:
        """Attend from `query`, `(*batch, n_q, d)`, to `key` and mix `value`, `(*batch, n_k, d)`."""
        contract.layer_inputs(query, key, value, self.dim)
        contract.floating("query", query, like=self.query.weight, owner="the weights")
        n_q, n_k = query.shape[-2], key.shape[-2]
        contract.mask(mask, (*query.shape[:-1], n_k))
        contract.bias(bias, (*query.shape[:-2], self.num_heads, n_q, n_k))
        contract.attention_positions(None, key_positions, query.shape[:-2], n_q, n_k)
        if key_positions is None:
            query_positions, key_positions = _positions(n_q, n_k)
        else:
            query_positions = key_positions[..., n_k - n_q :]
        q = _split_heads(self.query(query), self.num_heads)
        k = _split_heads(self.key(key), self.num_heads)
        v = _split_heads(self.value(value), self.num_heads)
        if self.rotate is not None:
            q = self.rotate(q, query_positions[..., None, :])
            k = self.rotate(k, key_positions[..., None, :])
        if self.bias is not None:
            own = self.bias(query_positions, key_positions)
            bias = own if bias is None else bias + own
        mask = None if mask is None else mask[..., None, :, :]
        drop = {"dropout_rate": self.dropout_rate, "rng": rng}
        heads = scaled_dot_product_attention(
            q, k, v, mask=mask, causal=causal, bias=bias, scale=self.scale, **drop
        )
        return self.output(heads.swapaxes(-3, -2).flatten(-2))


class PositionalEncoding(nn.Module):
    """Add to each token the sinusoidal encoding of its position.

    Port of :class:`posattn.reference.PositionalEncoding`.
    The result has the dtype of `x`; dropout acts when `rng` is given, not in `train` mode.

    Examples:
        >>> layer = PositionalEncoding(4)
        >>> layer(mx.zeros((1, 2, 4))).round(4)
        array([[[0, 1, 0, 1],
                [0.8415, 0.5403, 0.01, 1]]], dtype=float32)
    """

    def __init__(self, dim: int, *, dropout_rate: float = 0.0, base: float = 10000.0):
        super().__init__()
        self.dim = contract.integer("dim", dim, least=1)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.base = contract.base(base)

    def __call__(
        self,
        x: mx.array,
        *,
        positions: mx.array | None = None,
        rng: mx.array | None = None,
    ) -> mx.array:
        """Add the encoding to `x`, `(*batch, n, d)`, of any length."""
        contract.sequence("x", x, self.dim)
        contract.positions_of(x.shape, positions)
        where = x.shape[-2] if positions is None else positions
        encoding = sinusoidal_encoding(where, self.dim, base=self.base, dtype=x.dtype)
        return _dropout(x + encoding, self.dropout_rate, rng)


def length_mask(lengths: mx.array, n_k: int) -> mx.array:
    """Let queries attend to the first keys only, as many as `lengths` says.

    Port of :func:`posattn.reference.length_mask`: `lengths` `(batch)` or `(batch, n_q)`, the result
    `(batch, 1, n_k)` or `(batch, n_q, n_k)`.
    Under `mx.compile` and `mx.vmap` the values of `lengths` are not checked.

    Examples:
        >>> length_mask(mx.array([3, 1]), 4)
        array([[[True, True, True, False]],
               [[True, False, False, False]]], dtype=bool)
    """
    n_k = contract.integer("n_k", n_k)
    contract.lengths(lengths, n_k, known=_has_values(lengths))
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    return mx.arange(n_k) < per_query[..., None]


def masked_softmax(scores: mx.array, mask: mx.array | None = None) -> mx.array:
    """Normalise scores over the keys that may be attended to.

    Port of :func:`posattn.reference.masked_softmax`: `(*batch, n_q, n_k)` in and out, the mask of a
    shape that broadcasts to it.

    Examples:
        >>> masked_softmax(mx.zeros((2, 3)), mx.array([[True, True, False], [False] * 3]))
        array([[0.5, 0.5, 0],
               [0, 0, 0]], dtype=float32)
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    if scores.shape[-1] == 0:
        return scores
    if mask is not None:
        scores = mx.where(mask, scores, -math.inf)
    peak = mx.stop_gradient(mx.max(scores, axis=-1, keepdims=True))
    exp = _exp(scores - mx.maximum(peak, mx.finfo(scores.dtype).min))
    total = mx.sum(exp, axis=-1, keepdims=True)
    return exp / mx.where(total == 0, 1, total)


def scaled_dot_product_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    *,
    mask: mx.array | None = None,
    causal: bool = False,
    bias: mx.array | Callable | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    rng: mx.array | None = None,
) -> mx.array:
    """Replace each query by a weighted mean of the values.

    Port of :func:`posattn.reference.scaled_dot_product_attention`: `(*batch, n_q, d)`,
    `(*batch, n_k, d)` and `(*batch, n_k, d_v)` give `(*batch, n_q, d_v)`.
    Half-precision scores are computed in float32; a function as `bias` gets int64 positions.

    Examples:
        >>> x, value = mx.eye(2), mx.array([[1.0, 0.0], [0.0, 2.0]])
        >>> scaled_dot_product_attention(x, x, value, causal=True, scale=0.0)
        array([[1, 0],
               [0.5, 1]], dtype=float32)
    """
    contract.attention(query, key, value)
    n_q, n_k = query.shape[-2], key.shape[-2]
    query_positions, key_positions = _positions(n_q, n_k)
    if callable(bias):
        bias = bias(query_positions, key_positions)
    contract.mask(mask, (*query.shape[:-1], n_k))
    contract.bias(bias, (*query.shape[:-1], n_k))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    _check_rng(rng)
    contract.dropout_rate(dropout_rate)
    if causal:
        future_hidden = key_positions <= query_positions[:, None]
        mask = future_hidden if mask is None else mask & future_hidden
    key, value = _zero_unattended(key, mask), _zero_unattended(value, mask)
    wide = mx.float64 if query.dtype == mx.float64 else mx.float32
    scores = query.astype(wide) @ key.astype(wide).swapaxes(-2, -1) * scale
    if bias is not None:
        scores = scores + bias.astype(wide)
    weights = masked_softmax(scores, mask).astype(query.dtype)
    return _dropout(weights, dropout_rate, rng) @ value


def sinusoidal_encoding(
    length_or_positions: int | mx.array,
    dim: int,
    *,
    base: float = 10000.0,
    dtype: mx.Dtype | None = None,
) -> mx.array:
    """One row of sines and cosines per position.

    Port of :func:`posattn.reference.sinusoidal_encoding`: `(n, d)`, or `(*batch, n, d)` from positions
    `(*batch, n)`.
    Angles are float64, which MLX has on the CPU only, until the sines are taken; the result has
    `dtype`, or float32.

    Examples:
        >>> sinusoidal_encoding(2, 4).round(4)
        array([[0, 1, 0, 1],
               [0.8415, 0.5403, 0.01, 1]], dtype=float32)
    """
    length = contract.length_or_positions(length_or_positions)
    dim = contract.integer("dim", dim, least=1)
    base = contract.base(base)
    with mx.stream(mx.cpu):
        positions = length_or_positions if length is None else mx.arange(length)
        frequencies = mx.array([base ** (-j / dim) for j in range(0, dim, 2)], mx.float64)
        sin, cos = _sin_cos(positions.astype(mx.float64)[..., None] * frequencies)
        pairs = mx.stack([sin, cos], axis=-1).flatten(-2)
        return pairs[..., :dim].astype(mx.float32 if dtype is None else dtype)


@mx.custom_function
def _sin_cos(angles):
    """Sine and cosine from the tangent: MLX takes float64 sines in float32 (its issue 3047)."""
    half = mx.tan(angles / 2)
    square = half * half
    return 2 * half / (1 + square), (1 - square) / (1 + square)


@_sin_cos.vjp
def _sin_cos_gradient(angles, cotangents, sin_cos):
    """The derivative from the values, because MLX's own goes through a float32 cosine."""
    (d_sin, d_cos), (sin, cos) = cotangents, sin_cos
    with mx.stream(mx.cpu):
        return d_sin * cos - d_cos * sin


def _exp(x):
    """The exponential function, which MLX computes in float32 even of float64 (its issue 3047)."""
    return mx.expm1(x) + 1 if x.dtype == mx.float64 else mx.exp(x)


def _positions(n_q, n_k):
    """Where queries and keys stand: the last query at the last key."""
    return mx.arange(n_k - n_q, n_k, dtype=mx.int64), mx.arange(n_k, dtype=mx.int64)


def _split_heads(x, num_heads):
    """Cut the width into heads and make the heads a batch axis, `(*batch, h, n, d_h)`."""
    return mx.unflatten(x, -1, (num_heads, x.shape[-1] // num_heads)).swapaxes(-3, -2)


def _zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    return x if mask is None else mx.where(mx.any(mask, axis=-2)[..., None], x, 0)


def _dropout(x, dropout_rate, rng):
    """Set entries to zero at random and scale the others, so that the mean stays."""
    _check_rng(rng)
    if rng is None or dropout_rate == 0:
        return x
    keep = mx.random.uniform(shape=x.shape, key=rng) >= dropout_rate
    return x * keep / (1 - dropout_rate)


def _check_rng(rng):
    is_key = isinstance(rng, mx.array) and rng.dtype == mx.uint32 and rng.shape == (2,)
    contract.rng(rng, rng is None or is_key, "key from mx.random.key")


def _has_values(x):
    """Whether `x` can be evaluated, which `mx.compile` and `mx.vmap` forbid."""
    try:
        mx.eval(x)
    except ValueError:
        return False
    return True
