"""A block of a decoder: attention and a feed-forward network, each added to what went in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from posattn.jax.models.delta_layer import DeltaAttention
from posattn.jax.models.multi_head import MultiHeadAttention, called, weights
from posattn.jax.models.projections import Inputs
from posattn.jax.trees import as_pytree, register

__all__ = []

silu, gelu = jax.nn.silu, partial(jax.nn.gelu, approximate=True)


@register
@dataclass(frozen=True, eq=False)
class Norm:
    """Divide each token by the root of its mean square, after its mean is taken off if it is a layer norm.

    Args:
        weight: what the entries are multiplied by, `(d)`.
        bias: what is added to them, `(d)`; None in a root-mean-square norm, and in Cohere's.
        eps: added to the mean square.
        centered: whether the mean is taken off.
    """

    weight: Array
    bias: Array | None = None
    eps: float = field(default=1e-6, metadata={"static": True})
    centered: bool = field(default=False, metadata={"static": True})

    @classmethod
    def init(cls, norm, dim, eps, dtype):
        """A norm that multiplies by 1, and adds 0 where it is a layer norm, but for Cohere's."""
        bias = jnp.zeros(dim, dtype) if norm == "layer" else None
        return cls(jnp.ones(dim, dtype), bias, eps, norm != "rms")

    def __call__(self, x):
        """Normalise `x`, `(*batch, n, d)`, in float32 or more, and round once."""
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        wide = wide - wide.mean(-1, keepdims=True) if self.centered else wide
        square = (wide * wide).mean(-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(square + self.eps) * self.weight
        return added(wide, self.bias).astype(x.dtype)


@register
@dataclass(frozen=True, eq=False)
class FeedForward:
    """Two projections with an activation between them, or three if it is gated: each token by itself.

    Args:
        up_weight: `(d, d_ff)`; None if what is gated is no projection.
        down_weight: `(d_ff, d)`.
        gate_weight: `(d, d_ff)`; None if nothing is gated.
        up_bias: `(d_ff)` or None; likewise the next two.
        down_bias: `(d)` or None.
        gate_bias: `(d_ff)` or None.
        activation: a function of each entry.
        limit: gpt-oss's bound c, which makes it `(1 + clip(up, -c, c)) * f(min(gate, c))`; None for
            `up * f(gate)`.
    """

    up_weight: Array | None
    down_weight: Array
    gate_weight: Array | None = None
    up_bias: Array | None = None
    down_bias: Array | None = None
    gate_bias: Array | None = None
    activation: Callable[[Any], Any] = silu
    limit: float | None = field(default=None, metadata={"static": True})

    def __post_init__(self):
        object.__setattr__(self, "activation", as_pytree(self.activation))

    @classmethod
    def init(cls, rng, dim, hidden_dim, *, gated, activation, use_bias, dtype, limit=None):
        """Draw the weights uniformly, within Glorot's bounds."""
        shapes = [(dim, hidden_dim), (hidden_dim, dim), (dim, hidden_dim)][: 2 + gated]
        bound = (6 / (dim + hidden_dim)) ** 0.5
        weights = [
            jax.random.uniform(key, shape, dtype, -bound, bound)
            for key, shape in zip(jax.random.split(rng, len(shapes)), shapes, strict=True)
        ]
        offsets = [jnp.zeros(shape[1], dtype) if use_bias else None for shape in shapes]
        none = [None] * (not gated)
        activation = activation or (silu if gated else gelu)
        return cls(*weights, *none, *offsets, *none, activation, limit)

    def __call__(self, x, up=None):
        """What is added to `x`, `(*batch, n, d)`; `up` is what is gated, if it is no projection."""
        hidden = added(x @ self.up_weight, self.up_bias) if up is None else up
        if self.gate_weight is None:
            hidden = self.activation(hidden)
        else:
            gate = added(x @ self.gate_weight, self.gate_bias)
            if self.limit is not None:
                hidden = 1 + jnp.clip(hidden, -self.limit, self.limit)
                gate = jnp.minimum(gate, self.limit)
            hidden = hidden * self.activation(gate)
        return added(hidden @ self.down_weight, self.down_bias)


@register
@dataclass(frozen=True, eq=False)
class Block:
    """Attention and a feed-forward network, each added to what went in.

    Args:
        attention: the layer of attention.
        feed_forward: the network, or a mixture of several.
        attention_norm: what the attention reads comes out of it; None to read what went in.
        feed_forward_norm: the same for the network.
        attention_post_norm: what the attention adds comes out of it; None to add it as it is.
        feed_forward_post_norm: the same for the network.
        parallel: whether the network reads what the attention reads, not what came of it.
        residual_scale: a factor on what both add, as in Granite.
        lender: the number of the layer whose keys and values it uses, its own if others use them; None if
            each uses its own.
        layer_input: a network that gates the layer's own embedding at the end; None if it has none.
        layer_norm: of what that adds.
        scalar: a factor on what comes out, `(1)`, or None.
    """

    attention: Callable[..., Any]
    feed_forward: Callable[[Any], Any]
    attention_norm: Norm | None = None
    feed_forward_norm: Norm | None = None
    attention_post_norm: Norm | None = None
    feed_forward_post_norm: Norm | None = None
    parallel: bool = field(default=False, metadata={"static": True})
    residual_scale: float = field(default=1.0, metadata={"static": True})
    lender: int | None = field(default=None, metadata={"static": True})
    layer_input: FeedForward | None = None
    layer_norm: Norm | None = None
    scalar: Array | None = None

    def __call__(self, x, *, cache=None, lent=None, own=None, **options):
        """The stream after this block, `(*batch, n, d)`, and the next cache; what others use is in `lent`."""
        read = applied(self.attention_norm, x)
        told = self._told(**options)
        if self.lender is None:
            heads = self.attention(read, cache=cache, **told)
            heads, cache = (heads, None) if cache is None else heads
        else:
            rng = told.pop("rng", None)
            theirs = lent.get(self.lender)
            found = called(self.attention, Inputs(read, **told), cache, rng, lent=theirs)
            heads, cache, lent[self.lender] = found
        heads = self.residual_scale * applied(self.attention_post_norm, heads)
        read = x if self.parallel else x + heads
        beside = [read] if getattr(self.feed_forward, "counts", None) is not None else []
        fed = self.feed_forward(applied(self.feed_forward_norm, read), *beside)
        fed = self.residual_scale * applied(self.feed_forward_post_norm, fed)
        x = x + heads + fed
        if self.layer_input is not None:
            x = x + self.layer_norm(self.layer_input(x, own))
        return x if self.scalar is None else x * self.scalar, cache

    def attention_weights(self, x, *, lent=None, own=None, **options):
        """How much each token attends to each in every head, `(*batch, h, n, n)`; None without pairs."""
        if self.keeps_state:
            return None
        read = applied(self.attention_norm, x)
        told = self._told(**options)
        if self.borrows:
            return weights(self.attention, Inputs(read, **told), lent[self.lender])
        return self.attention.attention_weights(read, **told)

    @property
    def borrows(self):
        """Whether keys and values are those of an earlier layer."""
        return getattr(self.attention, "key_weight", self) is None

    @property
    def keeps_state(self):
        """Whether the layer keeps a state, not keys and values."""
        return isinstance(self.attention, DeltaAttention)

    def _told(self, *, mask=None, query_positions=None, documents=None, rng=None):
        """What the layer hears of a call: with a state, which tokens are padding, not where they stand."""
        if self.keeps_state:
            there = None if query_positions is None else query_positions >= 0
            return {"mask": there, "documents": documents}
        drops = rng is not None and isinstance(self.attention, MultiHeadAttention)
        told = {"mask": mask, "query_positions": query_positions, "causal": True}
        return told | {"rng": rng} if drops else told


@register
@dataclass(frozen=True, eq=False)
class LayerEmbedding:
    """What each layer reads of a token besides the stream: a row of its own, and a projection (Gemma 4)."""

    embedding: Array
    projection_weight: Array
    norm: Norm

    @classmethod
    def init(cls, rng, rows, layers, dim, width, eps, dtype):
        """Draw the rows with standard deviation 0.02, the rest within Glorot's bounds."""
        first, second = jax.random.split(rng)
        table = 0.02 * jax.random.normal(first, (rows, layers * width), dtype)
        drawn = jax.nn.initializers.glorot_uniform()
        projection = drawn(second, (dim, layers * width), dtype)
        return cls(table, projection, Norm.init("rms", width, eps, dtype))

    def __call__(self, tokens, x):
        """What each layer reads, `(*batch, n, width)`, of tokens and the embeddings `x` of these."""
        width = len(self.norm.weight)
        told = x @ self.projection_weight * x.shape[-1] ** -0.5
        own = self.embedding[tokens] * width**0.5
        shape = *tokens.shape, told.shape[-1] // width, width
        told, own = (part.reshape(shape) for part in (told, own))
        return tuple(jnp.moveaxis((self.norm(told) + own) * 0.5**0.5, -2, 0))


def applied(norm, x):
    """What comes out of a norm, or `x` if there is none."""
    return x if norm is None else norm(x)


def added(x, bias):
    """The sum, or `x` if there is no bias."""
    return x if bias is None else x + bias
