"""Multi-head attention: several attentions side by side, each in its own projection."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial, register_dataclass
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Real

from posattn import contract
from posattn.jax.attention import (
    attention_weights,
    dropout,
    is_key,
    mask_and_bias,
    scaled_dot_product_attention,
    zero_unattended,
)

__all__ = ["MultiHeadAttention", "merge_heads", "split_heads"]


def split_heads(
    x: Float[Array, "*batch n d"], num_heads: int
) -> Float[Array, "*batch h n d_h"]:
    """Cut the width into heads and make the heads a batch axis.

    Twin of :func:`posattn.reference.split_heads`.

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
    `rotate` and `bias` are part of the tree, so they may be pytrees with parameters of their own.
    A plain function must be wrapped in :class:`jax.tree_util.Partial`, as `init` does.

    Examples:
        >>> layer = MultiHeadAttention.init(jax.random.key(0), 8, 2)
        >>> x = jnp.ones((3, 5, 8))
        >>> jax.jit(layer)(x, x, x).shape
        (3, 5, 8)
    """

    query_weight: Float[Array, "d d"]
    key_weight: Float[Array, "d d"]
    value_weight: Float[Array, "d d"]
    output_weight: Float[Array, "d d"]
    query_bias: Float[Array, " d"] | None = None
    key_bias: Float[Array, " d"] | None = None
    value_bias: Float[Array, " d"] | None = None
    output_bias: Float[Array, " d"] | None = None
    num_heads: int = field(default=1, metadata={"static": True})
    dropout_rate: float = field(default=0.0, metadata={"static": True})
    rotate: Callable | tuple[Callable, Callable] | None = None
    bias: Callable | contract.ContentBias | None = None
    scale: float | None = field(default=None, metadata={"static": True})

    @classmethod
    def init(
        cls,
        rng: Array,
        dim: int,
        num_heads: int,
        *,
        use_bias: bool = False,
        dropout_rate: float = 0.0,
        rotate: Callable | tuple[Callable, Callable] | None = None,
        bias: Callable | contract.ContentBias | None = None,
        scale: float | None = None,
        dtype: DTypeLike | None = None,
    ) -> "MultiHeadAttention":
        """Draw the weights uniformly, within the bounds of Glorot.

        Twin of :meth:`posattn.reference.MultiHeadAttention.init`; `rng` is a JAX key.
        """
        dim = contract.integer("dim", dim, least=1)
        num_heads = contract.heads(num_heads, dim)
        dropout_rate = contract.dropout_rate(dropout_rate)
        contract.rng(rng, is_key(rng), "JAX key")
        dtype = jnp.result_type(float if dtype is None else dtype)
        bound = math.sqrt(3 / dim)
        weights = jax.random.uniform(rng, (4, dim, dim), dtype, -bound, bound)
        offsets = jnp.zeros((4, dim), dtype) if use_bias else (None,) * 4
        return cls(
            *weights,
            *offsets,
            num_heads,
            dropout_rate,
            tuple(map(_as_pytree, rotate))
            if isinstance(rotate, tuple)
            else _as_pytree(rotate),
            _as_pytree(bias),
            None if scale is None else contract.scale(scale),
        )

    def __call__(
        self,
        query: Float[Array, "*batch n_q d"],
        key: Float[Array, "*batch n_k d"],
        value: Float[Array, "*batch n_k d"],
        *,
        mask: Bool[Array, "*#batch #n_q n_k"] | None = None,
        causal: bool = False,
        bias: Float[Array, "*#batch_and_heads #n_q n_k"] | None = None,
        positions: Real[Array, "*#batch n_k"] | None = None,
        rng: Array | None = None,
    ) -> Float[Array, "*batch n_q d"]:
        """Attend from `query` to `key` and mix `value`.

        Twin of calling :class:`posattn.reference.MultiHeadAttention`.
        """
        contract.layer_inputs(query, key, value, self.query_weight.shape[0])
        contract.floating("query", query, like=self.query_weight, owner="the weights")
        n_q, n_k = query.shape[-2], key.shape[-2]
        contract.mask(mask, (*query.shape[:-1], n_k))
        contract.bias(bias, (*query.shape[:-2], self.num_heads, n_q, n_k))
        contract.key_positions(positions, key.shape, n_q)
        if positions is None:
            query_positions, key_positions = jnp.arange(n_k - n_q, n_k), jnp.arange(n_k)
        else:
            query_positions, key_positions = positions[..., n_k - n_q :], positions
        q = split_heads(_affine(query, self.query_weight, self.query_bias), self.num_heads)
        k = split_heads(_affine(key, self.key_weight, self.key_bias), self.num_heads)
        v = split_heads(_affine(value, self.value_weight, self.value_bias), self.num_heads)
        rotate_query, rotate_key = (
            self.rotate if isinstance(self.rotate, tuple) else (self.rotate, self.rotate)
        )
        q = q if rotate_query is None else rotate_query(q, query_positions[..., None, :])
        k = k if rotate_key is None else rotate_key(k, key_positions[..., None, :])
        mask = None if mask is None else mask[..., None, :, :]
        where = query_positions, key_positions
        if hasattr(self.bias, "scores"):
            mask, bias = mask_and_bias(q, k, mask, causal, bias)
            causal, k = False, zero_unattended(k, mask)
            own = self.bias.scores(q, k, *where)
        else:
            own = None if self.bias is None else self.bias(*where)
        if own is not None:
            bias = own if bias is None else bias + own
        options = {"mask": mask, "causal": causal, "bias": bias, "scale": self.scale}
        if hasattr(self.bias, "values"):
            weights = dropout(attention_weights(q, k, **options), self.dropout_rate, rng)
            heads = weights @ zero_unattended(v, mask) + self.bias.values(weights, *where)
        else:
            heads = scaled_dot_product_attention(
                q, k, v, dropout_rate=self.dropout_rate, rng=rng, **options
            )
        return _affine(merge_heads(heads), self.output_weight, self.output_bias)


def _affine(x, weight, bias):
    return x @ weight if bias is None else x @ weight + bias


def _as_pytree(function):
    """Wrap a plain function, which JAX takes for a leaf that it cannot trace."""
    return Partial(function) if isinstance(function, FunctionType | partial) else function
