"""Multi-head attention: several attentions side by side, each in its own projection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Inexact, Integer, Num

from posattn import contract
from posattn.reference.attention.attention import (
    attention_weights,
    scaled_dot_product_attention,
)
from posattn.reference.attention.cache import KVCache
from posattn.reference.attention.heads import merge_heads
from posattn.reference.attention.latent_cache import LatentCache
from posattn.reference.attention.masks import span
from posattn.reference.models.lightning import LightningIndexer
from posattn.reference.models.projections import (
    Inputs,
    affine,
    chosen,
    drawn,
    gated,
    mask_of,
    project,
    queries_and_keys,
    remember,
    sinks_and_cap,
)
from posattn.reference.validated import validated

__all__ = ["MultiHeadAttention"]


Bias = contract.PositionBias | contract.ContentBias
CallMask = Bool[np.ndarray, "*#batch_and_heads #n_q n_k"] | contract.PositionMask
CallBias = (
    Inexact[np.ndarray, "..."] | Bias | Sequence[Inexact[np.ndarray, "..."] | Bias | None]
)
Rotate = contract.Rotation | Sequence[contract.Rotation | None]


@validated
@dataclass(frozen=True, eq=False)
class MultiHeadAttention:
    r"""Several attentions side by side, each in its own projection of the input.

    .. math:: \operatorname{MultiHead}(\mathbf{Q}, \mathbf{K}, \mathbf{V}) =
        [\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}]\,\mathbf{W}^{(o)}, \qquad
        \mathbf{H}_h = \operatorname{softmax}\left(\frac{\mathbf{Q}_h\mathbf{K}_h^\top}{\sqrt{d_h}}
        + \mathbf{B}_h\right)\mathbf{V}_h,

    where $\mathbf{Q}_h, \mathbf{K}_h, \mathbf{V}_h$ are the columns of head $h$ in
    $\mathbf{Q}\mathbf{W}^{(q)}$, $\mathbf{K}\mathbf{W}^{(k)}$ and $\mathbf{V}\mathbf{W}^{(v)}$, and
    $d_h$ is the width of a head, $d / H$ if not given.
    Self-attention is the case in which queries, keys and values are the same sequence.

    With fewer heads of keys and values, $H_{kv}$, head $h$ of the queries meets head
    $\lfloor h H_{kv} / H \rfloor$ of the keys (grouped heads; $H_{kv} = 1$: multi-query).

    A positional scheme enters through two callables: `rotate(x, positions)` acts on the
    queries and keys of each head, and `bias(query_positions, key_positions)` returns what is
    added to the scores, `(H, n_q, n_k)`.
    Where queries and keys need different functions, `rotate` is a pair of them; where several
    biases add up, `bias` is a list of them.
    A scheme that depends on content is a `bias` with a method
    `scores(query, key, query_positions, key_positions)` instead of the call, and where it
    changes the values as well, with `values(weights, query_positions, key_positions)`, which is
    added to the output of the heads.

    Sinks and a soft cap act on the weights of each head as in :func:`attention_weights`.
    A gate has a projection of its own, which scales each entry of the heads by what the query's token
    says, before $\mathbf{W}^{(o)}$:

    .. math:: [\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}] \quad\text{becomes}\quad
        [\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}] \odot \frac{1}{1 + \exp(-\mathbf{Q}\mathbf{W}^{(g)})}.

    Make a layer with `MultiHeadAttention.init(rng, dim, num_heads)`, or from weights that exist.

    Args:
        query_weight: $\mathbf{W}^{(q)}$, `(d, H d_h)`; `x @ weight` projects.
        key_weight: $\mathbf{W}^{(k)}$, `(d_kv, H_kv d_h)`.
        value_weight: $\mathbf{W}^{(v)}$, `(d_kv, H_kv d_h)`.
        output_weight: $\mathbf{W}^{(o)}$, `(H d_h, d)`.
        query_bias: `(H d_h)`, or None for a projection without an offset; likewise the next three.
        key_bias: `(H_kv d_h)` or None.
        value_bias: `(H_kv d_h)` or None.
        output_bias: `(d)` or None.
        num_heads: $H$, a divisor of the width of `query_weight`.
        dropout_rate: probability in [0, 1) of dropping an attention weight.
        rotate: None, a function `(x, positions) -> x`, or a pair of them for queries and keys.
        bias: None, a function `(query_positions, key_positions) -> (H, n_q, n_k)`, an object
            with a method `scores`, or a list of those.
        scale: the factor on $\mathbf{Q}_h\mathbf{K}_h^\top$, $1/\sqrt{d_h}$ if not given.
        num_kv_heads: $H_{kv}$, a divisor of $H$; $H$ if not given.
        query_norm: None, or a function of the queries of each head, `(*batch, H, n_q, d_h)`,
            before they rotate.
        key_norm: the same for the keys, `(*batch, H_kv, n_k, d_h)`.
        value_norm: the same for the values, which do not rotate.
        attention: computes the output of the heads, called as `scaled_dot_product_attention`, which it
            is if not given; such as `functools.partial(ring_attention, across=...)`.
        mask: None, or a function of positions that always holds, such as `Window` or `Chunk`; a call's
            own mask holds as well.
        sinks: `(H)`, a score of each head that joins its softmax without a value, or None.
        soft_cap: the scores before any bias stay between this number and its negative, or None.
        gate_weight: $\mathbf{W}^{(g)}$, `(d, H d_h)`, or None for a layer without a gate.
        gate_bias: `(H d_h)` or None.
        indexer: a `LightningIndexer` that selects the keys of each query of a sequence's own tokens.

    Examples:
        >>> layer = MultiHeadAttention.init(np.random.default_rng(0), 8, 2)
        >>> x = np.random.default_rng(1).normal(size=(3, 5, 8))
        >>> layer(x, causal=True).shape
        (3, 5, 8)

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.2.2; grouped heads:
        :cite:t:`ainslie2023gqa`; the gate: :cite:t:`qiu2025gated`, where it is the one after attention
        for each entry, as in Qwen3-Next.
    """

    query_weight: Inexact[np.ndarray, "d hd_h"]
    key_weight: Inexact[np.ndarray, "d_kv gd_h"]
    value_weight: Inexact[np.ndarray, "d_kv gd_h"]
    output_weight: Inexact[np.ndarray, "hd_h d"]
    query_bias: Inexact[np.ndarray, " hd_h"] | None = None
    key_bias: Inexact[np.ndarray, " gd_h"] | None = None
    value_bias: Inexact[np.ndarray, " gd_h"] | None = None
    output_bias: Inexact[np.ndarray, " d"] | None = None
    num_heads: int = 1
    dropout_rate: float = 0.0
    rotate: Rotate | None = None
    bias: Bias | Sequence[Bias] | None = None
    scale: float | None = None
    num_kv_heads: int | None = None
    query_norm: Callable[[Any], Any] | None = None
    key_norm: Callable[[Any], Any] | None = None
    value_norm: Callable[[Any], Any] | None = None
    attention: contract.Attention | None = None
    mask: contract.PositionMask | None = None
    sinks: Inexact[np.ndarray, " h"] | None = None
    soft_cap: float | None = None
    gate_weight: Inexact[np.ndarray, "d hd_h"] | None = None
    gate_bias: Inexact[np.ndarray, " hd_h"] | None = None
    indexer: LightningIndexer | None = None

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
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
    ) -> "MultiHeadAttention":
        r"""Draw the weights uniformly, within Glorot's bounds: $\pm\sqrt{6/(a + b)}$ from $a$ to $b$ entries.

        Args:
            rng: where the weights are drawn from.
            dim: the width $d$ of the queries and of the output, at least 1.
            num_heads: the number of heads $H$; it divides $d$ if `head_dim` is not given.
            num_kv_heads: the number of heads of keys and values, a divisor of $H$; $H$ if not given.
            head_dim: the width $d_h$ of a head; $d / H$ if not given.
            kv_dim: the width of the sequence of keys and values; $d$ if not given.
            use_bias: give each projection an offset, which starts at zero.
            use_output_bias: whether the output's projection has one; as the others if not given.
            query_norm: acts on the queries of each head before they rotate.
            key_norm: acts on the keys of each head before they rotate.
            value_norm: acts on the values of each head.
            dropout_rate: probability in [0, 1) of dropping an attention weight.
            rotate: acts on queries and keys, `(x, positions) -> x`, or a pair of functions.
            bias: is added to the scores, `(query_positions, key_positions) -> (H, n_q, n_k)`, or
                an object with a method `scores`, or a list of those.
            scale: the factor on the products of queries and keys, $1/\sqrt{d_h}$ if not given.
            attention: computes the output of the heads, called as `scaled_dot_product_attention`,
                which it is if not given; such as `functools.partial(ring_attention, across=...)`.
            mask: a function of positions that always holds, such as `Window` or `Chunk`.
            sinks: give each head a learned score that joins its softmax without a value, from zero on.
            soft_cap: keeps the scores before any bias between this number and its negative.
            gate: multiply the output of the heads by a sigmoid of one more projection of the queries'
                sequence, to the width of all heads.
            indexer: a `LightningIndexer` that selects the keys of each query.

        Raises:
            ValueError: if a number lies outside its range or does not divide what it must.
        """
        sizes = contract.layer_sizes(dim, num_heads, num_kv_heads, head_dim, kv_dim, gate)
        dropout_rate = contract.dropout_rate(dropout_rate)
        contract.position_mask(mask)
        return cls(
            **drawn(rng, sizes.weights, use_bias, use_output_bias),
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
            sinks=np.zeros(sizes.num_heads) if sinks else None,
            soft_cap=contract.soft_cap(soft_cap),
            indexer=indexer,
        )

    def init_cache(
        self, batch_shape: int | Sequence[int], max_len: int, *, rotated: bool = True
    ) -> KVCache:
        """Make an empty cache that fits this layer.

        If the layer's own mask is a `Window` or a `Chunk`, the cache keeps no more tokens than that.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
            rotated: whether keys are kept as `rotate` leaves them; see :class:`KVCache`.
        """
        groups = self.num_kv_heads or self.num_heads
        width = self.key_weight.shape[-1] // groups
        cache = KVCache.init(
            batch_shape, groups, max_len, width, window=span(self.mask), rotated=rotated
        )
        if self.indexer is None:
            return cache
        width = self.indexer.key_weight.shape[1]
        return replace(cache, index=LatentCache.init(batch_shape, max_len, width))

    def __call__(
        self,
        query: Inexact[np.ndarray, "*batch n_q d"],
        key: Inexact[np.ndarray, "*batch n_k d_kv"] | None = None,
        value: Inexact[np.ndarray, "*batch n_k d_kv"] | None = None,
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        bias: CallBias | None = None,
        query_positions: Num[np.ndarray, "*#batch n_q"] | None = None,
        key_positions: Num[np.ndarray, "*#batch n_k"] | None = None,
        coordinates: Num[np.ndarray, "*#batch n_q axes"] | None = None,
        select: Integer[np.ndarray, "..."] | None = None,
        cache: KVCache | None = None,
        rng: np.random.Generator | None = None,
    ) -> (
        Inexact[np.ndarray, "*batch n_q d"]
        | tuple[Inexact[np.ndarray, "*batch n_q d"], KVCache]
    ):
        r"""Attend from `query` to `key` and mix `value`.

        Args:
            query: `(*batch, n_q, d)`.
            key: `(*batch, n_k, d_kv)`; the queries' own sequence if not given.
            value: `(*batch, n_k, d_kv)`; the keys' sequence if not given.
            mask: besides the layer's own: bool, True means may attend; its shape broadcasts to
                `(*batch, n_q, n_k)`, and it holds for every head; with one axis more than `query` it
                has one for the heads, `(*batch, H, n_q, n_k)`; or a function of positions
                that returns `(*batch, n_q, n_k)`.
            causal: hide the future; queries are aligned to the end of the keys.
            bias: is added to the scores of this call, on top of the layer's own: an array whose shape
                broadcasts to `(*batch, H, n_q, n_k)`, a function of positions, an object with a
                method `scores`, or a list of those.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`. If not given, they
                take the last $n_q$ positions of the keys.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`. If not given:
                those of the queries if `key` is not given either, otherwise $0, \ldots, n_k - 1$.
                Only `rotate`, `bias`, `cache` and masks use positions.
            coordinates: `(*batch, n_q, axes)`, or without batch axes: what `rotate` gets instead of
                positions, such as rows and columns of patches. Masks, biases and a cache still use
                the positions. Only where `key` is not given, and not with a cache whose keys are not
                rotated.
            select: indices of the keys, or of the slots of the cache, that each query reads,
                `(*batch, n_q, k)`, or with an axis of heads before `n_q`; -1 is no key.
            cache: the keys and values of the tokens before. Then each query attends to what the
                cache holds up to its own position, its own token included, `key` and `value` are
                not given, and tokens at a negative position are padding: nobody attends to them.
            rng: where dropout draws from; None means no dropout.

        Returns:
            `(*batch, n_q, d)`; the offset of the output projection (or zero) where a query may
            attend to nothing. With a cache, that and the cache of all tokens so far.

        Raises:
            ValueError: if shapes do not fit, or the cache is full.
        """
        at = query_positions, key_positions, coordinates
        contract.indexed(self.indexer, key, coordinates, select, cache)
        heads = project(self, Inputs(query, key, value, mask, causal, bias, *at), cache)
        if cache is not None:
            heads, cache = remember(self, heads, cache)
        if self.indexer is not None:
            select, cache = chosen(self, query, heads, cache)
        mixed = attend(self, heads, rng, select)
        mixed = gated(self, merge_heads(mixed), query)
        out = affine(mixed, self.output_weight, self.output_bias)
        return out if cache is None else (out, cache)

    def attention_weights(
        self,
        query: Inexact[np.ndarray, "*batch n_q d"],
        key: Inexact[np.ndarray, "*batch n_k d_kv"] | None = None,
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        bias: CallBias | None = None,
        query_positions: Num[np.ndarray, "*#batch n_q"] | None = None,
        key_positions: Num[np.ndarray, "*#batch n_k"] | None = None,
        coordinates: Num[np.ndarray, "*#batch n_q axes"] | None = None,
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        """How much each query attends to each key, in every head: what the call mixes values with.

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
            `(*batch, H, n_q, n_k)`; each row sums to 1, with sinks to less, or is 0 if it may attend to
            nothing.
        """
        at = query_positions, key_positions, coordinates
        inputs = Inputs(query, key, None, mask, causal, bias, *at)
        heads = queries_and_keys(self, inputs)
        options = options_of(self, heads)
        contract.indexed(self.indexer, key, coordinates)
        if self.indexer is not None:
            options["select"] = chosen(self, query, heads, None)[0]
        return attention_weights(heads.query, heads.key, **options)


def attend(layer, heads, rng, select=None):
    """Mix the values of the heads, by the layer's own attention if it has one."""
    options = options_of(layer, heads)
    if select is not None:
        options["select"] = select
    if rng is not None:
        options |= {"dropout_rate": layer.dropout_rate, "rng": rng}
    mix = layer.attention or scaled_dot_product_attention
    return mix(heads.query, heads.key, heads.value, **options)


def options_of(layer, heads):
    """What an attention is told."""
    said = {
        "mask": mask_of(heads),
        "causal": heads.causal,
        "bias": heads.biases,
        "query_positions": heads.positions.query,
        "key_positions": heads.positions.key,
        "scale": layer.scale,
    }
    return said | sinks_and_cap(layer)
