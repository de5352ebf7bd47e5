"""Multi-head attention: several attentions side by side, each in its own projection."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Real

from posattn import contract
from posattn.jax.attention import (
    Bias,
    attention_weights,
    biases,
    is_key,
    positions_of,
    scaled_dot_product_attention,
)
from posattn.jax.cache import KVCache, within
from posattn.jax.plugged import as_pytree

__all__ = ["MultiHeadAttention", "merge_heads", "split_heads"]

Rotation = Callable | Sequence[Callable | None]
Positions = Real[Array | np.ndarray, "*#batch n"]


def split_heads(
    x: Float[Array, "*batch n d"], num_heads: int
) -> Float[Array, "*batch h n d_h"]:
    """Cut the width into heads and make the heads a batch axis.

    Twin of :func:`posattn.reference.split_heads`.

    Args:
        x: `(*batch, n, d)`.
        num_heads: the number of heads, a divisor of $d$.

    Returns:
        `(*batch, h, n, d / h)`.

    Raises:
        TypeError: if `x` is not floating or `num_heads` is not an integer.
        ValueError: if `x` has fewer than two axes or `num_heads` does not divide its width.

    Examples:
        >>> split_heads(jnp.array([[0.0, 1.0, 2.0, 3.0]]), 2)
        Array([[[0., 1.]],
        <BLANKLINE>
               [[2., 3.]]], dtype=float32)
    """
    contract.sequence("x", x)
    *batch, n, d = x.shape
    num_heads = contract.heads(num_heads, d)
    return x.reshape(*batch, n, num_heads, d // num_heads).swapaxes(-3, -2)


def merge_heads(x: Float[Array, "*batch h n d_h"]) -> Float[Array, "*batch n d"]:
    """Put the heads back side by side: the inverse of `split_heads`.

    Twin of :func:`posattn.reference.merge_heads`.

    Args:
        x: `(*batch, h, n, d_h)`.

    Returns:
        `(*batch, n, h * d_h)`.

    Raises:
        TypeError: if `x` is not floating.
        ValueError: if `x` has fewer than three axes.

    Examples:
        >>> merge_heads(jnp.array([[[0.0, 1.0]], [[2.0, 3.0]]]))
        Array([[0., 1., 2., 3.]], dtype=float32)
    """
    contract.head_sequence("x", x)
    *batch, num_heads, n, head_dim = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, n, num_heads * head_dim)


@register_dataclass
@dataclass(frozen=True, eq=False)
class MultiHeadAttention:
    """Several attentions side by side, each in its own projection of the input.

    Twin of :class:`posattn.reference.MultiHeadAttention`; a pytree.
    What is plugged in is part of the tree, so it may be a pytree with parameters of its own, or a method
    of one.
    Any other callable is a constant of the tree, and equal to one that is made equal:
    a `functools.partial` with equal arguments, arrays among them.

    Make a layer with `MultiHeadAttention.init(rng, dim, num_heads)`, or from weights that exist.

    Args:
        query_weight: `(d, h * d_h)`; `x @ weight` projects.
        key_weight: `(d_kv, h_kv * d_h)`.
        value_weight: `(d_kv, h_kv * d_h)`.
        output_weight: `(h * d_h, d)`.
        query_bias: `(h * d_h)`, or None for a projection without an offset; likewise the next three.
        key_bias: `(h_kv * d_h)` or None.
        value_bias: `(h_kv * d_h)` or None.
        output_bias: `(d)` or None.
        num_heads: the number of heads of queries.
        dropout_rate: probability in [0, 1) of dropping an attention weight.
        rotate: None, a function `(x, positions) -> x`, or a pair of them for queries and keys.
        bias: None, an array, a function `(query_positions, key_positions) -> (h, n_q, n_k)`, an
            object with a method `scores`, or a list of those, which are added up.
        scale: the factor on the products of queries and keys, one over the root of `d_h` if None.
        num_kv_heads: the number of heads of keys and values, a divisor of `num_heads`; that if None.
        query_norm: None, or a function of the queries of each head, before they are rotated.
        key_norm: likewise for keys.

    Examples:
        >>> from posattn.jax import Rotary
        >>> layer = MultiHeadAttention.init(jax.random.key(0), 8, 2, rotate=Rotary())
        >>> x = jnp.ones((3, 5, 8))
        >>> jax.jit(layer)(x).shape
        (3, 5, 8)
    """

    query_weight: Float[Array, "d width"]
    key_weight: Float[Array, "d_kv width_kv"]
    value_weight: Float[Array, "d_kv width_kv"]
    output_weight: Float[Array, "width d"]
    query_bias: Float[Array, " width"] | None = None
    key_bias: Float[Array, " width_kv"] | None = None
    value_bias: Float[Array, " width_kv"] | None = None
    output_bias: Float[Array, " d"] | None = None
    num_heads: int = field(default=1, metadata={"static": True})
    dropout_rate: float = field(default=0.0, metadata={"static": True})
    rotate: Rotation | None = None
    bias: Bias | Sequence[Bias] | None = None
    scale: float | None = field(default=None, metadata={"static": True})
    num_kv_heads: int | None = field(default=None, metadata={"static": True})
    query_norm: Callable | None = None
    key_norm: Callable | None = None

    def __post_init__(self):
        shared = contract.kv_heads(self.num_kv_heads, self.num_heads)
        object.__setattr__(self, "num_kv_heads", shared)
        for name in ("rotate", "bias", "query_norm", "key_norm"):
            object.__setattr__(self, name, as_pytree(getattr(self, name)))

    @classmethod
    def init(
        cls,
        rng: Array,
        dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        kv_dim: int | None = None,
        use_bias: bool = False,
        use_output_bias: bool | None = None,
        query_norm: Callable | None = None,
        key_norm: Callable | None = None,
        dropout_rate: float = 0.0,
        rotate: Rotation | None = None,
        bias: Bias | Sequence[Bias] | None = None,
        scale: float | None = None,
        dtype: DTypeLike | None = None,
    ) -> "MultiHeadAttention":
        """Draw the weights uniformly, within the bounds of Glorot.

        Twin of :meth:`posattn.reference.MultiHeadAttention.init`.

        Args:
            rng: a JAX key, where the weights are drawn from.
            dim: the width $d$ of queries and output, at least 1.
            num_heads: the number of heads of queries.
            num_kv_heads: the number of heads of keys and values, a divisor of `num_heads`; that if not
                given.
            head_dim: the width of a head; `dim / num_heads` if not given.
            kv_dim: the width of keys and values; `dim` if not given.
            use_bias: give queries, keys and values an offset, which starts at zero.
            use_output_bias: likewise the output; as `use_bias` if not given.
            query_norm: a function of the queries of each head, `(*batch, h, n, d_h)`, before they
                are rotated.
            key_norm: likewise for keys.
            dropout_rate: probability in [0, 1) of dropping an attention weight.
            rotate: acts on queries and keys, `(x, positions) -> x`, or a pair of functions.
            bias: is added to the scores: an array, a function
                `(query_positions, key_positions) -> (h, n_q, n_k)`, an object with a method
                `scores`, or a list of those.
            scale: the factor on the products of queries and keys, one over the root of `head_dim` if
                not given.
            dtype: of the weights; JAX's default one if not given.

        Returns:
            The layer.

        Raises:
            TypeError: if `rng` is no key or a number is not of its kind.
            ValueError: if a number lies outside its range or does not divide what it should.
        """
        dim = contract.integer("dim", dim, least=1)
        if head_dim is None:
            num_heads = contract.heads(num_heads, dim)
            head_dim = dim // num_heads
        num_heads = contract.integer("num_heads", num_heads, least=1)
        head_dim = contract.integer("head_dim", head_dim, least=1)
        num_kv_heads = contract.kv_heads(num_kv_heads, num_heads)
        kv_dim = dim if kv_dim is None else contract.integer("kv_dim", kv_dim, least=1)
        dropout_rate = contract.dropout_rate(dropout_rate)
        contract.rng(rng, is_key(rng), "JAX key")
        dtype = jnp.result_type(float if dtype is None else dtype)
        width, shared = num_heads * head_dim, num_kv_heads * head_dim
        shapes = (dim, width), (kv_dim, shared), (kv_dim, shared), (width, dim)
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        drawn = jnp.split(jax.random.uniform(rng, (ends[-1],), dtype, -1, 1), ends[:-1])
        weights = (
            part.reshape(shape) * math.sqrt(6 / sum(shape))
            for part, shape in zip(drawn, shapes, strict=True)
        )
        offset_of_output = use_bias if use_output_bias is None else use_output_bias
        offsets = (
            jnp.zeros(shape[1], dtype) if used else None
            for shape, used in zip(shapes, [use_bias] * 3 + [offset_of_output], strict=True)
        )
        return cls(
            *weights,
            *offsets,
            num_heads,
            dropout_rate,
            rotate,
            bias,
            None if scale is None else contract.scale(scale),
            num_kv_heads,
            query_norm,
            key_norm,
        )

    def __call__(
        self,
        query: Float[Array, "*batch n_q d"],
        key: Float[Array, "*batch n_k d_kv"] | None = None,
        value: Float[Array, "*batch n_k d_kv"] | None = None,
        *,
        mask: Bool[Array, "*#batch_and_heads #n_q n_keys"] | None = None,
        causal: bool = False,
        bias: Bias | Sequence[Bias] | None = None,
        query_positions: Positions | None = None,
        key_positions: Positions | None = None,
        cache: KVCache | None = None,
        rng: Array | None = None,
    ) -> Float[Array, "*batch n_q d"] | tuple[Float[Array, "*batch n_q d"], KVCache]:
        """Attend from `query` to `key` and mix `value`.

        Twin of calling :class:`posattn.reference.MultiHeadAttention`.

        Args:
            query: `(*batch, n_q, d)`.
            key: `(*batch, n_k, d_kv)`; the queries themselves if not given (self-attention).
            value: `(*batch, n_k, d_kv)`; the keys if not given.
            mask: bool, True means may attend; its shape broadcasts to `(*batch, n_q, n_k)`, or with
                one axis more than `query` to `(*batch, h, n_q, n_k)`.
            causal: hide the future; queries are aligned to the end of the keys.
            bias: is added to the scores of this call, of the kinds that `init` takes.
            query_positions: where the queries stand, in tokens, `(n_q)` or `(*batch, n_q)`; if not
                given, at the last `n_q` positions of the keys. Only `rotate` and biases use positions,
                and a cache.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; if not given, where the
                queries stand in self-attention, and else from 0 on.
            cache: the tokens so far. The queries are appended to it, each attends to the tokens up to
                its own, `key` and `value` are None, and `mask` broadcasts to the slots (with a window
                and several queries: the slots and then the new tokens). A negative position marks
                padding, which nobody attends to.
            rng: a JAX key where dropout draws from; None means no dropout.

        Returns:
            `(*batch, n_q, d)`; the offset of the output projection (or zero) where a query may attend
            to nothing. With a cache, this and the new cache.

        Raises:
            TypeError: if an array is missing or has a wrong or different dtype.
            ValueError: if shapes do not fit, or a position has no place in the cache.
        """
        if cache is not None:
            contract.cached(key, value)
        q, k, v = self._heads(query, key, value)
        if cache is None:
            where = query_positions, key_positions
            q, k, seen = self._placed(q, k, mask, causal, bias, where, key is None)
        else:
            q, k, v, seen, lost, cache = self._cached(
                q, k, v, mask, bias, query_positions, cache
            )
        heads = scaled_dot_product_attention(
            q, k, v, dropout_rate=self.dropout_rate, rng=rng, **seen
        )
        if cache is not None:
            heads = jnp.where(lost[..., None, :, None], jnp.nan, heads)
        out = _affine(merge_heads(heads), self.output_weight, self.output_bias)
        return out if cache is None else (out, cache)

    def attention_weights(
        self,
        query: Float[Array, "*batch n_q d"],
        key: Float[Array, "*batch n_k d_kv"] | None = None,
        *,
        mask: Bool[Array, "*#batch_and_heads #n_q n_k"] | None = None,
        causal: bool = False,
        bias: Bias | Sequence[Bias] | None = None,
        query_positions: Positions | None = None,
        key_positions: Positions | None = None,
    ) -> Float[Array, "*batch h n_q n_k"]:
        """How much each query attends to each key, in each head.

        Twin of :meth:`posattn.reference.MultiHeadAttention.attention_weights`.

        Args:
            query: `(*batch, n_q, d)`.
            key: `(*batch, n_k, d_kv)`; the queries themselves if not given.
            mask: True means may attend; this and the others are those of a call of the layer.
            causal: hide the future.
            bias: is added to the scores.
            query_positions: where the queries stand.
            key_positions: where the keys stand.

        Returns:
            The weights, `(*batch, h, n_q, n_k)`, before dropout.

        Raises:
            TypeError: if an array is missing or has a wrong or different dtype.
            ValueError: if shapes do not fit.
        """
        q, k, _ = self._heads(query, key, None)
        where = query_positions, key_positions
        q, k, seen = self._placed(q, k, mask, causal, bias, where, key is None)
        return attention_weights(q, k, **seen)

    def _heads(self, query, key, value):
        """The heads of queries, keys and values, the first two with their norms."""
        key = query if key is None else key
        value = key if value is None else value
        dim, kv_dim = self.query_weight.shape[0], self.key_weight.shape[0]
        contract.layer_inputs(query, key, value, dim, kv_dim)
        contract.floating("query", query, like=self.query_weight, owner="the weights")
        many, few = self.num_heads, self.num_kv_heads
        q = split_heads(_affine(query, self.query_weight, self.query_bias), many)
        k = split_heads(_affine(key, self.key_weight, self.key_bias), few)
        v = split_heads(_affine(value, self.value_weight, self.value_bias), few)
        q = q if self.query_norm is None else self.query_norm(q)
        return q, k if self.key_norm is None else self.key_norm(k), v

    def _placed(self, q, k, mask, causal, bias, where, alone):
        """The heads of queries and keys, rotated, and what decides who attends to whom."""
        if alone and where[1] is None:
            where = where[0], where[0]
        where = positions_of(q, k, *where)
        seen = self._options(q, k, mask, bias, *where) | {"causal": causal}
        return self._turn(0, q, where[0]), self._turn(1, k, where[1]), seen

    def _cached(self, q, k, v, mask, bias, positions, cache):
        """The same with a cache, and the values, which queries have no place in it, and the cache."""
        *batch, _, n, _ = q.shape
        if positions is None:
            positions = cache.next_positions(n)
        contract.cache_positions(positions, tuple(batch), n)
        positions = jnp.broadcast_to(positions, (*batch, n))
        k = self._turn(1, k, positions) if cache.turned else k
        full = cache.append(k, v, positions)
        keys, values, stored = full.key, full.value, full.positions
        if cache.window and n > 1:  # a chunk may overwrite what its first queries need
            keys = jnp.concatenate([cache.key, k], axis=-2)
            values = jnp.concatenate([cache.value, v], axis=-2)
            stored = jnp.concatenate([cache.positions, positions], axis=-1)
        keys = keys if cache.turned else self._turn(1, keys, stored)
        where = [jnp.maximum(p, 0) for p in (positions, stored)]  # a bias needs places
        seen = self._options(q, keys, mask, bias, *where)
        own = within(positions, stored, cache.window)[..., None, :, :]
        seen["mask"] = own if mask is None else own & seen["mask"]
        q = self._turn(0, q, positions)
        return q, keys, values, seen, cache.beyond(positions), full

    def _options(self, q, k, mask, bias, query_positions, key_positions):
        """The options of an attention, the mask with an axis of heads."""
        *batch, _, n_q, _ = q.shape
        contract.layer_mask(mask, (*batch, n_q, 1), self.num_heads, k.shape[-2])
        if mask is not None and mask.ndim < q.ndim:
            mask = mask[..., None, :, :]
        parts = [*biases(self.bias), *biases(bias)]
        return {"mask": mask, "bias": parts, "scale": self.scale,
                "query_positions": query_positions, "key_positions": key_positions}  # fmt: skip

    def _turn(self, of, x, positions):
        """Rotate the heads of queries (0) or keys (1)."""
        pair = isinstance(self.rotate, list | tuple)
        rotate = self.rotate[of] if pair else self.rotate
        return x if rotate is None else rotate(x, positions[..., None, :])


def _affine(x, weight, bias):
    return x @ weight if bias is None else x @ weight + bias
