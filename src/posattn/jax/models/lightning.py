"""The lightning indexer: weights of its own that select the keys of an attention."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer, Real

from posattn import contract
from posattn.configs import Norm
from posattn.jax.attention.heads import split_heads
from posattn.jax.attention.indexer import indexer_scores
from posattn.jax.attention.masks import causal_mask, of_pairs
from posattn.jax.attention.selection import rising, select_keys
from posattn.jax.models.head_norm import HeadNorm, normed
from posattn.jax.models.layer_plan import rotation
from posattn.jax.models.projections import glorot, grown, rotated
from posattn.jax.trees import as_pytree, register
from posattn.jax.validated import validated

__all__ = ["LightningIndexer"]

STATIC = {"static": True}
Positions = Real[Array | np.ndarray, "*#batch n"]
KeyPositions = Real[Array | np.ndarray, "*#batch n_k"] | None


@validated
@register
@dataclass(frozen=True, eq=False)
class LightningIndexer:
    """What selects the keys of a layer, from the tokens: a part of its attention.

    Twin of :class:`posattn.reference.LightningIndexer`; a pytree, of which `rotate` is a part.

    Args:
        query_weight: of all heads, `(d_q, h * d_h)`; `x @ weight` projects.
        key_weight: `(d, d_h)`; of gated keys `(d, 2 d_h)`, the second half for the gates.
        key_norm_weight: the factors of the norm, `(d_h)`.
        key_norm_bias: its offsets, `(d_h)`; None where keys are pooled without gates.
        head_weight: `(d, h)`; likewise.
        count: how many keys a query reads at most, or how many blocks of keys.
        rotate: None, or a function `(x, positions) -> x` of a head's first entries, such as `Rotary()`.
        eps: added to the variance in the norm.
        size: how many neighboring keys make a block.
        pooled: None, or what a block is worth: its best key, `"max"`, or its keys' mean, `"mean"` or
            `"gated"`.
        query_norm_weight: the factors of a norm of queries, `(d_h)`, where keys are pooled without gates.
        places: what is added to the gates of each token of a block, `(size, d_h)`.
        input_norm_weight: the factors of a norm of what queries are made from, `(d_q)`, if there is one.
        input_norm_bias: its offsets, `(d_q)`.
        temperature: a and b of `a log(p + 1) + b`, `(2, h)`, if queries grow with their position p.

    Examples:
        >>> indexer = LightningIndexer.init(jax.random.key(0), 8, 4, 6, count=2)
        >>> x = jax.random.normal(jax.random.key(1), (5, 8))
        >>> key = indexer.keys(x, jnp.arange(5))
        >>> indexer(x, x, key, jnp.arange(5), causal=True).shape
        (5, 2)
    """

    query_weight: Float[Array, "d_q hd"]
    key_weight: Float[Array, "d d_k"]
    key_norm_weight: Float[Array, " d_h"]
    key_norm_bias: Float[Array, " d_h"] | None
    head_weight: Float[Array, "d h"] | None
    count: int = field(metadata=STATIC)
    rotate: contract.Rotation | None = None
    eps: float = field(default=1e-6, metadata=STATIC)
    size: int = field(default=1, metadata=STATIC)
    pooled: str | None = field(default=None, metadata=STATIC)
    query_norm_weight: Float[Array, " d_h"] | None = None
    places: Float[Array, "size d_h"] | None = None
    input_norm_weight: Float[Array, " d_q"] | None = None
    input_norm_bias: Float[Array, " d_q"] | None = None
    temperature: Float[Array, "2 h"] | None = None

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
        size: int = 1,
        pooled: str | None = None,
        input_norm: bool = False,
        temperature: bool = False,
        dtype: DTypeLike | None = None,
    ) -> "LightningIndexer":
        """Draw the weights uniformly, within the bounds of Glorot.

        Twin of :meth:`posattn.reference.LightningIndexer.init`.

        Args:
            rng: a JAX key, where the weights are drawn from.
            dim: the width of the tokens, at least 1.
            num_heads: the number of heads.
            head_dim: the width of a head.
            count: how many keys a query reads at most, or how many blocks of keys, at least 1.
            query_rank: the width of what queries are made from; `dim` if not given.
            rotate: acts on queries and keys, `(x, positions) -> x`, such as `Rotary()`.
            eps: added to the variance in the norm.
            size: how many neighboring keys make a block.
            pooled: None, or what a block is worth: `"max"`, `"mean"` or `"gated"`.
            input_norm: whether queries are made from what a norm has passed.
            temperature: whether queries grow with their position as each head learns.
            dtype: of the weights; JAX's default one if not given.

        Returns:
            The indexer.
        """
        sizes = dim, num_heads, head_dim, count, query_rank, pooled, size
        _, count, shapes = contract.indexer_sizes(*sizes)
        dtype = jnp.result_type(float if dtype is None else dtype)
        drawn = jax.random.split(rng, len(shapes))
        weights = glorot(drawn, shapes, dtype)
        weights["key_norm_weight"] = jnp.ones(head_dim, dtype)
        weights["key_norm_bias"] = jnp.zeros(head_dim, dtype)
        if pooled in ("max", "mean"):
            weights |= {"key_norm_bias": None, "head_weight": None}
            weights["query_norm_weight"] = jnp.ones(head_dim, dtype)
        if pooled == "gated":
            weights["places"] = jnp.zeros((size, head_dim), dtype)
        if input_norm:
            width = shapes["query"][0]
            weights["input_norm_weight"] = jnp.ones(width, dtype)
            weights["input_norm_bias"] = jnp.zeros(width, dtype)
        if temperature:
            weights["temperature"] = jnp.eye(2, 1, -1, dtype).repeat(num_heads, axis=1)
        eps = contract.positive("eps", eps)
        return cls(**weights, count=count, rotate=rotate, eps=eps, size=size, pooled=pooled)

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
            **layer.choice(),
            rotate=rotation(layer.indexer.rope(layer.rope)),
            dtype=dtype,
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
            Rotated keys, `(*batch, n, d_h)`; keys as they are if their mean is asked for; with gates,
            `(*batch, n, 2 d_h)`, where these stand behind the keys.
        """
        contract.sequence("x", x, self.key_weight.shape[0])
        contract.positions_of(x.shape, positions)
        key = x @ self.key_weight
        if self.pooled == "mean":
            return key
        key, gates = jnp.split(key, self.key_norm_weight.shape, axis=-1)
        return jnp.concatenate([self._rotated(key, positions), gates], axis=-1)

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        narrow: Float[Array, "*batch n d_q"],
        key: Float[Array, "*batch n_k d_h"],
        positions: Positions,
        *,
        key_positions: KeyPositions = None,
        mask: Bool[Array, "*#batch_and_heads #n n_k"] | None = None,
        causal: bool = False,
    ) -> Integer[Array, "*heads n count"]:
        """The keys that each token reads.

        Twin of calling :class:`posattn.reference.LightningIndexer`.

        Args:
            x: the tokens, `(*batch, n, d)`.
            narrow: what their queries are made from, `(*batch, n, d_q)`.
            key: what `keys` has returned for all tokens so far, `(*batch, n_k, d_h)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`, if their mean is asked for.
            mask: bool, True means may attend, `(*batch, n, n_k)`, or with an axis of heads: to any of them.
            causal: hide the future; the tokens are aligned to the end of the keys.

        Returns:
            Indices in rising order, then -1, `(*batch, n, k)`; of `"max"`, `(*batch, h, n, k)`.
        """
        contract.indexer_weights(self, x, narrow)
        contract.positions_of(x.shape, positions)
        contract.indexer_keys(x, key, key_positions, self.pooled)
        if getattr(mask, "ndim", 0) > x.ndim:
            mask = mask.any(-3)
        contract.mask(mask, (*x.shape[:-1], key.shape[-2]))
        num_heads = self.query_weight.shape[1] // len(self.key_norm_weight)
        if self.input_norm_weight is not None:
            norm = Norm("layer", self.eps)
            narrow = HeadNorm(self.input_norm_weight, self.input_norm_bias, norm)(narrow)
        query = split_heads(narrow @ self.query_weight, num_heads)
        if self.query_norm_weight is not None:
            query = normed(query, self.query_norm_weight, self.eps)
        query = grown(query, self.temperature, positions)
        query = rotated(self.rotate, 0, query, positions)
        weights = None
        if self.head_weight is not None:
            wide = jnp.promote_types(x.dtype, jnp.float32)
            weights = (x @ self.head_weight).astype(wide) * num_heads**-0.5
        if self.pooled is not None:
            return self._blocks(query, key, weights, key_positions, mask, causal)
        scores = indexer_scores(query, key.astype(query.dtype), weights)
        return select_keys(scores, self.count, mask=mask, causal=causal)

    def _blocks(self, query, key, weights, positions, mask, causal):
        """The keys of the best blocks, which begin at the first key that each query sees."""
        size = self.size
        mean = self.pooled != "max"
        n, n_k = query.shape[-2], key.shape[-2]
        wide = jnp.promote_types(query.dtype, jnp.float32)
        if mean:  # of each key and those after it
            ends = [(0, 0)] * (key.ndim - 2) + [(0, size - 1), (0, 0)]
            padded = jnp.pad(key.astype(wide), ends)
            key = jnp.stack([padded[..., i : i + n_k, :] for i in range(size)], axis=-2)
            if self.pooled == "gated":
                key, gates = jnp.split(key, 2, axis=-1)
                key = (key * jax.nn.softmax(gates + self.places, axis=-2)).sum(-2)
                key = key.astype(query.dtype)
            else:
                key = self._rotated(key.mean(-2).astype(query.dtype), positions)
            scores = indexer_scores(query, key, weights)[..., None, :, :]
        else:
            scores = query.astype(wide) @ key[..., None, :, :].mT.astype(wide)
        seen = jnp.ones((1, 1), bool) if mask is None else mask
        seen = seen & causal_mask(n, n_k) if causal else seen
        seen = jnp.broadcast_to(seen, (*query.shape[:-3], n, n_k))[..., None, :, :]
        first = jnp.argmax(seen, axis=-1)[..., None]
        end = n_k - jnp.argmax(seen[..., ::-1], axis=-1)[..., None]
        blocks = jnp.arange(n_k // size + 1)
        places = first + jnp.arange(blocks.size * size)
        lead, ends = scores.shape[:-1], [(0, 0)] * (scores.ndim - 1)
        scores = jnp.where(seen, scores, -jnp.inf)
        scores = jnp.pad(scores, [*ends, (0, blocks.size * size)], constant_values=-jnp.inf)
        places = jnp.broadcast_to(places, (*lead, blocks.size * size))
        scores = jnp.take_along_axis(scores, places, axis=-1)
        each = scores.reshape(*lead, blocks.size, size)
        best = each.max(-1)
        if mean:  # whole blocks, and what stands after them
            best = jnp.where(each[..., -1] > -jnp.inf, each[..., 0], -jnp.inf)
        own = (end - first - 1 + mean) // size == blocks
        chosen = select_keys(jnp.where(own, jnp.inf, best), self.count + mean)[..., None]
        tokens = chosen * size + jnp.arange(size)
        tokens = tokens.reshape(*lead, tokens.shape[-2] * size)
        kept = jnp.take_along_axis(scores, jnp.maximum(tokens, 0), -1) > -jnp.inf
        kept = kept & (tokens >= 0)
        tokens = rising(jnp.where(kept, tokens + first, -1), n_k)
        return tokens[..., 0, :, :] if mean else tokens

    def _rotated(self, key, positions):
        """Keys, normalised and rotated."""
        norm = Norm("rms" if self.key_norm_bias is None else "layer", self.eps)
        key = HeadNorm(self.key_norm_weight, self.key_norm_bias, norm)(key)
        return rotated(self.rotate, 1, key[..., None, :, :], positions)[..., 0, :, :]


def selects(layer, select, x, narrow, key, positions, mask, causal):
    """The keys that each query of a layer reads, where an indexer selects them."""
    contract.chosen_before(select, layer.shared)
    if layer.shared or layer.indexer is None:
        return select
    shape = *x.shape[:-2], layer.num_heads, x.shape[-2], key.shape[-2]
    seen = of_pairs(mask, positions, shape)
    return layer.indexer(x, narrow, key, positions.query, mask=seen, causal=causal)
