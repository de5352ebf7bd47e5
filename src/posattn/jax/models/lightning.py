"""The lightning indexer: weights of its own that select the keys of an attention."""

import math
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer, Real

from posattn import contract
from posattn.jax.attention.heads import split_heads
from posattn.jax.attention.indexer import indexer_scores
from posattn.jax.attention.selection import select_keys
from posattn.jax.models.layer_plan import rotation
from posattn.jax.trees import as_pytree, register
from posattn.jax.validated import validated

__all__ = ["LightningIndexer"]

STATIC = {"static": True}
Positions = Real[Array | np.ndarray, "*#batch n"]


@validated
@register
@dataclass(frozen=True, eq=False)
class LightningIndexer:
    """What selects the keys of a layer, from the tokens: a part of :class:`LatentAttention`.

    Twin of :class:`posattn.reference.LightningIndexer`; a pytree, of which `rotate` is a part.

    Args:
        query_weight: of all heads, `(d_q, h * d_h)`; `x @ weight` projects.
        key_weight: `(d, d_h)`.
        key_norm_weight: the factors of the norm, `(d_h)`.
        key_norm_bias: its offsets, `(d_h)`.
        head_weight: `(d, h)`.
        count: how many keys a query reads at most.
        rotate: None, or a function `(x, positions) -> x` of a head's first entries, such as `Rotary()`.
        eps: added to the variance in the norm.

    Examples:
        >>> indexer = LightningIndexer.init(jax.random.key(0), 8, 4, 6, count=2)
        >>> x = jax.random.normal(jax.random.key(1), (5, 8))
        >>> key = indexer.keys(x, jnp.arange(5))
        >>> indexer(x, x, key, jnp.arange(5), causal=True).shape
        (5, 2)
    """

    query_weight: Float[Array, "d_q hd"]
    key_weight: Float[Array, "d d_h"]
    key_norm_weight: Float[Array, " d_h"]
    key_norm_bias: Float[Array, " d_h"]
    head_weight: Float[Array, "d h"]
    count: int = field(metadata=STATIC)
    rotate: contract.Rotation | None = None
    eps: float = field(default=1e-6, metadata=STATIC)

    def __post_init__(self):
        object.__setattr__(self, "rotate", as_pytree(self.rotate))

    @classmethod
    def init(
        cls,
        rng: Array,
        dim: int,
        num_heads: int,
        head_dim: int,
        *,
        count: int,
        query_rank: int | None = None,
        rotate: contract.Rotation | None = None,
        eps: float = 1e-6,
        dtype: DTypeLike | None = None,
    ) -> "LightningIndexer":
        """Draw the weights uniformly, within the bounds of Glorot.

        Twin of :meth:`posattn.reference.LightningIndexer.init`.

        Args:
            rng: a JAX key, where the weights are drawn from.
            dim: the width of the tokens, at least 1.
            num_heads: the number of heads.
            head_dim: the width of a head.
            count: how many keys a query reads at most, at least 1.
            query_rank: the width of what queries are made from; `dim` if not given.
            rotate: acts on queries and keys, `(x, positions) -> x`, such as `Rotary()`.
            eps: added to the variance in the norm.
            dtype: of the weights; JAX's default one if not given.

        Returns:
            The indexer.
        """
        _, count, shapes = contract.indexer_sizes(
            dim, num_heads, head_dim, count, query_rank
        )
        dtype = jnp.result_type(float if dtype is None else dtype)
        drawn = jax.random.split(rng, len(shapes))
        weights = {
            f"{name}_weight": math.sqrt(6 / sum(shape))
            * jax.random.uniform(key, shape, dtype, -1, 1)
            for key, (name, shape) in zip(drawn, shapes.items(), strict=True)
        }
        weights["key_norm_weight"] = jnp.ones(head_dim, dtype)
        weights["key_norm_bias"] = jnp.zeros(head_dim, dtype)
        eps = contract.positive("eps", eps)
        return cls(**weights, count=count, rotate=rotate, eps=eps)

    @classmethod
    def of_layer(cls, layer, rng, dtype):
        """The indexer of a layer of a plan, or None."""
        if layer.indexer is None or layer.indexer.shared:
            return None
        return cls.init(
            rng,
            layer.dim,
            layer.indexer.num_heads,
            layer.indexer.head_dim,
            count=layer.selected,
            query_rank=layer.latent.query_rank,
            rotate=rotation(replace(layer.rope, layout=layer.indexer.layout)),
            dtype=dtype,
        )

    def of_weights(self, picked):
        """The indexer with those of a layer's arrays, by name, that are its own; they are taken away."""
        own = [name for name in picked if name.startswith("indexer_")]
        return replace(
            self, **{name.removeprefix("indexer_"): picked.pop(name) for name in own}
        )

    def keys(
        self, x: Float[Array, "*batch n d"], positions: Positions
    ) -> Float[Array, "*batch n d_h"]:
        """The keys of tokens, which a cache keeps.

        Twin of :meth:`posattn.reference.LightningIndexer.keys`.

        Args:
            x: `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.

        Returns:
            Rotated keys, `(*batch, n, d_h)`.
        """
        contract.sequence("x", x, self.key_weight.shape[0])
        contract.positions_of(x.shape, positions)
        key = x @ self.key_weight
        wide = key.astype(jnp.promote_types(key.dtype, jnp.float32))
        wide = wide - jnp.mean(wide, axis=-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + self.eps)
        key = (wide * self.key_norm_weight + self.key_norm_bias).astype(key.dtype)
        return self._turn(key[..., None, :, :], positions)[..., 0, :, :]

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        narrow: Float[Array, "*batch n d_q"],
        key: Float[Array, "*batch n_k d_h"],
        positions: Positions,
        *,
        mask: Bool[Array, "*#batch #n n_k"] | None = None,
        causal: bool = False,
    ) -> Integer[Array, "*batch n count"]:
        """The keys that each token reads.

        Twin of calling :class:`posattn.reference.LightningIndexer`.

        Args:
            x: the tokens, `(*batch, n, d)`.
            narrow: what their queries are made from, `(*batch, n, d_q)`.
            key: what `keys` has returned for all tokens so far, `(*batch, n_k, d_h)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.
            mask: bool, True means may attend; its shape broadcasts to `(*batch, n, n_k)`.
            causal: hide the future; the tokens are aligned to the end of the keys.

        Returns:
            Indices in rising order, then -1, `(*batch, n, min(count, n_k))`.
        """
        contract.indexer_weights(self, x, narrow)
        contract.positions_of(x.shape, positions)
        num_heads = self.head_weight.shape[1]
        query = split_heads(narrow @ self.query_weight, num_heads)
        weights = (x @ self.head_weight).astype(jnp.promote_types(x.dtype, jnp.float32))
        scores = indexer_scores(
            self._turn(query, positions), key.astype(query.dtype), weights * num_heads**-0.5
        )
        return select_keys(scores, self.count, mask=mask, causal=causal)

    def _turn(self, x, positions):
        """Rotate `(*batch, h, n, d_h)`."""
        return x if self.rotate is None else self.rotate(x, positions[..., None, :])
