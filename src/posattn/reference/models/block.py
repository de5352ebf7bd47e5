"""A block of a decoder: attention and a feed-forward network, each added to what went in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from posattn.reference.models.delta_layer import DeltaAttention
from posattn.reference.models.multi_head import MultiHeadAttention

__all__ = []


def silu(x):
    """The identity times a sigmoid."""
    return x / (1 + np.exp(-x))


def gelu(x):
    """The identity times the normal distribution function, which GPT-2 computes with a tanh."""
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


@dataclass(frozen=True, eq=False)
class Norm:
    """Divide each token by the root of its mean square, after its mean is taken off if there is a bias.

    Args:
        weight: what the entries are multiplied by, `(d)`.
        bias: what is added to them, `(d)`; None for a root-mean-square norm.
        eps: added to the mean square.
    """

    weight: Any
    bias: Any = None
    eps: float = 1e-6

    @classmethod
    def init(cls, norm, dim, eps):
        """A norm that multiplies by 1 and adds 0."""
        return cls(np.ones(dim), np.zeros(dim) if norm == "layer" else None, eps)

    def __call__(self, x):
        """Normalise `x`, `(*batch, n, d)`."""
        x = x if self.bias is None else x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight
        return x if self.bias is None else x + self.bias


@dataclass(frozen=True, eq=False)
class FeedForward:
    """Two projections with an activation between them, or three if it is gated: each token by itself.

    Args:
        up_weight: `(d, d_ff)`.
        down_weight: `(d_ff, d)`.
        gate_weight: `(d, d_ff)`; None if nothing is gated.
        up_bias: `(d_ff)` or None; likewise the next two.
        down_bias: `(d)` or None.
        gate_bias: `(d_ff)` or None.
        activation: a function of each entry.
        limit: gpt-oss's bound c, which makes it `(1 + clip(up, -c, c)) * f(min(gate, c))`; None for
            `up * f(gate)`.
    """

    up_weight: Any
    down_weight: Any
    gate_weight: Any = None
    up_bias: Any = None
    down_bias: Any = None
    gate_bias: Any = None
    activation: Callable[[Any], Any] = silu
    limit: float | None = None

    @classmethod
    def init(cls, rng, dim, hidden_dim, *, gated, activation, use_bias):
        """Draw the weights uniformly, within Glorot's bounds."""
        shapes = [(dim, hidden_dim), (hidden_dim, dim), (dim, hidden_dim)][: 2 + gated]
        weights = [
            rng.uniform(-1, 1, shape) * np.sqrt(6 / (dim + hidden_dim)) for shape in shapes
        ]
        offsets = [np.zeros(shape[1]) if use_bias else None for shape in shapes]
        none = [None] * (not gated)
        activation = activation or (silu if gated else gelu)
        return cls(*weights, *none, *offsets, *none, activation)

    def __call__(self, x):
        """What is added to `x`, `(*batch, n, d)`."""
        hidden = added(x @ self.up_weight, self.up_bias)
        if self.gate_weight is None:
            hidden = self.activation(hidden)
        else:
            gate = added(x @ self.gate_weight, self.gate_bias)
            if self.limit is not None:
                hidden = 1 + np.clip(hidden, -self.limit, self.limit)
                gate = np.minimum(gate, self.limit)
            hidden = hidden * self.activation(gate)
        return added(hidden @ self.down_weight, self.down_bias)


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
    """

    attention: Callable[..., Any]
    feed_forward: Callable[[Any], Any]
    attention_norm: Norm | None = None
    feed_forward_norm: Norm | None = None
    attention_post_norm: Norm | None = None
    feed_forward_post_norm: Norm | None = None
    parallel: bool = False
    residual_scale: float = 1.0

    def __call__(self, x, *, cache=None, **options):
        """The stream after this block, `(*batch, n, d)`, and the next cache if there is one."""
        read = applied(self.attention_norm, x)
        heads = self.attention(read, cache=cache, **self._told(**options))
        heads, cache = (heads, None) if cache is None else heads
        heads = self.residual_scale * applied(self.attention_post_norm, heads)
        read = x if self.parallel else x + heads
        fed = self.feed_forward(applied(self.feed_forward_norm, read))
        fed = self.residual_scale * applied(self.feed_forward_post_norm, fed)
        return x + heads + fed, cache

    def attention_weights(self, x, **options):
        """How much each token attends to each in every head, `(*batch, h, n, n)`; None without pairs."""
        if self.keeps_state:
            return None
        read = applied(self.attention_norm, x)
        return self.attention.attention_weights(read, **self._told(**options))

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


def applied(norm, x):
    """What comes out of a norm, or `x` if there is none."""
    return x if norm is None else norm(x)


def added(x, bias):
    """The sum, or `x` if there is no bias."""
    return x if bias is None else x + bias
