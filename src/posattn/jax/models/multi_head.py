"""Multi-head attention: several attentions side by side, each in its own projection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Integer, Real

from posattn import contract
from posattn.configs.reading import as_heads
from posattn.jax.attention import attention, definition
from posattn.jax.attention.cache import KVCache, beyond
from posattn.jax.attention.call import call_at
from posattn.jax.attention.heads import merge_heads
from posattn.jax.attention.latent_cache import LatentCache
from posattn.jax.attention.masks import for_one_argument, span
from posattn.jax.models.layer_plan import added, arguments, blank, from_config, loaded
from posattn.jax.models.lightning import LightningIndexer
from posattn.jax.models.projections import (
    Inputs,
    affine,
    borrowed,
    chosen,
    drawn,
    gated,
    options_of,
    project,
    queries_and_keys,
    remember,
)
from posattn.jax.trees import as_pytree, register
from posattn.jax.validated import validated

__all__ = ["MultiHeadAttention"]

PLUGGED = ("rotate", "bias", "query_norm", "key_norm", "value_norm", "attention", "mask")
Rotate = contract.Rotation | Sequence[contract.Rotation | None]
Mask = Bool[Array, "... #n_q n_keys"] | contract.PositionMask
Bias = Float[Array, "... #n_q n_keys"] | contract.PositionBias | contract.ContentBias
QueryPositions = Real[Array | np.ndarray, "*#batch n_q"] | None
KeyPositions = Real[Array | np.ndarray, "*#batch n_k"] | None
Coordinates = Real[Array | np.ndarray, "*#batch n_q axes"] | None


@validated
@register
@dataclass(frozen=True, eq=False)
class MultiHeadAttention:
    """Several attentions side by side, each in its own projection of the input.

    Twin of :class:`posattn.reference.MultiHeadAttention`; a pytree.
    What is plugged in is part of the tree, so it may be a pytree with its own parameters, or a method
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
        value_norm: likewise for values, which are not rotated.
        attention: computes the output of the heads, called as `scaled_dot_product_attention`, which
            it is if not given; such as `functools.partial(ring_attention, across=...)`.
        mask: None, or a function of positions that always holds, such as `Window` or `Chunk`; a call's
            own mask holds as well.
        sinks: `(h)`, a score of each head that joins its softmax without a value, or None.
        soft_cap: the scores before any bias stay between this number and its negative, or None.
        gate_weight: `(d, h * d_h)`, of the gate, or None for a layer without one.
        gate_bias: `(h * d_h)` or None.
        indexer: a `LightningIndexer` that selects the keys of each query of a sequence's own tokens.

    Examples:
        >>> from posattn.jax import Rotary
        >>> layer = MultiHeadAttention.init(jax.random.key(0), 8, 2, rotate=Rotary())
        >>> x = jnp.ones((3, 5, 8))
        >>> jax.jit(layer)(x).shape
        (3, 5, 8)
    """

    query_weight: Float[Array, "d width"]
    key_weight: Float[Array, "d_kv width_kv"] | None
    value_weight: Float[Array, "d_kv width_kv"] | None
    output_weight: Float[Array, "width d"]
    query_bias: Float[Array, " width"] | None = None
    key_bias: Float[Array, " width_kv"] | None = None
    value_bias: Float[Array, " width_kv"] | None = None
    output_bias: Float[Array, " d"] | None = None
    num_heads: int = field(default=1, metadata={"static": True})
    dropout_rate: float = field(default=0.0, metadata={"static": True})
    rotate: Rotate | None = None
    bias: Bias | Sequence[Bias | None] | None = None
    scale: float | None = field(default=None, metadata={"static": True})
    num_kv_heads: int | None = field(default=None, metadata={"static": True})
    query_norm: Callable[[Any], Any] | None = None
    key_norm: Callable[[Any], Any] | None = None
    value_norm: Callable[[Any], Any] | None = None
    attention: contract.Attention | None = None
    mask: contract.PositionMask | None = None
    sinks: Float[Array, " h"] | None = None
    soft_cap: float | None = field(default=None, metadata={"static": True})
    gate_weight: Float[Array, "d width"] | None = None
    gate_bias: Float[Array, " width"] | None = None
    indexer: LightningIndexer | None = None

    def __post_init__(self):
        shared = contract.kv_heads(self.num_kv_heads, self.num_heads)
        object.__setattr__(self, "num_kv_heads", shared)
        for name in PLUGGED:
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
        query_norm: Callable[[Any], Any] | None = None,
        key_norm: Callable[[Any], Any] | None = None,
        value_norm: Callable[[Any], Any] | None = None,
        dropout_rate: float = 0.0,
        rotate: Rotate | None = None,
        bias: Bias | Sequence[Bias | None] | None = None,
        scale: float | None = None,
        attention: contract.Attention | None = None,
        mask: contract.PositionMask | None = None,
        sinks: bool = False,
        soft_cap: float | None = None,
        gate: bool = False,
        indexer: LightningIndexer | None = None,
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
            value_norm: likewise for values, which are not rotated.
            dropout_rate: probability in [0, 1) of dropping an attention weight.
            rotate: acts on queries and keys, `(x, positions) -> x`, or a pair of functions.
            bias: is added to the scores: an array, a function
                `(query_positions, key_positions) -> (h, n_q, n_k)`, an object with a method
                `scores`, or a list of those.
            scale: the factor on the products of queries and keys, one over the root of `head_dim` if
                not given.
            attention: computes the output of the heads, called as `scaled_dot_product_attention`, which
                it is if not given; such as `functools.partial(ring_attention, across=...)`.
            mask: a function of positions that always holds, such as `Window` or `Chunk`.
            sinks: give each head a learned score that joins its softmax without a value, from zero on.
            soft_cap: keeps the scores before any bias between this number and its negative.
            gate: multiply the output of the heads by a sigmoid of one more projection of the queries'
                sequence, to the width of all heads.
            indexer: a `LightningIndexer` that selects the keys of each query.
            dtype: of the weights; JAX's default one if not given.
        """
        sizes = contract.layer_sizes(dim, num_heads, num_kv_heads, head_dim, kv_dim, gate)
        dropout_rate = contract.dropout_rate(dropout_rate)
        contract.position_mask(mask)
        return cls(
            **drawn(rng, sizes.weights, use_bias, use_output_bias, dtype),
            num_heads=sizes.num_heads,
            dropout_rate=dropout_rate,
            rotate=rotate,
            bias=bias,
            scale=None if scale is None else contract.scale(scale),
            num_kv_heads=sizes.num_kv_heads,
            query_norm=query_norm,
            key_norm=key_norm,
            value_norm=value_norm,
            attention=attention,
            mask=mask,
            sinks=jnp.zeros(sizes.num_heads, dtype) if sinks else None,
            soft_cap=contract.soft_cap(soft_cap),
            indexer=indexer,
        )

    def init_cache(
        self,
        batch_shape: int | Sequence[int],
        max_len: int,
        *,
        rotated: bool = True,
        dtype: DTypeLike | None = None,
    ) -> KVCache:
        """Make an empty cache that fits this layer.

        Twin of :meth:`posattn.reference.MultiHeadAttention.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
            rotated: whether keys are kept as `rotate` leaves them.
            dtype: of keys and values; that of the weights if not given.
        """
        groups = self.num_kv_heads
        sizes = batch_shape, groups, max_len, self.key_weight.shape[-1] // groups
        dtype = self.key_weight.dtype if dtype is None else dtype
        cache = KVCache.init(*sizes, window=span(self.mask), rotated=rotated, dtype=dtype)
        if self.indexer is None:
            return cache
        width = self.indexer.key_weight.shape[1]
        index = LatentCache.init(batch_shape, max_len, width, dtype=dtype)
        return replace(cache, index=index)

    from_config = classmethod(from_config)

    @classmethod
    def _of_layer(cls, layer, rng, dtype, loads):
        """A layer as a plan describes it, with zeros where it loads weights."""
        as_heads(layer)
        options = arguments(layer, dtype) | {"bias": added(layer, rng, dtype)}
        options["indexer"] = LightningIndexer.of_layer(layer, rng, dtype)
        return blank(cls, rng, options) if loads else cls.init(rng, **options)

    _loaded = loaded

    def __call__(
        self,
        query: Float[Array, "*batch n_q d"],
        key: Float[Array, "*batch n_k d_kv"] | None = None,
        value: Float[Array, "*batch n_k d_kv"] | None = None,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        bias: Bias | Sequence[Bias | None] | None = None,
        query_positions: QueryPositions = None,
        key_positions: KeyPositions = None,
        coordinates: Coordinates = None,
        select: Integer[Array | np.ndarray, "..."] | None = None,
        cache: KVCache | None = None,
        rng: Array | None = None,
    ) -> Float[Array, "*batch n_q d"] | tuple[Float[Array, "*batch n_q d"], KVCache]:
        """Attend from `query` to `key` and mix `value`.

        Twin of calling :class:`posattn.reference.MultiHeadAttention`.

        Args:
            query: `(*batch, n_q, d)`.
            key: `(*batch, n_k, d_kv)`; the queries themselves if not given (self-attention).
            value: `(*batch, n_k, d_kv)`; the keys if not given.
            mask: besides the layer's own: bool, True means may attend; its shape broadcasts to
                `(*batch, n_q, n_k)`, or with one axis more than `query` to `(*batch, h, n_q, n_k)`;
                or a function of the positions of queries and keys that returns one.
            causal: hide the future; queries are aligned to the end of the keys.
            bias: is added to the scores of this call, of the kinds that `init` takes.
            query_positions: where the queries stand, in tokens, `(n_q)` or `(*batch, n_q)`; if not
                given, at the last `n_q` positions of the keys. Only `rotate`, biases, masks
                and a cache use positions.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; if not given, where the
                queries stand in self-attention, and else from 0 on.
            coordinates: `(*batch, n_q, axes)` or `(n_q, axes)`: what `rotate` gets instead of positions.
                Only where `key` is not given, and not with a cache whose keys are not rotated.
            select: indices of the keys, or of the slots of the cache, that each query reads,
                `(*batch, n_q, k)`, or with an axis of heads before `n_q`; -1 is no key.
            cache: the tokens before. Each query then attends to what it holds up to the query's own
                position, the query's own token included; `key` and `value` are not given, and tokens
                at a negative position are padding, which nobody attends to.
            rng: a JAX key where dropout draws from; None means no dropout.

        Returns:
            `(*batch, n_q, d)`; the offset of the output projection (or zero) where a query may attend
            to nothing. With a cache, this and the new cache.
        """
        at = query_positions, key_positions, coordinates
        contract.indexed(self.indexer, key, coordinates, select, cache)
        inputs = Inputs(query, key, value, mask, causal, bias, *at)
        out, cache, _ = called(self, inputs, cache, rng, select)
        return out if cache is None else (out, cache)

    def attention_weights(
        self,
        query: Float[Array, "*batch n_q d"],
        key: Float[Array, "*batch n_k d_kv"] | None = None,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        bias: Bias | Sequence[Bias | None] | None = None,
        query_positions: QueryPositions = None,
        key_positions: KeyPositions = None,
        coordinates: Coordinates = None,
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
            coordinates: what `rotate` gets instead of positions.

        Returns:
            The weights, `(*batch, h, n_q, n_k)`, before dropout.
        """
        at = query_positions, key_positions, coordinates
        contract.indexed(self.indexer, key, coordinates)
        return weights(self, Inputs(query, key, None, mask, causal, bias, *at))


def called(layer, inputs, cache=None, rng=None, select=None, lent=None):
    """The output of a call, its cache or None, and the heads it attended with, those of `lent` if given."""
    lost = None
    if lent is not None:
        heads = borrowed(layer, inputs, lent)
    else:
        heads = project(layer, inputs, cache)
        if cache is not None:
            lost = beyond(cache, jnp.asarray(heads.positions.query), cache.window)
            heads, cache = remember(layer, heads, cache, inputs.query_positions is None)
    if layer.indexer is not None:
        select, cache = chosen(layer, inputs.query, heads, cache)
    mixed = attend(layer, heads, rng, select)
    if lost is not None:
        mixed = jnp.where(lost[..., None, :, None], jnp.nan, mixed)
    mixed = gated(layer, merge_heads(mixed), inputs.query)
    alike = jax.typeof(inputs.query).sharding  # what heads on several devices add up to
    return affine(mixed, layer.output_weight, layer.output_bias, alike), cache, heads


def weights(layer, inputs, lent=None):
    """How much each query attends to each key, which may be one of `lent`."""
    heads = borrowed(layer, inputs, lent) if lent else queries_and_keys(layer, inputs)
    options = options_of(layer, heads)
    if layer.indexer is not None:
        options["select"] = chosen(layer, inputs.query, heads, None)[0]
    return definition.weights(call_of(heads, options))


def attend(layer, heads, rng, select=None):
    """Mix the values of the heads, by the layer's own attention if it has one."""
    options = options_of(layer, heads)
    if select is not None:
        options["select"] = select
    if rng is not None:
        options |= {"dropout_rate": layer.dropout_rate, "rng": rng}
    if layer.attention is None:
        return attention.attend(call_of(heads, options))
    shape = *heads.query.shape[:-1], heads.key.shape[-2]
    options["mask"] = for_one_argument(options["mask"], heads.positions, shape)
    at = heads.positions
    options |= {"query_positions": at.query, "key_positions": at.key}
    return layer.attention(heads.query, heads.key, heads.value, **options)


def call_of(heads, options):
    """The call of heads, which norms and rotations may have left in any shape."""
    arrays = heads.query, heads.key, heads.value
    contract.attention(*arrays, grouped=True)
    return call_at(heads.positions, *arrays, finite=heads.finite, **options)
