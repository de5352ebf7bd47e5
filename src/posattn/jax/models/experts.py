"""A mixture of experts: a router picks a few of many feed-forward networks for each token."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from posattn.jax.models.block import FeedForward, Norm, added
from posattn.jax.trees import register

__all__ = []


@register
@dataclass(frozen=True, eq=False)
class Experts:
    """Feed-forward networks of which each token passes a few.

    Twin of the reference's. One network after the other reads all tokens, unless nobody chose it: shapes
    cannot depend on the choice.

    Args:
        router_weight: `(d, count)`.
        experts: one network, whose arrays have an axis more in front, one entry for each expert.
        mixture: what is mixed and how, a `posattn.configs.experts.Mixture`.
        router_bias: `(count)` or None.
        correction: `(count)` or None.
        shared: the network that every token passes; None if there is none.
        shared_gate_weight: `(d, 1)`; None if that network always counts.
        counts: a factor on each expert's weight, `(count)`, or None; with it there are four norms.
        router_norm: of what the router reads of the stream; likewise the next.
        input_norm: of what the experts read.
        shared_norm: of what the shared network says.
        output_norm: of what the experts say.
    """

    router_weight: Array
    experts: FeedForward
    mixture: Any = field(metadata={"static": True})
    router_bias: Array | None = None
    correction: Array | None = None
    shared: FeedForward | None = None
    shared_gate_weight: Array | None = None
    counts: Array | None = None
    router_norm: Norm | None = None
    input_norm: Norm | None = None
    shared_norm: Norm | None = None
    output_norm: Norm | None = None

    @classmethod
    def init(cls, rng, dim, mixture, activation, dtype):
        """Draw the weights as those of one network."""
        first, second, last, *keys = jax.random.split(rng, 3 + mixture.count)
        options = {"gated": True, "activation": activation, "dtype": dtype}
        own = {"use_bias": mixture.use_bias, "limit": mixture.limit} | options
        network = partial(FeedForward.init, dim=dim, hidden_dim=mixture.hidden_dim, **own)
        shared = None
        zeros = jnp.zeros(mixture.count, jnp.promote_types(dtype, "float32"))
        if mixture.shared_dim is not None:
            options |= {"use_bias": False}
            shared = FeedForward.init(last, dim, mixture.shared_dim, **options)
        drawn = jax.nn.initializers.glorot_uniform()
        norm = None
        if mixture.beside is not None:
            norm = Norm.init("rms", dim, mixture.beside, dtype)
        return cls(
            drawn(first, (dim, mixture.count), dtype),
            jax.vmap(network)(jnp.stack(keys)),
            mixture,
            zeros.astype(dtype) if mixture.use_bias else None,
            zeros if mixture.corrected else None,
            shared,
            drawn(second, (dim, 1), dtype) if mixture.shared_gated else None,
            *([jnp.ones(mixture.count, dtype), *[norm] * 4] if norm else []),
        )

    def __call__(self, x, stream=None):
        """What is added to `x`, `(*batch, n, d)`, which is a norm of the stream."""
        every = jnp.zeros_like(x) if self.shared is None else self.shared(x)
        if self.shared_gate_weight is not None:
            every = every * jax.nn.sigmoid(x @ self.shared_gate_weight)
        if self.counts is None:
            return self._mixed(x, x, every)
        told = self.router_norm(stream) * x.shape[-1] ** -0.5
        mixed = self._mixed(told, self.input_norm(stream), jnp.zeros_like(x))
        return self.shared_norm(every) + self.output_norm(mixed)

    def _mixed(self, told, x, total):
        """What the experts say of `x`, chosen by what the router is told, added to a sum."""
        logits = added(told @ self.router_weight, self.router_bias)
        weights = routed(logits, self.correction, self.mixture).astype(x.dtype)
        weights = weights if self.counts is None else weights * self.counts

        def step(total, expert):
            network, weight = expert

            def mixed():
                counts = weight[..., None]
                if self.mixture.inward:
                    return total + network(counts * x)
                return total + counts * network(x)

            return jax.lax.cond((weight != 0).any(), mixed, lambda: total), None

        return jax.lax.scan(step, total, (self.experts, jnp.moveaxis(weights, -1, 0)))[0]


def routed(logits, correction, mixture):
    """How much each expert counts, `(*batch, n, count)`: 0 unless it is chosen."""
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    score = jax.nn.softmax if mixture.score == "softmax" else jax.nn.sigmoid
    scores = score(logits)
    ranks = added(scores, correction)
    if mixture.groups > 1:
        grouped = ranks.reshape(
            *ranks.shape[:-1], mixture.groups, mixture.count // mixture.groups
        )
        best = jax.lax.top_k(grouped, 2)[0].sum(-1)
        kept = among(best, mixture.kept_groups)
        ranks = jnp.where(kept[..., None], grouped, -jnp.inf).reshape(ranks.shape)
    weights = jnp.where(among(ranks, mixture.chosen), scores, 0)
    if mixture.normalized:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    return weights * mixture.scale


def among(x, count):
    """Whether an entry is among the `count` highest of its row."""
    return jnp.argsort(jnp.argsort(x, descending=True), axis=-1) < count
