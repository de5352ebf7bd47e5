"""The MXNet port: attention and sinusoidal encoding with Gluon blocks.

Seen working with MXNet 1.9.1 under Python 3.8 and NumPy 1.23. MXNet was retired by its project in 2023:
this is for models that still run on it.
Arrays are `mxnet.np.ndarray`; no call of `npx.set_np` is needed, and none is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mxnet
import numpy
from mxnet import gluon, np
from mxnet.util import use_np

from posattn import contract

__all__ = [
    "MultiHeadAttention",
    "PositionalEncoding",
    "length_mask",
    "masked_softmax",
    "scaled_dot_product_attention",
    "sinusoidal_encoding",
]


@use_np
class MultiHeadAttention(gluon.Block):
    """Several attentions side by side, each in its own projection of the input.

    Port of :class:`posattn.reference.MultiHeadAttention`.
    `query`, `key`, `value` and `output` are `gluon.nn.Dense`, whose weight is `(out, in)` as PyTorch's:
    `layer.query.weight.set_data(np.array(weight))`.
    They are initialised when the layer is made, on the current context; `reset_ctx` moves them.
    MXNet multiplies float16 matrices on GPUs only, and so does the layer.
    Dropout acts when `rng`, a NumPy generator, is given to the call, not under `autograd.train_mode`.
    `rotate` and `bias` are functions of positions, or blocks with parameters of their own.

    Examples:
        >>> layer = MultiHeadAttention(8, 2)
        >>> x = np.ones((3, 5, 8))
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
        dtype: str | type | None = None,
        rng: numpy.random.Generator | None = None,
    ):
        super().__init__()
        self.dim = contract.integer("dim", dim, least=1)
        self.num_heads = contract.heads(num_heads, self.dim)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.rotate, self.bias = rotate, bias
        self.scale = None if scale is None else contract.scale(scale)
        _check_rng(rng)
        bound = math.sqrt(3 / self.dim)
        for role in ("query", "key", "value", "output"):
            dense = gluon.nn.Dense(
                self.dim, use_bias=use_bias, flatten=False, in_units=self.dim
            )
            dense.initialize(mxnet.init.Uniform(bound))
            dense.cast("float32" if dtype is None else dtype)  # MXNet draws only float32
            if rng is not None:
                drawn = rng.uniform(-bound, bound, (self.dim, self.dim))
                dense.weight.set_data(np.array(drawn, dtype=dense.weight.dtype))
            setattr(self, role, dense)

    def __call__(
        self,
        query: np.ndarray,
        key: np.ndarray,
        value: np.ndarray,
        *,
        mask: np.ndarray | None = None,
        causal: bool = False,
        bias: np.ndarray | None = None,
        key_positions: np.ndarray | None = None,
        rng: numpy.random.Generator | None = None,
    ) -> np.ndarray:
        """Attend from `query`, `(*batch, n_q, d)`, to `key` and mix `value`, `(*batch, n_k, d)`."""
        # blocks are called without keywords
        given = mask, causal, bias, key_positions, rng
        return super().__call__(query, key, value, *given)

    def forward(self, query, key, value, mask, causal, bias, key_positions, rng):
        """Compute what calling the layer returns."""
        contract.layer_inputs(query, key, value, self.dim)
        contract.floating("query", query, like=self.query.weight, owner="the weights")
        n_q, n_k = query.shape[-2], key.shape[-2]
        contract.mask(mask, (*query.shape[:-1], n_k))
        contract.bias(bias, (*query.shape[:-2], self.num_heads, n_q, n_k))
        contract.attention_positions(None, key_positions, query.shape[:-2], n_q, n_k)
        if key_positions is None:
            query_positions, key_positions = _positions(query, key)
        else:
            query_positions = key_positions[..., n_k - n_q :]
        q = _split_heads(_project(self.query, query), self.num_heads)
        k = _split_heads(_project(self.key, key), self.num_heads)
        v = _split_heads(_project(self.value, value), self.num_heads)
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
        return _project(self.output, np.swapaxes(heads, -3, -2).reshape(query.shape))


