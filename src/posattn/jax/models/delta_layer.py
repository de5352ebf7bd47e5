"""A layer with the delta rule: projections, a short convolution, gates, and a state in place of a cache."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer

from posattn import contract
from posattn.configs.deltas import as_delta, delta_weights
from posattn.jax.attention.convolution import short_convolution
from posattn.jax.attention.delta import gated_delta, kimi_delta
from posattn.jax.attention.heads import merge_heads, split_heads
from posattn.jax.attention.state_cache import StateCache
from posattn.jax.models.head_norm import normed
from posattn.jax.models.layer_plan import from_config
from posattn.jax.models.projections import glorot
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["DeltaAttention"]

STATIC = {"static": True}


@validated
@register
@dataclass(frozen=True, eq=False)
class DeltaAttention:
    """The layer of Gated DeltaNet and of Kimi Delta Attention: order is kept in a state, without positions.

    Twin of :class:`posattn.reference.DeltaAttention`; a pytree.
    Gates, the rule and the norm are computed in float32 if the weights are of half precision.

    Make a layer with `DeltaAttention.init(rng, dim, num_heads, ...)`, or from weights that exist.

    Args:
        query_weight: `(d, h_k d_k)`; `x @ weight` projects.
        key_weight: `(d, h_k d_k)`.
        value_weight: `(d, h d_v)`.
        taps: of the convolution, `(2 h_k d_k + h d_v, k)`, of queries, keys and values in this order.
        decay_weight: `(d, h)` or `(d, h d_k)`, or from `rank` entries.
        decay_offset: `(h)` or `(h d_k)`.
        decay_rate: the logarithms of the rates, `(h)`.
        beta_weight: `(d, h)`.
        gate_weight: `(d, h d_v)`, or from `rank` entries.
        norm_weight: `(d_v)`.
        output_weight: `(h d_v, d)`.
        decay_down_weight: `(d, rank)`, what comes before `decay_weight`; None if nothing does.
        gate_down_weight: `(d, rank)`, what comes before `gate_weight`; likewise.
        num_heads: the number of heads of values.
        num_key_heads: that of queries and keys, a divisor of `num_heads`.
        gate: what acts on the output gates, `"silu"` or `"sigmoid"`.
        most: the upper bound of beta.
        eps: added to the mean square in the norm.
        bound: the lower bound of log gates, which a scaled sigmoid keeps; none if None.

    Examples:
        >>> layer = DeltaAttention.init(jax.random.key(0), 8, 2, key_dim=4)
        >>> x = jax.random.normal(jax.random.key(1), (3, 5, 8))
        >>> whole = layer(x)
        >>> out, cache = layer(x[:, :4], cache=layer.init_cache((3,)))
        >>> out, cache = jax.jit(layer)(x[:, 4:], cache=cache)
        >>> bool(jnp.allclose(out, whole[:, 4:], atol=1e-6))
        True
    """

    recurrent = True  # which pairs are not
    query_weight: Float[Array, "d keys"]
    key_weight: Float[Array, "d keys"]
    value_weight: Float[Array, "d values"]
    taps: Float[Array, "c k"]
    decay_weight: Float[Array, "d_g gates"]
    decay_offset: Float[Array, " gates"]
    decay_rate: Float[Array, " h"]
    beta_weight: Float[Array, "d h"]
    gate_weight: Float[Array, "d_g values"]
    norm_weight: Float[Array, " d_v"]
    output_weight: Float[Array, "values d"]
    decay_down_weight: Float[Array, "d d_g"] | None = None
    gate_down_weight: Float[Array, "d d_g"] | None = None
    num_heads: int = field(default=1, metadata=STATIC)
    num_key_heads: int = field(default=1, metadata=STATIC)
    gate: Literal["silu", "sigmoid"] = field(default="silu", metadata=STATIC)
    most: float = field(default=1.0, metadata=STATIC)
    eps: float = field(default=1e-6, metadata=STATIC)
    bound: float | None = field(default=None, metadata=STATIC)

    @classmethod
    def init(
        cls,
        rng: Array,
        dim: int,
        num_heads: int,
        *,
        num_key_heads: int | None = None,
        key_dim: int,
        value_dim: int | None = None,
        taps: int = 4,
        per_channel: bool = False,
        rank: int | None = None,
        gate: Literal["silu", "sigmoid"] = "silu",
        most: float = 1.0,
        eps: float = 1e-6,
        bound: float | None = None,
        dtype: DTypeLike | None = None,
    ) -> "DeltaAttention":
        """Draw the weights uniformly.

        Twin of :meth:`posattn.reference.DeltaAttention.init`.

        Args:
            rng: a JAX key, where the weights are drawn from.
            dim: the width of the input and of the output, at least 1.
            num_heads: the number of heads of values.
            num_key_heads: that of queries and keys; `num_heads` if not given.
            key_dim: the width of a head of queries and keys.
            value_dim: that of values; `key_dim` if not given.
            taps: of the convolution.
            per_channel: whether each channel of the keys has a log gate of its own.
            rank: through how many entries the gates are projected; directly if not given.
            gate: what acts on the output gates.
            most: the upper bound of beta.
            eps: added to the mean square in the norm.
            bound: the lower bound of log gates, which a scaled sigmoid keeps; none if not given.
            dtype: of the weights; JAX's default one if not given.
        """
        contract.delta_gate(gate, bound)
        sizes = contract.delta_sizes(
            dim, num_heads, num_key_heads, key_dim, value_dim, taps, per_channel, rank
        )
        dtype = jnp.result_type(float if dtype is None else dtype)
        first, second, *keys = jax.random.split(rng, len(sizes.matrices) + 2)
        weights = glorot(keys, sizes.matrices, dtype)
        shape = sizes.width, sizes.taps
        rates = jax.random.uniform(second, (sizes.num_heads,), dtype, 0.01, 16)
        return cls(
            **weights,
            taps=jax.random.uniform(first, shape, dtype, -1, 1) * sizes.taps**-0.5,
            decay_offset=jnp.ones(sizes.gates, dtype),
            decay_rate=jnp.log(rates),
            norm_weight=jnp.ones(sizes.value_dim, dtype),
            num_heads=sizes.num_heads,
            num_key_heads=sizes.num_key_heads,
            gate=gate,
            most=contract.positive("most", most),
            eps=contract.positive("eps", eps),
            bound=bound,
        )

    from_config = classmethod(from_config)

    @classmethod
    def _of_layer(cls, layer, rng, dtype, loads):
        """A layer as a plan describes it."""
        return cls.init(rng, layer.dim, **asdict(as_delta(layer)), dtype=dtype)

    def _loaded(self, state, plan, index):
        """The layer with weights out of those of its model."""
        picked, dtype = delta_weights(state, plan, index), self.query_weight.dtype
        picked["taps"] = np.concatenate(picked["taps"]).T  # transposed as matrices are
        own = {name.replace(".", "_"): jnp.asarray(x).T for name, x in picked.items()}
        return replace(self, **{name: x.astype(dtype) for name, x in own.items()})

    def init_cache(
        self, batch_shape: int | Sequence[int], *, dtype: DTypeLike | None = None
    ) -> StateCache:
        """Make an empty cache that fits this layer.

        Twin of :meth:`posattn.reference.DeltaAttention.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            dtype: of the convolution's inputs; that of the weights if not given.
        """
        sizes = contract.delta_weights(self)
        dtype = self.query_weight.dtype if dtype is None else dtype
        shape = sizes.num_heads, sizes.key_dim, sizes.value_dim
        return StateCache.init(
            batch_shape, *shape, sizes.taps - 1, sizes.width, dtype=dtype
        )

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        *,
        mask: Bool[Array | np.ndarray, "*#batch n"] | None = None,
        documents: Integer[Array | np.ndarray, "*#batch n"] | None = None,
        cache: StateCache | None = None,
    ) -> Float[Array, "*batch n d"] | tuple[Float[Array, "*batch n d"], StateCache]:
        """Let each token read the state of those before it.

        Twin of calling :class:`posattn.reference.DeltaAttention`.

        Args:
            x: `(*batch, n, d)`.
            mask: bool, `(n)` or `(*batch, n)`, True is a token. Others are treated as absent.
            documents: integers, `(n)` or `(*batch, n)`, another number for another document.
            cache: what was kept of the tokens before.

        Returns:
            `(*batch, n, d)`. With a cache, that and the cache of all tokens so far.
        """
        sizes = contract.delta_weights(self)
        contract.delta_gate(self.gate, self.bound)
        contract.sequence("x", x, self.query_weight.shape[0])
        contract.floating("x", x, like=self.query_weight, owner="the weights")
        contract.passed(mask, documents, x.shape[:-2], x.shape[-2])
        if mask is not None:
            x = jnp.where(mask[..., None], x, 0)
        passed = {"mask": mask, "documents": documents}
        parts = self.query_weight, self.key_weight, self.value_weight
        mixed = jnp.concatenate([x @ part for part in parts], axis=-1)
        inputs = None if cache is None else cache.inputs
        mixed, inputs = short_convolution(mixed, self.taps, state=inputs, **passed)
        keys = sizes.num_key_heads * sizes.key_dim
        wide = jnp.promote_types(mixed.dtype, jnp.float32)
        mixed = jax.nn.silu(mixed).astype(wide)
        query, key, value = jnp.split(mixed, [keys, 2 * keys], axis=-1)
        query, key = (
            _unit(split_heads(part, sizes.num_key_heads)) for part in (query, key)
        )
        value = split_heads(value, sizes.num_heads)
        log_gates, beta = self._gates(x, sizes, wide)
        rule = gated_delta if log_gates.ndim == beta.ndim else kimi_delta
        state = None if cache is None else cache.state
        heads, state = rule(query, key, value, log_gates, beta, state=state, **passed)
        heads = normed(heads, self.norm_weight, self.eps)
        narrow = x if self.gate_down_weight is None else x @ self.gate_down_weight
        gate = split_heads((narrow @ self.gate_weight).astype(wide), sizes.num_heads)
        gate = jax.nn.silu(gate) if self.gate == "silu" else jax.nn.sigmoid(gate)
        out = merge_heads(heads * gate).astype(x.dtype) @ self.output_weight
        if cache is None:
            return out
        return out, StateCache(inputs, state)

    def _gates(self, x, sizes, wide):
        """The log gates and betas, `(*batch, h, n)`, or `(*batch, h, n, d_k)` for each channel."""
        narrow = x if self.decay_down_weight is None else x @ self.decay_down_weight
        step = (narrow @ self.decay_weight).astype(wide) + self.decay_offset
        step = split_heads(step, sizes.num_heads)
        rate = jnp.exp(self.decay_rate.astype(wide))[:, None, None]
        log_gates = -rate * jax.nn.softplus(step)
        if self.bound is not None:
            log_gates = self.bound * jax.nn.sigmoid(rate * step)
        if sizes.gates == sizes.num_heads:
            log_gates = log_gates[..., 0]
        return log_gates, (self.most * jax.nn.sigmoid(x @ self.beta_weight)).mT


def _unit(x):
    """Vectors of length 1, but for short ones."""
    return x * jax.lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-6)
