"""Multi-head latent attention: keys and values of all heads come from one narrow vector per token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Inexact, Integer, Real

from posattn import contract
from posattn.reference.attention.attention import (
    Positions,
    attention_weights,
    scaled_dot_product_attention,
)
from posattn.reference.attention.cache import held
from posattn.reference.attention.heads import merge_heads, split_heads
from posattn.reference.attention.latent_cache import LatentCache
from posattn.reference.attention.masks import all_of, for_heads
from posattn.reference.models.lightning import LightningIndexer, selects
from posattn.reference.models.projections import gated, latent_parts
from posattn.reference.validated import validated

__all__ = ["LatentAttention"]

Select = Integer[np.ndarray, "*batch n k"] | None
Latents = Inexact[np.ndarray, "*batch n_k r"] | None
CallMask = Bool[np.ndarray, "*#batch_and_heads #n n_k"] | contract.PositionMask


@validated
@dataclass(frozen=True, eq=False)
class LatentAttention:
    r"""Self-attention whose keys and values come from one narrow vector per token, so that a cache is small.

    .. math:: \mathbf{C} = \operatorname{norm}(\mathbf{X}\mathbf{W}^{(c)}), \qquad
        \mathbf{R} = \operatorname{rotate}(\mathbf{X}\mathbf{W}^{(r)}), \qquad
        \mathbf{K}_h = [\mathbf{C}\mathbf{W}^{(k)}_h, \mathbf{R}], \qquad
        \mathbf{V}_h = \mathbf{C}\mathbf{W}^{(v)}_h.

    Row $i$ of $\mathbf{C}$ is the latent vector of a token, with $r$ entries.
    The $d_c$ entries of a key that a head computes from it carry content and don't rotate: a rotation would
    come between $\mathbf{W}^{(k)}_h$ and the query, which decoding must be able to join.
    So position has $d_r$ entries of its own, $\mathbf{R}$, which rotate and are the same for all heads.
    Queries have entries of both kinds,

    .. math:: \mathbf{Q}_h = [\mathbf{X}\mathbf{W}^{(q)}_h,
        \operatorname{rotate}(\mathbf{X}\mathbf{W}^{(p)}_h)], \qquad
        \mathbf{H}_h = \operatorname{softmax}\left(\frac{\mathbf{Q}_h\mathbf{K}_h^\top}
        {\sqrt{d_c + d_r}}\right)\mathbf{V}_h, \qquad
        \mathbf{Y} = [\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}]\,\mathbf{W}^{(o)}.

    With a `query_rank`, queries are made from a latent vector of their own: there,
    $\operatorname{norm}(\mathbf{X}\mathbf{W}^{(a)})$ takes the place of $\mathbf{X}$.
    The norm divides by the root mean square and has learned factors $\mathbf{g}$,

    .. math:: \operatorname{norm}(\mathbf{x}) = \frac{\mathbf{g} \odot \mathbf{x}}
        {\sqrt{\frac{1}{r}\sum_n x_n^2 + \varepsilon}}.

    A :class:`LatentCache` keeps $\mathbf{C}$ and $\mathbf{R}$, which is $r + d_r$ numbers for each token
    instead of $H(d_c + d_r + d_v)$.
    For a few queries, neither keys nor values are made from it, because both projections can be moved to
    the other side (they are *absorbed*):

    .. math:: \mathbf{X}\mathbf{W}^{(q)}_h\,(\mathbf{C}\mathbf{W}^{(k)}_h)^\top
        = (\mathbf{X}\mathbf{W}^{(q)}_h\mathbf{W}^{(k)\top}_h)\,\mathbf{C}^\top, \qquad
        \mathbf{A}_h(\mathbf{C}\mathbf{W}^{(v)}_h) = (\mathbf{A}_h\mathbf{C})\,\mathbf{W}^{(v)}_h,

    where $\mathbf{A}_h$ are the attention weights of head $h$.
    All heads then share one key, a row of $[\mathbf{C}, \mathbf{R}]$, and one value, a row of $\mathbf{C}$.
    Many queries at once, such as those of a prompt, cost less with keys and values, so these are made then.

    A sink is a score of each head that joins its softmax without a value, and a gate multiplies
    $[\mathbf{H}_0, \ldots, \mathbf{H}_{H-1}]$ by $\sigma(\mathbf{X}\mathbf{W}^{(g)})$: Hy4 has both.
    With `raw` (A.X-K2), queries and gates are projections of the queries' latent vector after its norm,
    joined by the same before.
    With a temperature (Mistral Large 4), queries at position $p$ are multiplied by $s_h \ln(p + 1) + b_h$.
    There, layers may also read the $\mathbf{C}$ and $\mathbf{R}$ of another layer with a $\mathbf{W}^{(k)}$
    and $\mathbf{W}^{(v)}$ of their own; they need no others in a cache.

    Make a layer with `LatentAttention.init(rng, dim, num_heads, ...)`, or from weights that exist.

    Args:
        query_weight: of each head $[\mathbf{W}^{(q)}_h, \mathbf{W}^{(p)}_h]$, `(d, H (d_c + d_r))`, or from
            `query_rank` entries; `x @ weight` projects.
        kv_down_weight: $[\mathbf{W}^{(c)}, \mathbf{W}^{(r)}]$, `(d, r + d_r)`; None, as the norm, where each
            call brings the latent vectors of another layer: they are `lent`.
        kv_norm_weight: $\mathbf{g}$ of the latent vector, `(r)`.
        key_weight: $\mathbf{W}^{(k)}$ of all heads, `(r, H d_c)`.
        value_weight: $\mathbf{W}^{(v)}$ of all heads, `(r, H d_v)`.
        output_weight: $\mathbf{W}^{(o)}$, `(H d_v, d)`.
        query_down_weight: $\mathbf{W}^{(a)}$, `(d, query_rank)`; None if queries have no latent vector.
        query_norm_weight: $\mathbf{g}$ of the queries' latent vector, `(query_rank)`; likewise.
        num_heads: $H$.
        rotate: None, or a function `(x, positions) -> x` of the entries that rotate, such as `Rotary()`.
        scale: the factor on $\mathbf{Q}_h\mathbf{K}_h^\top$, $1/\sqrt{d_c + d_r}$ if not given.
        eps: $\varepsilon$ of the norms.
        indexer: a `LightningIndexer` that selects the keys of each query; every query reads all if not given.
        shared: whether each call brings the keys that the indexer of a layer before has selected, as in
            GLM-5.2, where one layer in four has an indexer.
        raw: whether queries and gates also project their latent vector before its norm.
        sinks: `(H)`, or None.
        gate_weight: $\mathbf{W}^{(g)}$, `(d, H d_v)`, or from `2 query_rank` entries; None for no gate.
        temperature: $s$ and $b$, `(2, H)`, or None.

    Examples:
        >>> from posattn.reference import Rotary
        >>> layer = LatentAttention.init(np.random.default_rng(0), 8, 2, kv_rank=4, content_dim=4,
        ...     rotary_dim=2, rotate=Rotary())
        >>> x = np.random.default_rng(1).normal(size=(3, 5, 8))
        >>> whole = layer(x, causal=True)
        >>> out, cache = layer(x[:, :4], cache=layer.init_cache((3,), 16))
        >>> out, cache = layer(x[:, 4:], cache=cache)
        >>> np.allclose(out, whole[:, 4:])
        True
        >>> cache.bytes_per_token
        48

    References:
        :cite:t:`deepseek2024v2`, section 2.1; its rotation takes neighboring entries as pairs, which is
        `Rotary`'s layout `"interleaved"`.
    """

    query_weight: Inexact[np.ndarray, "d_q hd_q"]
    kv_down_weight: Inexact[np.ndarray, "d width"] | None
    kv_norm_weight: Inexact[np.ndarray, " r"] | None
    key_weight: Inexact[np.ndarray, "r hd_c"]
    value_weight: Inexact[np.ndarray, "r hd_v"]
    output_weight: Inexact[np.ndarray, "hd_v d"]
    query_down_weight: Inexact[np.ndarray, "d d_a"] | None = None
    query_norm_weight: Inexact[np.ndarray, " d_a"] | None = None
    num_heads: int = 1
    rotate: contract.Rotation | None = None
    scale: float | None = None
    eps: float = 1e-6
    indexer: LightningIndexer | None = None
    shared: bool = False
    raw: bool = False
    sinks: Inexact[np.ndarray, " h"] | None = None
    gate_weight: Inexact[np.ndarray, "d_g hd_v"] | None = None
    temperature: Inexact[np.ndarray, "2 h"] | None = None

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
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
    ) -> "LatentAttention":
        r"""Draw the weights uniformly, within Glorot's bounds: $\pm\sqrt{6/(a + b)}$ from $a$ to $b$ entries.

        Args:
            rng: where the weights are drawn from.
            dim: the width $d$ of the input and of the output, at least 1.
            num_heads: the number of heads $H$.
            query_rank: the width of the queries' latent vector; they have none if not given.
            kv_rank: the width $r$ of the latent vector of keys and values.
            content_dim: how many entries $d_c$ of a query or key don't rotate.
            rotary_dim: how many entries $d_r$ rotate, an even number; 0 if none do.
            value_dim: the width $d_v$ of a head's value; `content_dim` if not given.
            rotate: acts on the entries that rotate, `(x, positions) -> x`, such as `Rotary()`.
            scale: the factor on the products of queries and keys, $1/\sqrt{d_c + d_r}$ if not given.
            eps: added to the mean square in the norms.
            indexer: a `LightningIndexer` that selects the keys of each query; all if not given.
            shared: whether each call brings the keys that the indexer of a layer before has selected.
            lent: whether each call brings the latent vectors of another layer.
            raw: whether queries and gates also project the queries' latent vector before its norm.
            sinks: give each head a learned score that joins its softmax without a value, from zero on.
            gate: multiply the output of the heads by a sigmoid of one more projection.
            temperature: whether each head learns how its queries grow with their position.
        """
        sizes = dim, num_heads, query_rank, kv_rank, content_dim, rotary_dim, value_dim
        sizes = contract.latent_sizes(*sizes, raw=raw, gate=gate, lent=lent)
        weights = {"kv_down_weight": None, "kv_norm_weight": None} | {
            f"{name}_weight": rng.uniform(-1, 1, shape) * np.sqrt(6 / sum(shape))
            for name, shape in sizes.weights.items()
        }
        if query_rank is not None:
            weights["query_norm_weight"] = np.ones(query_rank)
        if not lent:
            weights["kv_norm_weight"] = np.ones(kv_rank)
        if temperature:
            weights["temperature"] = np.eye(2, 1, -1).repeat(sizes.num_heads, axis=1)
        return cls(
            **weights,
            num_heads=sizes.num_heads,
            rotate=rotate,
            scale=None if scale is None else contract.scale(scale),
            eps=contract.positive("eps", eps),
            indexer=indexer,
            shared=shared,
            raw=raw,
            sinks=np.zeros(sizes.num_heads) if sinks else None,
        )

    def init_cache(self, batch_shape: int | Sequence[int], max_len: int) -> LatentCache:
        """Make an empty cache that fits this layer.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
        """
        width = 0 if self.kv_down_weight is None else self.kv_down_weight.shape[1]
        width += 0 if self.indexer is None else self.indexer.key_weight.shape[1]
        return LatentCache.init(batch_shape, max_len, width)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        query_positions: Real[np.ndarray, "*#batch n"] | None = None,
        select: Select = None,
        return_select: bool = False,
        latent: Latents = None,
        return_latent: bool = False,
        cache: LatentCache | None = None,
    ) -> Inexact[np.ndarray, "*batch n d"] | tuple[Any, ...]:
        r"""Let each token attend to the others, or to those in a cache.

        Args:
            x: `(*batch, n, d)`.
            mask: bool, True means may attend; its shape broadcasts to `(*batch, n, n_k)`, and it holds for
                every head; with one axis more than `x` it has one for the heads, `(*batch, H, n, n_k)`; or a
                function of positions that returns `(*batch, n, n_k)`. With a cache, the keys are its slots.
            causal: hide the future.
            query_positions: where the tokens stand, `(n)` or `(*batch, n)`: from 0 on if not given, or
                after those in the cache.
            select: of a layer with `shared`: the keys, or slots of the cache, that each query reads,
                `(*batch, n, k)`; -1 is no key.
            return_select: return what each query reads, for layers that share it; None if it reads all.
            latent: of a layer with `lent`: what another layer has returned, `(*batch, n_k, r + d_r)`.
            return_latent: return the latent vectors of all tokens or slots, for layers with `lent`.
            cache: the tokens before. Then each query attends to what the cache holds up to its own
                position, its own token included, and tokens at a negative position are padding: nobody
                attends to them.

        Returns:
            `(*batch, n, d)`; zeros where a query may attend to nothing. With a cache, that and the cache of
            all tokens so far; then the indices, and then the latent vectors, if asked for.

        Raises:
            ValueError: if shapes do not fit, the cache is full, or `select` lacks or is not expected.
        """
        widths = contract.latent_weights(self, x)
        if cache is not None:
            contract.cache_batch("x", x, 2, cache)
            if query_positions is None:
                query_positions = cache.next_positions(x.shape[-2])
        parts = latent_parts(self, x, query_positions, widths)
        content, rotated, kept, positions, narrow, source = parts
        if cache is not None:
            cache = cache.append(kept, positions.query)
            kept = cache.latent
            causal = False
            positions = Positions(positions.query, cache.positions)
        latent, chosen = self._split(kept, latent, widths)
        absorbed = cache is not None and widths.absorb(x.shape[-2])
        if absorbed:
            content = content @ np.swapaxes(self._of_heads(self.key_weight), -1, -2)
            key = latent[..., None, :, :]
            value = key[..., : widths.rank]
        else:
            key, value = self._keys_and_values(latent, widths)
        query = np.concatenate([content, rotated], axis=-1)
        shape = *query.shape[:-1], key.shape[-2]
        masks = [for_heads(mask, shape)]
        if cache is not None:
            masks.append(held(cache, positions.query)[..., None, :, :])
        mask = all_of(masks, positions, shape)
        select = selects(self, select, x, narrow, chosen, positions, mask, causal)
        heads = scaled_dot_product_attention(
            query,
            key,
            value,
            mask=mask,
            causal=causal,
            query_positions=positions.query,
            key_positions=positions.key,
            scale=widths.scale(self.scale),
            sinks=self.sinks,
            select=select,
        )
        heads = heads @ self._of_heads(self.value_weight) if absorbed else heads
        out = gated(self, merge_heads(heads), source) @ self.output_weight
        lends = latent if return_latent else None
        return contract.returned(out, cache, select, return_select, lends)

    def attention_weights(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        query_positions: Real[np.ndarray, "*#batch n"] | None = None,
        select: Select = None,
        latent: Latents = None,
    ) -> Inexact[np.ndarray, "*batch h n n"]:
        """How much each query attends to each key, in every head: what the call mixes values with.

        Args:
            x: as in the call, like all that follow.
            mask: True means may attend.
            causal: hide the future.
            query_positions: where the tokens stand.
            select: of a layer with `shared`.
            latent: of a layer with `lent`.

        Returns:
            `(*batch, H, n, n)`; each row sums to 1, or is 0 if it may attend to nothing.
        """
        widths = contract.latent_weights(self, x)
        parts = latent_parts(self, x, query_positions, widths)
        content, rotated, kept, positions, narrow, _ = parts
        latent, chosen = self._split(kept, latent, widths)
        query = np.concatenate([content, rotated], axis=-1)
        key, _ = self._keys_and_values(latent, widths)
        mask = for_heads(mask, (*query.shape[:-1], key.shape[-2]))
        select = selects(self, select, x, narrow, chosen, positions, mask, causal)
        return attention_weights(
            query,
            key,
            mask=mask,
            causal=causal,
            query_positions=positions.query,
            key_positions=positions.key,
            scale=widths.scale(self.scale),
            sinks=self.sinks,
            select=select,
        )

    def _split(self, kept, latent, widths):
        """The latent vectors, those of another layer if it lends them, and the keys of the indexer."""
        lent = self.kv_down_weight is None
        width = widths.rank + widths.rotary
        contract.lent(latent, lent, kept, (*kept.shape[:-1], width))
        return (latent, kept) if lent else np.split(kept, [width], axis=-1)

    def _keys_and_values(self, latent, widths):
        """Those of all heads, `(*batch, h, n, d_c + d_r)` and `(*batch, h, n, d_v)`."""
        latent, rotated = np.split(latent, [widths.rank], axis=-1)
        content, value = (
            split_heads(latent @ weight, self.num_heads)
            for weight in (self.key_weight, self.value_weight)
        )
        shape = (*content.shape[:-1], widths.rotary)
        rotated = np.broadcast_to(rotated[..., None, :, :], shape)
        return np.concatenate([content, rotated], axis=-1), value

    def _of_heads(self, weight):
        """The part of each head in a projection of the latent vector, `(h, r, d)`."""
        return np.swapaxes(weight.reshape(len(weight), self.num_heads, -1), 0, 1)