@use_np
class PositionalEncoding(gluon.Block):
    """Add to each token the sinusoidal encoding of its position.

    Port of :class:`posattn.reference.PositionalEncoding`.
    The result has the dtype of `x`; dropout acts when `rng` is given, not under `autograd.train_mode`.

    Examples:
        >>> layer = PositionalEncoding(4)
        >>> layer(np.zeros((1, 2, 4))).round(4)
        array([[[0.    , 1.    , 0.    , 1.    ],
                [0.8415, 0.5403, 0.01  , 1.    ]]])
    """

    def __init__(self, dim: int, *, dropout_rate: float = 0.0, base: float = 10000.0):
        super().__init__()
        self.dim = contract.integer("dim", dim, least=1)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.base = contract.base(base)

    def __call__(
        self,
        x: np.ndarray,
        *,
        positions: np.ndarray | None = None,
        rng: numpy.random.Generator | None = None,
    ) -> np.ndarray:
        """Add the encoding to `x`, `(*batch, n, d)`, of any length."""
        return super().__call__(x, positions, rng)

    def forward(self, x, positions, rng):
        """Compute what calling the layer returns."""
        contract.sequence("x", x, self.dim)
        contract.positions_of(x.shape, positions)
        where = x.shape[-2] if positions is None else positions
        encoding = sinusoidal_encoding(where, self.dim, base=self.base, dtype=x.dtype)
        return _dropout(x + encoding.as_in_ctx(x.ctx), self.dropout_rate, rng)


@use_np
def length_mask(lengths: np.ndarray, n_k: int) -> np.ndarray:
    """Let queries attend to the first keys only, as many as `lengths` says.

    Port of :func:`posattn.reference.length_mask`: `lengths` `(batch)` or `(batch, n_q)`, the result
    `(batch, 1, n_k)` or `(batch, n_q, n_k)`.

    Examples:
        >>> length_mask(np.array([3, 1], dtype="int64"), 4)[:, 0]
        array([[ True,  True,  True, False],
               [ True, False, False, False]])
    """
    n_k = contract.integer("n_k", n_k)
    contract.lengths(lengths, n_k)
    per_query = lengths[:, None] if lengths.ndim == 1 else lengths
    columns = np.arange(n_k, dtype="int64", ctx=lengths.ctx)
    return columns < per_query.astype("int64")[..., None]


