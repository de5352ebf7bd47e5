"""The TensorFlow port: attention and sinusoidal encoding with Keras layers.

Seen working with TensorFlow 2.21 and Keras 3.15: eagerly, in `tf.function` with unknown batch and
length, compiled by XLA, and in functional Keras models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import keras
import tensorflow as tf

from posattn import contract

__all__ = [
    "MultiHeadAttention",
    "PositionalEncoding",
    "length_mask",
    "masked_softmax",
    "scaled_dot_product_attention",
    "sinusoidal_encoding",
]


@keras.saving.register_keras_serializable("posattn")
class MultiHeadAttention(keras.layers.Layer):
    """Several attentions side by side, each in its own projection of the input.

    Port of :class:`posattn.reference.MultiHeadAttention`.
    `query`, `key`, `value` and `output` are :class:`keras.layers.Dense`, whose kernel is `(in, out)`:
    PyTorch's `query.weight` goes in transposed, `layer.query.kernel.assign(weight.T)`, and its
    `query.bias` as it is.
    Dropout acts when `rng` is given to the call, not in `training` mode; masks that Keras layers
    attach to their results are not read.
    `rotate` and `bias` are functions of positions, or layers with weights of their own.

    Examples:
        >>> layer = MultiHeadAttention(8, 2)
        >>> x = tf.ones((3, 5, 8))
        >>> layer(x, x, x, causal=True).shape
        TensorShape([3, 5, 8])
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
        dtype: tf.DType | str | None = None,
        rng: tf.random.Generator | None = None,
    ):
        super().__init__(dtype=dtype, autocast=False)  # else positions would be cast too
        self.dim = contract.integer("dim", dim, least=1)
        self.num_heads = contract.heads(num_heads, self.dim)
        self.use_bias = use_bias
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.rotate, self.bias = rotate, bias
        self.scale = None if scale is None else contract.scale(scale)
        _check_rng(rng)
        bound = math.sqrt(3 / self.dim)  # that of Glorot
        draw = rng and partial(rng.uniform, minval=-bound, maxval=bound)
        for role in ("query", "key", "value", "output"):
            dense = keras.layers.Dense(
                self.dim,
                use_bias=use_bias,
                kernel_initializer=draw or "glorot_uniform",
                dtype=self.dtype_policy,
                name=role,
            )
            dense.build((None, self.dim))
            setattr(self, "_output" if role == "output" else role, dense)
        self.built = True

    @property
    def output(self) -> keras.layers.Dense:
        """The last projection; elsewhere Keras so calls the result of a symbolic call."""
        return self._output

    def __call__(
        self,
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        *,
        mask: tf.Tensor | None = None,
        causal: bool = False,
        bias: tf.Tensor | None = None,
        key_positions: tf.Tensor | None = None,
        rng: tf.random.Generator | None = None,
        **context,
    ) -> tf.Tensor:
        """Attend from `query`, `(*batch, n_q, d)`, to `key` and mix `value`, `(*batch, n_k, d)`."""
        # the input is checked here, because Keras rewrites what `call` raises
        contract.layer_inputs(_shown(query), _shown(key), _shown(value), self.dim)
        if self.compute_dtype == self.variable_dtype:  # else the projections cast
            contract.floating("query", query, like=self.query.kernel, owner="the weights")
        (*batch, n_q, _), n_k = _shown(query).shape, _shown(key).shape[-2]
        contract.mask(_shown(mask), (*batch, n_q, n_k))
        contract.bias(_shown(bias), (*batch, self.num_heads, n_q, n_k))
        contract.attention_positions(None, _shown(key_positions), batch, n_q, n_k)
        _check_rng(rng)
        given = {"mask": mask, "causal": causal, "bias": bias, "rng": rng}
        given |= {"key_positions": key_positions} | context
        return super().__call__(query, key, value, **given)

    def call(self, query, key, value, mask, causal, bias, key_positions, rng):
        """Compute what calling the layer returns."""
        if key_positions is None:
            query_positions, key_positions = _positions(query, key)
        else:
            skipped = tf.shape(key)[-2] - tf.shape(query)[-2]
            query_positions = key_positions[..., skipped:]
        q, k, v = (
            tf.stack(tf.split(x, self.num_heads, -1), -3)  # (*batch, h, n, d_h)
            for x in (self.query(query), self.key(key), self.value(value))
        )
        if self.rotate is not None:
            q = self.rotate(q, query_positions[..., None, :])
            k = self.rotate(k, key_positions[..., None, :])
        if self.bias is not None:
            own = self.bias(query_positions, key_positions)
            bias = own if bias is None else tf.cast(bias, own.dtype) + own
        mask = None if mask is None else mask[..., None, :, :]
        drop = {"dropout_rate": self.dropout_rate, "rng": rng}
        heads = scaled_dot_product_attention(
            q, k, v, mask=mask, causal=causal, bias=bias, scale=self.scale, **drop
        )
        return self.output(tf.concat(tf.unstack(heads, axis=-3), -1))

    def compute_mask(self, inputs, previous_mask):
        """Attach no mask to the result: `mask` is about pairs of tokens."""

    def get_config(self):
        """Say how to make the layer again, for a saved model."""
        names = ("dim", "num_heads", "use_bias", "dropout_rate", "rotate", "bias", "scale")
        config = {name: getattr(self, name) for name in names}
        return keras.saving.serialize_keras_object({**config, "dtype": self.dtype_policy})

    @classmethod
    def from_config(cls, config):
        """Make the layer again."""
        return cls(**keras.saving.deserialize_keras_object(config))


