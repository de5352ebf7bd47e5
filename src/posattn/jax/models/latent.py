"""Multi-head latent attention: keys and values of all heads come from one narrow vector per token."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer, Real

from posattn import contract
from posattn.configs.latents import as_latent, latent_weights
from posattn.jax.attention import definition
from posattn.jax.attention.attention import attend
from posattn.jax.attention.cache import beyond, rule_of
from posattn.jax.attention.call import Positions, call_at
from posattn.jax.attention.heads import merge_heads, split_heads
from posattn.jax.attention.latent_cache import LatentCache
from posattn.jax.attention.masks import all_of, for_heads
from posattn.jax.models.layer_plan import from_config, rotation
from posattn.jax.models.lightning import LightningIndexer, selects
from posattn.jax.models.projections import gated, glorot, latent_parts
from posattn.jax.trees import as_pytree, register
from posattn.jax.validated import validated

__all__ = ["LatentAttention"]

CallMask = Bool[Array, "... #n n_k"] | contract.PositionMask
Select = Integer[Array | np.ndarray, "*batch n k"] | None
Latents = Float[Array, "*batch n_k r"] | None
QueryPositions = Real[Array | np.ndarray, "*#batch n"] | None
STATIC = {"static": True}


@validated
@register
@dataclass(frozen=True, eq=False)
class LatentAttention:
    """Self-attention whose keys and values come from one narrow vector per token, so that a cache is small.

    Twin of :class:`posattn.reference.LatentAttention`; a pytree, of which `rotate` is a part.

    Make a layer with `LatentAttention.init(rng, dim, num_heads, ...)`, or from weights that exist.

    Args:
        query_weight: `(d, h * (d_c + d_r))`, or from `query_rank` entries; `x @ weight` projects.
        kv_down_weight: to the latent vector and the shared key, `(d, r + d_r)`; None, as the norm, where each
            call brings those of another layer.
        kv_norm_weight: the factors of the latent vector's norm, `(r)`.
        key_weight: `(r, h * d_c)`.
        value_weight: `(r, h * d_v)`.
        output_weight: `(h * d_v, d)`.
        query_down_weight: `(d, query_rank)`; None if queries have no latent vector.
        query_norm_weight: the factors of its norm, `(query_rank)`; likewise.
        num_heads: the number of heads.
        rotate: None, or a function `(x, positions) -> x` of the entries that rotate, such as `Rotary()`.
        scale: the factor on the products of queries and keys, one over the root of `d_c + d_r` if None.
        eps: added to the mean square in the norms.
        indexer: a `LightningIndexer` that selects the keys of each query; every query reads all if not given.
        shared: whether each call brings the keys that the indexer of a layer before has selected.
        raw: whether queries and gates also project the queries' latent vector before its norm.
        sinks: `(h)`, a score of each head that joins its softmax without a value, or None.
        gate_weight: `(d, h * d_v)`, or from `2 * query_rank` entries; None for no gate.
        temperature: a and b of `a log(p + 1) + b`, `(2, h)`, if queries grow with their position p.

    Examples:
        >>> from posattn.jax import Rotary
        >>> layer = LatentAttention.init(jax.random.key(0), 8, 2, kv_rank=4, content_dim=4, rotary_dim=2,
        ...     rotate=Rotary())
        >>> x = jax.random.normal(jax.random.key(1), (3, 5, 8))
        >>> whole = layer(x, causal=True)
        >>> out, cache = layer(x[:, :4], cache=layer.init_cache((3,), 16))
        >>> out, cache = jax.jit(layer)(x[:, 4:], cache=cache)
        >>> bool(jnp.allclose(out, whole[:, 4:], atol=1e-6))
        True
        >>> cache.bytes_per_token
        24
    """

    query_weight: Float[Array, "d_q hd_q"]
    kv_down_weight: Float[Array, "d width"] | None
    kv_norm_weight: Float[Array, " r"] | None
    key_weight: Float[Array, "r hd_c"]
    value_weight: Float[Array, "r hd_v"]
    output_weight: Float[Array, "hd_v d"]
    query_down_weight: Float[Array, "d d_a"] | None = None
    query_norm_weight: Float[Array, " d_a"] | None = None
    num_heads: int = field(default=1, metadata=STATIC)
    rotate: contract.Rotation | None = None
    scale: float | None = field(default=None, metadata=STATIC)
    eps: float = field(default=1e-6, metadata=STATIC)
    indexer: LightningIndexer | None = None
    shared: bool = field(default=False, metadata=STATIC)
    raw: bool = field(default=False, metadata=STATIC)
    sinks: Float[Array, " h"] | None = None
    gate_weight: Float[Array, "d_g hd_v"] | None = None
    temperature: Float[Array, "2 h"] | None = None

    def __post_init__(self):
        object.__setattr__(self, "rotate", as_pytree(self.rotate))

    @classmethod
    def init(
        cls,
        rng: Array,
        dim: int,
        num_heads: int,
        *,
        query_rank: int | None = None,
        kv_rank: int,
        content_dim: int,
        rotary_dim: int,
        value_dim: int | None = None,
        rotate: contract.Rotation | None = None,
        scale: float | None = None,
        eps: float = 1e-6,
        indexer: LightningIndexer | None = None,
        shared: bool = False,
        lent: bool = False,
        raw: bool = False,
        sinks: bool = False,
        gate: bool = False,
        temperature: bool = False,
        dtype: DTypeLike | None = None,
    ) -> "LatentAttention":
        """Draw the weights uniformly, within the bounds of Glorot.

        Twin of :meth:`posattn.reference.LatentAttention.init`.

        Args:
            rng: a JAX key, where the weights are drawn from.
            dim: the width of the input and of the output, at least 1.
            num_heads: the number of heads.
            query_rank: the width of the queries' latent vector; they have none if not given.
            kv_rank: the width of the latent vector of keys and values.
            content_dim: how many entries of a query or key don't rotate.
            rotary_dim: how many entries rotate, an even number; 0 if none do.
            value_dim: the width of a head's value; `content_dim` if not given.
            rotate: acts on the entries that rotate, `(x, positions) -> x`, such as `Rotary()`.
            scale: the factor on the products of queries and keys, one over the root of
                `content_dim + rotary_dim` if not given.
            eps: added to the mean square in the norms.
            indexer: a `LightningIndexer` that selects the keys of each query; all if not given.
            shared: whether each call brings the keys that the indexer of a layer before has selected.
            lent: whether each call brings the latent vectors of another layer.
            raw: whether queries and gates also project the queries' latent vector before its norm.
            sinks: give each head a learned score that joins its softmax without a value, from zero on.
            gate: multiply the output of the heads by a sigmoid of one more projection.
            temperature: whether each head learns how its queries grow with their position.
            dtype: of the weights; JAX's default one if not given.
        """
        sizes = dim, num_heads, query_rank, kv_rank, content_dim, rotary_dim, value_dim
        sizes = contract.latent_sizes(*sizes, raw=raw, gate=gate, lent=lent)
        dtype = jnp.result_type(float if dtype is None else dtype)
        weights = {"kv_down_weight": None, "kv_norm_weight": None}
        keys = jax.random.split(rng, len(sizes.weights))
        weights |= glorot(keys, sizes.weights, dtype)
        if query_rank is not None:
            weights["query_norm_weight"] = jnp.ones(query_rank, dtype)
        if not lent:
            weights["kv_norm_weight"] = jnp.ones(kv_rank, dtype)
        if temperature:
            weights["temperature"] = jnp.eye(2, 1, -1, dtype).repeat(sizes.num_heads, 1)
        return cls(
            **weights,
            num_heads=sizes.num_heads,
            rotate=rotate,
            scale=None if scale is None else contract.scale(scale),
            eps=contract.positive("eps", eps),
            indexer=indexer,
            shared=shared,
            raw=raw,
            sinks=jnp.zeros(sizes.num_heads, dtype) if sinks else None,
        )

    from_config = classmethod(from_config)

    @classmethod
    def _of_layer(cls, layer, rng, dtype, loads):
        """A layer as a plan describes it."""
        as_latent(layer)
        return cls.init(
            rng,
            layer.dim,
            layer.num_heads,
            **asdict(layer.latent),
            rotate=rotation(layer.rope),
            scale=layer.scale,
            indexer=LightningIndexer.of_layer(layer, rng, dtype),
            shared=layer.indexer is not None and layer.indexer.shared,
            lent=layer.kv_layer is not None,
            sinks=layer.sinks,
            gate=layer.gate,
            dtype=dtype,
        )

    def _loaded(self, state, plan, index):
        """The layer with weights out of those of its model."""
        picked = {}
        for name, array in latent_weights(state, plan, index).items():
            several = isinstance(array, list)
            array = jnp.concatenate(array) if several else jnp.asarray(array)
            array = array.T if name.endswith("weight") else array
            picked[name.replace(".", "_")] = array.astype(self.query_weight.dtype)
        if self.indexer is not None:
            own = [name for name in picked if name.startswith("indexer_")]
            own = {name.removeprefix("indexer_"): picked.pop(name) for name in own}
            picked["indexer"] = replace(self.indexer, **own)
        return replace(self, **picked)

    def init_cache(
        self,
        batch_shape: int | Sequence[int],
        max_len: int,
        *,
        dtype: DTypeLike | None = None,
    ) -> LatentCache:
        """Make an empty cache that fits this layer.

        Twin of :meth:`posattn.reference.LatentAttention.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
            dtype: of the latent vectors; that of the weights if not given.
        """
        dtype = self.key_weight.dtype if dtype is None else dtype
        width = 0 if self.kv_down_weight is None else self.kv_down_weight.shape[1]
        width += 0 if self.indexer is None else self.indexer.key_weight.shape[1]
        return LatentCache.init(batch_shape, max_len, width, dtype=dtype)

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        query_positions: QueryPositions = None,
        select: Select = None,
        return_select: bool = False,
        latent: Latents = None,
        return_latent: bool = False,
        cache: LatentCache | None = None,
    ) -> Float[Array, "*batch n d"] | tuple[Any, ...]:
        """Let each token attend to the others, or to those in a cache.

        Twin of calling :class:`posattn.reference.LatentAttention`.

        Args:
            x: `(*batch, n, d)`.
            mask: bool, True means may attend; its shape broadcasts to `(*batch, n, n_k)`, or with one axis
                more than `x` to `(*batch, h, n, n_k)`; or a function of positions that returns
                `(*batch, n, n_k)`. With a cache, the keys are its slots.
            causal: hide the future.
            query_positions: where the tokens stand, `(n)` or `(*batch, n)`: from 0 on if not given, or
                after those in the cache.
            select: of a layer with `shared`: the keys, or slots of the cache, that each query reads,
                `(*batch, n, k)`; -1 is no key.
            return_select: return what each query reads, for layers that share it.
            latent: of a layer with `lent`: what another layer has returned, `(*batch, n_k, r + d_r)`.
            return_latent: return the latent vectors of all tokens or slots, for layers with `lent`.
            cache: the tokens before. Each query then attends to what it holds up to the query's own
                position, the query's own token included, and tokens at a negative position are padding,
                which nobody attends to.

        Returns:
            `(*batch, n, d)`; zeros where a query may attend to nothing. With a cache, this and the new
            cache; then the indices, and then the latent vectors, if asked for.
        """
        widths = contract.latent_weights(self, x)
        follow = query_positions is None
        if cache is not None:
            contract.cache_batch("x", x, 2, cache)
            if query_positions is None:
                query_positions = cache.next_positions(x.shape[-2])
        parts = latent_parts(self, x, query_positions, widths)
        content, rotated, kept, positions, narrow, source = parts
        if cache is not None:
            queries = jnp.asarray(positions.query)
            rule, lost = rule_of(cache, queries, follow), beyond(cache, queries)
            cache = cache.append(kept, positions.query)
            kept = cache.latent
            causal = False
            positions = Positions(positions.query, cache.positions)
        # what a cache keeps was attended to
        finite = cache is not None and mask is None and latent is None
        latent, chosen = self._split(kept, latent, widths)
        absorbed = cache is not None and widths.absorb(x.shape[-2])
        if absorbed:
            content = content @ self._of_heads(self.key_weight).mT
            key = latent[..., None, :, :]
            value = key[..., : widths.rank]
        else:
            key, value = self._keys_and_values(latent, widths)
        query = jnp.concatenate([content, rotated], axis=-1)
        mask = for_heads(mask, (*query.shape[:-1], key.shape[-2]))
        both = all_of([None if cache is None else rule(cache), mask])
        select = selects(self, select, x, narrow, chosen, positions, both, causal)
        call = call_at(
            positions,
            query,
            key,
            value,
            mask=both,
            causal=causal,
            scale=widths.scale(self.scale),
            sinks=self.sinks,
            select=select,
            finite=finite,
        )
        heads = attend(call)
        heads = heads @ self._of_heads(self.value_weight) if absorbed else heads
        if cache is not None:
            heads = jnp.where(lost[..., None, :, None], jnp.nan, heads)
        out = gated(self, merge_heads(heads), source) @ self.output_weight
        lends = latent if return_latent else None
        return contract.returned(out, cache, select, return_select, lends)

    def attention_weights(
        self,
        x: Float[Array, "*batch n d"],
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        query_positions: QueryPositions = None,
        select: Select = None,
        latent: Latents = None,
    ) -> Float[Array, "*batch h n n"]:
        """How much each query attends to each key, in each head.

        Twin of :meth:`posattn.reference.LatentAttention.attention_weights`.

        Args:
            x: as in the call, like all that follow.
            mask: True means may attend.
            causal: hide the future.
            query_positions: where the tokens stand.
            select: of a layer with `shared`.
            latent: of a layer with `lent`.

        Returns:
            `(*batch, h, n, n)`; each row sums to 1, or is 0 if it may attend to nothing.
        """
        widths = contract.latent_weights(self, x)
        parts = latent_parts(self, x, query_positions, widths)
        content, rotated, kept, positions, narrow, _ = parts
        latent, chosen = self._split(kept, latent, widths)
        query = jnp.concatenate([content, rotated], axis=-1)
        key, _ = self._keys_and_values(latent, widths)
        mask = for_heads(mask, (*query.shape[:-1], key.shape[-2]))
        call = call_at(
            positions,
            query,
            key,
            mask=mask,
            causal=causal,
            scale=widths.scale(self.scale),
            sinks=self.sinks,
            select=selects(self, select, x, narrow, chosen, positions, mask, causal),
        )
        return definition.weights(call)

    def _split(self, kept, latent, widths):
        """The latent vectors, those of another layer if it lends them, and the keys of the indexer."""
        lent = self.kv_down_weight is None
        width = widths.rank + widths.rotary
        contract.lent(latent, lent, kept, (*kept.shape[:-1], width))
        return (latent, kept) if lent else jnp.split(kept, [width], axis=-1)

    def _keys_and_values(self, latent, widths):
        """Those of all heads, `(*batch, h, n, d_c + d_r)` and `(*batch, h, n, d_v)`."""
        latent, rotated = jnp.split(latent, [widths.rank], axis=-1)
        content, value = (
            split_heads(latent @ weight, self.num_heads)
            for weight in (self.key_weight, self.value_weight)
        )
        shape = (*content.shape[:-1], widths.rotary)
        rotated = jnp.broadcast_to(rotated[..., None, :, :], shape)
        return jnp.concatenate([content, rotated], axis=-1), value

    def _of_heads(self, weight):
        """The part of each head in a projection of the latent vector, `(h, r, d)`."""
        return jnp.moveaxis(weight.reshape(len(weight), self.num_heads, -1), 1, 0)
