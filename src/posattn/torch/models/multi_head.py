"""Multi-head attention: several attentions side by side, each in its own projection."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer, Real
from torch import Tensor, nn

from posattn import contract
from posattn.configs.reading import as_heads
from posattn.torch.attention import attention, definition
from posattn.torch.attention.cache import KVCache, appended, visible_to
from posattn.torch.attention.call import Positions, call_at
from posattn.torch.attention.gathered import as_mask
from posattn.torch.attention.heads import merge_heads
from posattn.torch.attention.latent_cache import LatentCache
from posattn.torch.attention.masks import span
from posattn.torch.attention.random import Rng, warn_of_no_dropout
from posattn.torch.models.layer_plan import arguments, from_config, load
from posattn.torch.models.lightning import LightningIndexer
from posattn.torch.models.projections import (
    Inputs,
    as_given,
    borrowed,
    chosen,
    gated,
    made_by,
    options_of,
    project,
    queries_and_keys,
    registered,
    rotated,
)
from posattn.torch.validated import validated

__all__ = ["MultiHeadAttention"]

Bias = contract.PositionBias | contract.ContentBias
CallMask = Bool[Tensor, "*#batch_and_heads #n_q n_k"] | contract.PositionMask
CallBias = Float[Tensor, "..."] | Bias | Sequence[Float[Tensor, "..."] | Bias | None]
Rotate = contract.Rotation | Sequence[contract.Rotation | None]

ROLES = ("query", "key", "value", "output", "gate")
OPTIONS = (
    "dropout_rate",
    "scale",
    "rotate",
    "bias",
    "query_norm",
    "key_norm",
    "value_norm",
    "attention",
    "mask",
    "soft_cap",
)


@validated
class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own projection of the input.

    Twin of :class:`posattn.reference.MultiHeadAttention`.
    The weights are those of :class:`torch.nn.Linear`, `query`, `key`, `value`, `output` and `gate` (None
    without one), which keep them transposed.
    Dropout acts when `rng` is given to the call; a layer in `train` mode that gets none warns.
    `rotate`, `bias` and the norms may be modules with their own parameters, also inside of a pair or
    a list.

    Args:
        dim: the width of the queries and of the output, at least 1.
        num_heads: the number of heads; it divides `dim` if `head_dim` is not given.
        num_kv_heads: the number of heads of keys and values, a divisor of `num_heads`; all if not given.
        head_dim: the width of a head; `dim / num_heads` if not given.
        kv_dim: the width of the sequence of keys and values; `dim` if not given.
        use_bias: give each projection an offset, which starts at zero.
        use_output_bias: whether the output's projection has one; as the others if not given.
        query_norm: acts on the queries `(*batch, h, n_q, d_h)` before they rotate, such as
            :class:`torch.nn.RMSNorm`.
        key_norm: acts on the keys `(*batch, h_kv, n_k, d_h)` before they rotate.
        value_norm: acts on the values `(*batch, h_kv, n_k, d_h)`.
        dropout_rate: probability in [0, 1) of dropping an attention weight.
        rotate: acts on queries and keys, `(x, positions) -> x`, or a pair of functions.
        bias: is added to the scores, `(query_positions, key_positions) -> (h, n_q, n_k)`, or an object
            with a method `scores`, or a list of those.
        scale: the factor on the products of queries and keys, `1 / sqrt(d_h)` if not given.
        attention: computes the output of the heads, called as `scaled_dot_product_attention`, which it
            is if not given; such as `functools.partial(ring_attention, across=...)`.
        mask: a function of positions that always holds, such as `Window` or `Chunk`; a call's own
            mask holds as well.
        sinks: give each head a learned score that joins its softmax without a value, from zero on.
        soft_cap: keeps the scores before any bias between this number and its negative.
        gate: multiply the output of the heads by a sigmoid of one more projection of the queries'
            sequence, to the width of all heads.
        indexer: a `LightningIndexer` that selects the keys of each query of a sequence's own tokens.
        dtype: of the weights; PyTorch's default one if not given.
        device: of the weights.
        rng: where the weights are drawn from.

    Examples:
        >>> layer = MultiHeadAttention(8, 2)
        >>> layer(torch.ones(3, 5, 8), causal=True).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
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
        bias: Bias | Sequence[Bias] | None = None,
        scale: float | None = None,
        attention: contract.Attention | None = None,
        mask: contract.PositionMask | None = None,
        sinks: bool = False,
        soft_cap: float | None = None,
        gate: bool = False,
        indexer: LightningIndexer | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        sizes = contract.layer_sizes(dim, num_heads, num_kv_heads, head_dim, kv_dim, gate)
        self.num_heads, self.num_kv_heads = sizes.num_heads, sizes.num_kv_heads
        self.head_dim = sizes.weights[0][1] // self.num_heads
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.scale = None if scale is None else contract.scale(scale)
        device = torch.get_default_device() if device is None else device
        options = {"device": device, "dtype": dtype}
        use_output_bias = use_bias if use_output_bias is None else use_output_bias
        self.gate = None
        for role, shape in zip(ROLES, sizes.weights, strict=False):
            use = use_output_bias if role == "output" else use_bias
            linear = nn.utils.skip_init(nn.Linear, *shape, bias=use, **options)
            setattr(self, role, linear)
        self.sinks = nn.Parameter(torch.empty(self.num_heads, **options)) if sinks else None
        self.soft_cap = contract.soft_cap(soft_cap)
        self.dim, self.kv_dim = sizes.weights[0][0], sizes.weights[1][0]
        self.query_norm, self.key_norm, self.value_norm = query_norm, key_norm, value_norm
        self.rotate, self.bias, self.attention = rotate, bias, attention
        contract.position_mask(mask)
        self.mask, self.indexer = mask, indexer
        self.reset_parameters(rng)

    from_config = classmethod(from_config)

    @classmethod
    def _of_layer(cls, layer, **options):
        """A layer as a plan describes it."""
        as_heads(layer)
        rest = {"indexer": LightningIndexer.of_layer(layer, **options)}
        rest["rng"] = options.pop("rng")
        return cls(**arguments(layer, **options), **rest)

    _load = load

    def __setattr__(self, name, value):
        if name in ("rotate", "bias"):
            value = registered(value)
            if not isinstance(value, nn.Module):
                self._modules.pop(name, None)  # of a module that was here before
        super().__setattr__(name, value)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the weights uniformly, within Glorot's bounds, and set the offsets and sinks to zero.

        Args:
            rng: where the weights are drawn from; PyTorch's own generator if not given.
        """
        linears = (getattr(self, role) for role in ROLES)
        for linear in (found for found in linears if found is not None):
            nn.init.xavier_uniform_(linear.weight, generator=rng)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

    def extra_repr(self) -> str:
        """The numbers of heads, and what is no module."""
        heads = f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}"
        named = {name: getattr(self, name) for name in OPTIONS}
        shown = [
            f"{name}={value!r}"
            for name, value in named.items()
            if not (value is None or value == 0 or isinstance(value, nn.Module))
        ]
        sinks = [] if self.sinks is None else ["sinks=True"]
        return ", ".join([heads, *shown, *sinks])

    def init_cache(
        self,
        batch_shape: int | Sequence[int],
        max_len: int,
        *,
        rotated: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> KVCache:
        """Make an empty cache that fits this layer.

        Twin of :meth:`posattn.reference.MultiHeadAttention.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
            rotated: whether keys are kept as `rotate` leaves them.
            dtype: of keys and values; if not given, what the layer makes of them: under
                :class:`torch.autocast` its dtype, otherwise that of the weights.
            device: where the cache lives; where the weights are if not given.
        """
        dtype, device = made_by(self.key, dtype, device)
        sizes = batch_shape, self.num_kv_heads, max_len, self.head_dim
        made = {"dtype": dtype, "device": device}
        cache = KVCache.init(*sizes, window=span(self.mask), rotated=rotated, **made)
        if self.indexer is not None:
            width = self.indexer.key.out_features
            cache.index = LatentCache.init(batch_shape, max_len, width, **made)
        return cache

    def forward(
        self,
        query: Float[Tensor, "*batch n_q d"],
        key: Float[Tensor, "*batch n_k d_kv"] | None = None,
        value: Float[Tensor, "*batch n_k d_kv"] | None = None,
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        bias: CallBias | None = None,
        query_positions: Real[Tensor, "*#batch n_q"] | None = None,
        key_positions: Real[Tensor, "*#batch n_k"] | None = None,
        coordinates: Real[Tensor, "*#batch n_q axes"] | None = None,
        select: Integer[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
        rng: Rng | None = None,
    ) -> Float[Tensor, "*batch n_q d"] | tuple[Float[Tensor, "*batch n_q d"], KVCache]:
        """Attend from `query` to `key` and mix `value`.

        Twin of calling :class:`posattn.reference.MultiHeadAttention`.

        Args:
            query: `(*batch, n_q, d)`.
            key: `(*batch, n_k, d_kv)`; the queries' own sequence if not given.
            value: `(*batch, n_k, d_kv)`; the keys' sequence if not given.
            mask: besides the layer's own: bool, True means may attend; it broadcasts to
                `(*batch, n_q, n_k)` and holds for every head, or has one axis more,
                `(*batch, h, n_q, n_k)`; or a function of positions that returns `(*batch, n_q, n_k)`.
            causal: hide the future; queries are aligned to the end of the keys.
            bias: is added to the scores of this call, on top of the layer's own: an array that broadcasts
                to `(*batch, h, n_q, n_k)`, a function of positions, an object with `scores`, or a list.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`; at the last positions of
                the keys if not given.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; as the queries if neither
                they nor `key` are given, otherwise 0 to `n_k - 1`.
            coordinates: `(*batch, n_q, axes)` or `(n_q, axes)`: what `rotate` gets instead of positions.
                Only where `key` is not given, and not with a cache whose keys are not rotated.
            select: indices of the keys, or of the slots of the cache, that each query reads,
                `(*batch, n_q, k)`, or with an axis of heads before `n_q`; -1 is no key.
            cache: the keys and values of the tokens before; then each query attends to what stands up to
                its own position, and a negative position marks padding.
            rng: where dropout draws from, a generator or a seed; None means no dropout.

        Returns:
            `(*batch, n_q, d)`; the offset of the output projection (or zero) where a query may attend to
            nothing. With a cache, that and the cache of all tokens so far.
        """
        warn_of_no_dropout(self, rng)
        at = query_positions, key_positions, coordinates
        contract.indexed(self.indexer, key, coordinates, select, cache)
        inputs = Inputs(query, key, value, mask, causal, bias, *at)
        out, cache, _ = called(self, inputs, cache, rng, select)
        return out if cache is None else (out, cache)

    def attention_weights(
        self,
        query: Float[Tensor, "*batch n_q d"],
        key: Float[Tensor, "*batch n_k d_kv"] | None = None,
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        bias: CallBias | None = None,
        query_positions: Real[Tensor, "*#batch n_q"] | None = None,
        key_positions: Real[Tensor, "*#batch n_k"] | None = None,
        coordinates: Real[Tensor, "*#batch n_q axes"] | None = None,
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """How much each query attends to each key, in every head: what the call mixes values with.

        Twin of :meth:`posattn.reference.MultiHeadAttention.attention_weights`.

        Args:
            query: as in the call, like all that follow.
            key: the queries' own sequence if not given.
            mask: True means may attend.
            causal: hide the future.
            bias: is added to the scores, on top of the layer's own.
            query_positions: where the queries stand.
            key_positions: where the keys stand.
            coordinates: what `rotate` gets instead of positions.

        Returns:
            `(*batch, h, n_q, n_k)`; each row sums to 1, with sinks to less, or is 0 if it may attend to
            nothing.
        """
        at = query_positions, key_positions, coordinates
        contract.indexed(self.indexer, key, coordinates)
        return weights(self, Inputs(query, key, None, mask, causal, bias, *at))


def called(layer, inputs, cache=None, rng=None, select=None, lent=None):
    """The output of a call, its cache or None, and the heads it attended with, those of `lent` if given."""
    if lent is not None:
        heads = borrowed(layer, inputs, lent)
    else:
        heads = project(layer, inputs, cache)
        if cache is not None:
            heads, cache = remember(layer, heads, cache, inputs.query_positions is None)
    if layer.indexer is not None:
        select, cache = chosen(layer, inputs.query, heads, cache)
    mixed = attend(layer, heads, rng, select)
    return layer.output(gated(layer, merge_heads(mixed), inputs.query)), cache, heads


def weights(layer, inputs, lent=None):
    """How much each query attends to each key, which may be one of `lent`."""
    heads = borrowed(layer, inputs, lent) if lent else queries_and_keys(layer, inputs)
    options = options_of(layer, heads)
    if layer.indexer is not None:
        options["select"] = chosen(layer, inputs.query, heads, None)[0]
    return definition.weights(as_mask(call_of(heads, options)))


def remember(layer, heads, cache, follow):
    """Keep the tokens of a call, and let its queries attend to all that is kept up to their own place.

    What nobody has reached yet is left out, unless an array has a number for each slot.
    """
    queries = heads.positions.query
    cache, seen, end, follow = appended(cache, heads.key, heads.value, queries, follow)
    finite = seen is cache and all(mask is None for mask in heads.masks)
    held, causal = None, False
    if any(isinstance(x, Tensor) for x in (*heads.masks, *heads.biases)):
        held = seen.mask(queries)
    else:
        seen, held, causal = visible_to(seen, queries, end, follow)
    key = seen.key
    if not cache.rotated:
        key = rotated(as_given(layer.rotate), 1, key, seen.positions)
    heads = heads._replace(
        key=key,
        value=seen.value,
        positions=Positions(queries, seen.positions),
        masks=(held, *heads.masks),
        causal=causal,
        finite=finite,  # a cache hides nothing but zeros
    )
    return heads, cache


def attend(layer, heads, rng, select=None):
    """Mix the values of the heads, by the layer's own attention if it has one."""
    options = options_of(layer, heads)
    if select is not None:
        options["select"] = select
    if rng is not None:
        options |= {"dropout_rate": layer.dropout_rate, "rng": rng}
    if layer.attention is None:
        return attention.attend(call_of(heads, options))
    at = (None, None) if heads.aligned else heads.positions
    options |= {"query_positions": at[0], "key_positions": at[1]}
    return layer.attention(heads.query, heads.key, heads.value, **options)


def call_of(heads, options):
    """The call of heads, which norms and rotations may have left in any shape."""
    arrays = heads.query, heads.key, heads.value
    contract.attention(*arrays, grouped=True)
    return call_at(
        heads.positions, *arrays, **options, aligned=heads.aligned, finite=heads.finite
    )