@keras.saving.register_keras_serializable("posattn")
class PositionalEncoding(keras.layers.Layer):
    """Add to each token the sinusoidal encoding of its position.

    Port of :class:`posattn.reference.PositionalEncoding`.
    The result has the dtype of `x`, whatever Keras's policy; dropout acts when `rng` is given.

    Examples:
        >>> layer = PositionalEncoding(4)
        >>> layer(tf.zeros((1, 2, 4))).numpy().round(4)
        array([[[0.    , 1.    , 0.    , 1.    ],
                [0.8415, 0.5403, 0.01  , 1.    ]]], dtype=float32)
    """

    def __init__(self, dim: int, *, dropout_rate: float = 0.0, base: float = 10000.0):
        super().__init__(autocast=False)
        self.dim = contract.integer("dim", dim, least=1)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.base = contract.base(base)
        self.supports_masking = True  # one row per token remains

    def __call__(self, x, *, positions=None, rng=None, **context):
        """Add the encoding to `x`, `(*batch, n, d)`, of any length."""
        # the input is checked here, because Keras rewrites what `call` raises
        contract.sequence("x", _shown(x), self.dim)
        contract.positions_of(_shown(x).shape, _shown(positions))
        _check_rng(rng)
        return super().__call__(x, positions=positions, rng=rng, **context)

    def call(self, x, positions, rng):
        """Compute what calling the layer returns."""
        where = tf.range(tf.shape(x)[-2]) if positions is None else positions
        encoding = sinusoidal_encoding(where, self.dim, base=self.base, dtype=x.dtype)
        return _dropout(x + encoding, self.dropout_rate, rng)

    def get_config(self):
        """Say how to make the layer again, for a saved model."""
        return {"dim": self.dim, "dropout_rate": self.dropout_rate, "base": self.base}


def length_mask(lengths: tf.Tensor, n_k: int) -> tf.Tensor:
    """Let queries attend to the first keys only, as many as `lengths` says.

    Port of :func:`posattn.reference.length_mask`: `lengths` `(batch)` or `(batch, n_q)`, the result
    `(batch, 1, n_k)` or `(batch, n_q, n_k)`.
    Under `tf.function` the values of `lengths` are not checked, and `n_k` may be a scalar tensor.

    Examples:
        >>> length_mask(tf.constant([3, 1]), 4)[:, 0].numpy()
        array([[ True,  True,  True, False],
               [ True, False, False, False]])
    """
    n_k = n_k if tf.is_symbolic_tensor(n_k) else contract.integer("n_k", n_k)
    known = tf.executing_eagerly()
    read = lengths.numpy() if known and tf.is_tensor(lengths) else _shown(lengths)
    contract.lengths(read, n_k, known=known)
    per_query = lengths[:, None] if len(lengths.shape) == 1 else lengths
    return tf.range(n_k, dtype=tf.int64) < tf.cast(per_query, tf.int64)[..., None]