@use_np
def masked_softmax(scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Normalise scores over the keys that may be attended to.

    Port of :func:`posattn.reference.masked_softmax`: `(*batch, n_q, n_k)` in and out, the mask of a
    shape that broadcasts to it.

    Examples:
        >>> mask = np.array([[True, True, False], [False, False, False]], dtype=bool)
        >>> masked_softmax(np.zeros((2, 3)), mask)
        array([[0.5, 0.5, 0. ],
               [0. , 0. , 0. ]])
    """
    contract.scores(scores)
    contract.mask(mask, scores.shape)
    if scores.size == 0:
        return scores
    if mask is not None:
        scores = _where(mask, scores, -math.inf)
    peak = np.max(scores.detach(), axis=-1, keepdims=True)
    exp = np.exp(scores - np.maximum(peak, float(numpy.finfo(scores.dtype).min)))
    total = np.sum(exp, axis=-1, keepdims=True)
    return exp / _where(total != 0, total, 1)


@use_np
def scaled_dot_product_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    mask: np.ndarray | None = None,
    causal: bool = False,
    bias: np.ndarray | Callable | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    rng: numpy.random.Generator | None = None,
) -> np.ndarray:
    """Replace each query by a weighted mean of the values.

    Port of :func:`posattn.reference.scaled_dot_product_attention`: `(*batch, n_q, d)`,
    `(*batch, n_k, d)` and `(*batch, n_k, d_v)` give `(*batch, n_q, d_v)`.
    Products of float16 are computed in float32; a function as `bias` gets int64 positions.

    Examples:
        >>> x, value = np.eye(2), np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> scaled_dot_product_attention(x, x, value, causal=True, scale=0.0)
        array([[1. , 0. ],
               [0.5, 1. ]])
    """
    contract.attention(query, key, value)
    query_positions, key_positions = _positions(query, key)
    if callable(bias):
        bias = bias(query_positions, key_positions)
    shape = (*query.shape[:-1], key.shape[-2])
    contract.mask(mask, shape)
    contract.bias(bias, shape)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    _check_rng(rng)
    contract.dropout_rate(dropout_rate)
    if causal:
        future_hidden = key_positions <= query_positions[:, None]
        mask = future_hidden if mask is None else mask * future_hidden  # & cannot broadcast
    key, value = _zero_unattended(key, mask), _zero_unattended(value, mask)
    narrow, wide = query.dtype, numpy.promote_types(query.dtype, "float32")
    scores = np.matmul(query.astype(wide), np.swapaxes(key, -2, -1).astype(wide)) * scale
    if bias is not None:
        scores = scores + bias.astype(wide)
    weights = _dropout(masked_softmax(scores, mask).astype(narrow), dropout_rate, rng)
    return np.matmul(weights.astype(wide), value.astype(wide)).astype(narrow)


@use_np
def sinusoidal_encoding(
    length_or_positions: int | np.ndarray,
    dim: int,
    *,
    base: float = 10000.0,
    dtype: str | type | None = None,
) -> np.ndarray:
    """One row of sines and cosines per position.

    Port of :func:`posattn.reference.sinusoidal_encoding`: `(n, d)`, or `(*batch, n, d)` from positions
    `(*batch, n)`.
    Angles are float64 until the sines are taken; the result has `dtype`, or float32.

    Examples:
        >>> sinusoidal_encoding(2, 4).round(4)
        array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    length = contract.length_or_positions(length_or_positions)
    dim = contract.integer("dim", dim, least=1)
    base = contract.base(base)
    positions = (
        np.arange(length, dtype="int64") if length is not None else length_or_positions
    )
    frequencies = [base ** (-j / dim) for j in range(0, dim, 2)]
    frequencies = np.array(frequencies, dtype="float64", ctx=positions.ctx)
    angles = positions.astype("float64")[..., None] * frequencies
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    columns = pairs.reshape((*positions.shape, 2 * frequencies.size))
    return columns[..., :dim].astype("float32" if dtype is None else dtype)


def _positions(query, key):
    """Where queries and keys stand: the last query at the last key."""
    n_q, n_k = query.shape[-2], key.shape[-2]
    like = {"dtype": "int64", "ctx": query.ctx}
    return np.arange(n_k - n_q, n_k, **like), np.arange(n_k, **like)


def _project(dense, x):
    """Apply a square layer, but not to an empty array, on which MXNet fails."""
    return dense(x) if x.size else x


def _split_heads(x, num_heads):
    """Cut the width into heads and make the heads a batch axis, `(*batch, h, n, d_h)`."""
    *batch, n, d = x.shape
    return np.swapaxes(x.reshape((*batch, n, num_heads, d // num_heads)), -3, -2)


def _zero_unattended(x, mask):
    """Zero the keys that no query may attend to: nothing in them, NaN included, reaches a result."""
    return x if mask is None else _where(mask.any(axis=-2)[..., None], x, 0)


def _where(mask, x, number):
    """Put `number` where the mask is False, as an array (MXNet's issue 17893: wrong gradients)."""
    if x.size == 0:  # which would end the process
        return x
    return np.where(mask, x, np.array([number], dtype=x.dtype, ctx=x.ctx))


def _dropout(x, dropout_rate, rng):
    """Set entries to zero at random and scale the others, so that the mean stays."""
    _check_rng(rng)
    if rng is None or dropout_rate == 0:
        return x
    keep = np.array(rng.random(x.shape) >= dropout_rate, dtype=x.dtype, ctx=x.ctx)
    return x * keep / (1 - dropout_rate)


def _check_rng(rng):
    accepted = rng is None or isinstance(rng, numpy.random.Generator)
    contract.rng(rng, accepted, "numpy.random.Generator")