def masked_softmax(scores: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
    """Normalise scores over the keys that may be attended to.

    Port of :func:`posattn.reference.masked_softmax`: `(*batch, n_q, n_k)` in and out, the mask of a
    shape that broadcasts to it.

    Examples:
        >>> masked_softmax(tf.zeros((2, 3)), tf.constant([[True, True, False], [False] * 3])).numpy()
        array([[0.5, 0.5, 0. ],
               [0. , 0. , 0. ]], dtype=float32)
    """
    contract.scores(_shown(scores))
    contract.mask(_shown(mask), _shown(scores).shape)
    scores = tf.convert_to_tensor(scores)
    if mask is not None:
        scores = tf.where(mask, scores, tf.constant(-math.inf, scores.dtype))
    peak = tf.stop_gradient(tf.reduce_max(scores, -1, keepdims=True))
    exp = tf.exp(scores - tf.maximum(peak, scores.dtype.min))
    total = tf.reduce_sum(exp, -1, keepdims=True)
    return exp / tf.where(total == 0, tf.ones_like(total), total)


def scaled_dot_product_attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    *,
    mask: tf.Tensor | None = None,
    causal: bool = False,
    bias: tf.Tensor | Callable | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    rng: tf.random.Generator | None = None,
) -> tf.Tensor:
    """Replace each query by a weighted mean of the values.

    Port of :func:`posattn.reference.scaled_dot_product_attention`: `(*batch, n_q, d)`,
    `(*batch, n_k, d)` and `(*batch, n_k, d_v)` give `(*batch, n_q, d_v)`.
    Half-precision scores are computed in float32; a function as `bias` gets int64 positions.

    Examples:
        >>> x, value = tf.eye(2), tf.constant([[1.0, 0.0], [0.0, 2.0]])
        >>> scaled_dot_product_attention(x, x, value, causal=True, scale=0.0).numpy()
        array([[1. , 0. ],
               [0.5, 1. ]], dtype=float32)
    """
    contract.attention(_shown(query), _shown(key), _shown(value))
    query_positions, key_positions = _positions(query, key)
    if callable(bias):
        bias = bias(query_positions, key_positions)
    shape = (*_shown(query).shape[:-1], _shown(key).shape[-2])
    contract.mask(_shown(mask), shape)
    contract.bias(_shown(bias), shape)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    _check_rng(rng)
    contract.dropout_rate(dropout_rate)
    if causal:
        future_hidden = key_positions <= query_positions[:, None]
        mask = future_hidden if mask is None else mask & future_hidden
    if mask is not None:  # what no query may attend to reaches no result, NaN included
        seen = tf.reduce_any(mask, -2)[..., None]
        key, value = (tf.where(seen, x, tf.zeros((), x.dtype)) for x in (key, value))
    wide = tf.float64 if query.dtype == tf.float64 else tf.float32
    scores = tf.matmul(tf.cast(query, wide), tf.cast(key, wide), transpose_b=True) * scale
    if bias is not None:
        scores += tf.cast(bias, wide)
    weights = tf.cast(masked_softmax(scores, mask), query.dtype)
    return tf.matmul(_dropout(weights, dropout_rate, rng), value)


def sinusoidal_encoding(
    length_or_positions: int | tf.Tensor,
    dim: int,
    *,
    base: float = 10000.0,
    dtype: tf.DType | str | None = None,
) -> tf.Tensor:
    """One row of sines and cosines per position.

    Port of :func:`posattn.reference.sinusoidal_encoding`: `(n, d)`, or `(*batch, n, d)` from positions
    `(*batch, n)`.
    Angles are float64 until the sines are taken; the result has `dtype`, or float32.
    Under `tf.function` the length may be a scalar tensor.

    Examples:
        >>> sinusoidal_encoding(2, 4).numpy().round(4)
        array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]], dtype=float32)
    """
    where = length_or_positions
    if tf.is_symbolic_tensor(where) and where.shape.rank == 0 and where.dtype.is_integer:
        where = tf.range(where)
    length = contract.length_or_positions(_shown(where))
    positions = where if length is None else tf.range(length)
    dim = contract.integer("dim", dim, least=1)
    base = contract.base(base)
    frequencies = tf.constant([base ** (-j / dim) for j in range(0, dim, 2)], tf.float64)
    angles = tf.cast(positions, tf.float64)[..., None] * frequencies
    pairs = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)
    columns = tf.reshape(pairs, tf.concat([tf.shape(positions), [-(-dim // 2) * 2]], 0))
    return tf.cast(columns[..., :dim], tf.float32 if dtype is None else dtype)


def _positions(query, key):
    """Where queries and keys stand: the last query at the last key."""
    n_q, n_k = tf.shape(query, tf.int64)[-2], tf.shape(key, tf.int64)[-2]
    return tf.range(n_k - n_q, n_k), tf.range(n_k)


def _dropout(x, dropout_rate, rng):
    """Set entries to zero at random and scale the others, so that the mean stays."""
    if rng is None or dropout_rate == 0:
        return x
    keep = rng.uniform(tf.shape(x)) >= dropout_rate
    return x * tf.cast(keep, x.dtype) / (1 - dropout_rate)


def _check_rng(rng):
    contract.rng(rng, isinstance(rng, tf.random.Generator | None), "tf.random.Generator")


class _Unknown:
    """A size that only the running graph knows: every comparison with it passes."""

    def __eq__(self, other):
        return True

    def __lt__(self, other):
        return False

    __gt__ = __lt__

    def __repr__(self):
        return "None"


def _shown(x):
    """What the contract reads of `x`: sizes that are unknown fit."""
    if None not in getattr(x, "shape", ()):
        return x
    shape = tuple(_Unknown() if size is None else size for size in x.shape)
    return SimpleNamespace(shape=shape, dtype=x.dtype)
