"""Multi-head latent attention: keys and values of all heads come from one narrow vector per token."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer, Real
from torch import Tensor, nn

from posattn import contract
from posattn.configs.latents import as_latent, latent_weights
from posattn.torch.attention import definition
from posattn.torch.attention.attention import attend
from posattn.torch.attention.cache import rule_of
from posattn.torch.attention.call import Positions, call_at
from posattn.torch.attention.gathered import as_mask
from posattn.torch.attention.heads import merge_heads, split_heads
from posattn.torch.attention.latent_cache import LatentCache
from posattn.torch.attention.masks import all_of, for_heads
from posattn.torch.models.layer_plan import from_config, rotation
from posattn.torch.models.lightning import LightningIndexer, selects
from posattn.torch.models.projections import gated, latent_parts, made_by
from posattn.torch.validated import validated

__all__ = ["LatentAttention"]

Select = Integer[Tensor, "*batch n k"]
Latents = Float[Tensor, "*batch n_k r"]
CallMask = Bool[Tensor, "*#batch_and_heads #n n_k"] | contract.PositionMask


@validated
class LatentAttention(nn.Module):
    """Self-attention whose keys and values come from one narrow vector per token, so that a cache is small.

    Twin of :class:`posattn.reference.LatentAttention`.
    The weights are those of :class:`torch.nn.Linear`, `query`, `kv_down`, `key`, `value` and `output`, which
    keep them transposed, and of :class:`torch.nn.RMSNorm`, `kv_norm`.
    With a `query_rank`, there are `query_down` and `query_norm` as well; there may be a `gate`, `sinks` and
    a `temperature`, `(2, h)`.

    Args:
        dim: the width of the input and of the output, at least 1.
        num_heads: the number of heads.
        query_rank: the width of the queries' latent vector; they have none if not given.
        kv_rank: the width of the latent vector of keys and values.
        content_dim: how many entries of a query or key don't rotate.
        rotary_dim: how many entries rotate, an even number; 0 if none do.
        value_dim: the width of a head's value; `content_dim` if not given.
        rotate: acts on the entries that rotate, `(x, positions) -> x`, such as `Rotary()`.
        scale: the factor on the products of queries and keys, `1 / sqrt(content_dim + rotary_dim)` if not
            given.
        eps: added to the mean square in the norms.
        indexer: a `LightningIndexer` that selects the keys of each query; every query reads all if not given.
        shared: whether each call brings the keys that the indexer of a layer before has selected.
        lent: whether each call brings the latent vectors of another layer, so that there is no `kv_down`.
        raw: whether queries and gates also project the queries' latent vector before its norm.
        sinks: give each head a learned score that joins its softmax without a value, from zero on.
        gate: multiply the output of the heads by a sigmoid of one more projection.
        temperature: whether each head learns how its queries grow with their position.
        dtype: of the weights; PyTorch's default one if not given.
        device: of the weights.
        rng: where the weights are drawn from.

    Examples:
        >>> from posattn.torch import Rotary
        >>> layer = LatentAttention(8, 2, kv_rank=4, content_dim=4, rotary_dim=2, rotate=Rotary())
        >>> x = torch.randn(3, 5, 8)
        >>> whole = layer(x, causal=True)
        >>> out, cache = layer(x[:, :4], cache=layer.init_cache((3,), 16))
        >>> out, cache = layer(x[:, 4:], cache=cache)
        >>> torch.allclose(out, whole[:, 4:], atol=1e-6)
        True
        >>> cache.bytes_per_token
        24
    """

    def __init__(
        self,
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
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        sizes = dim, num_heads, query_rank, kv_rank, content_dim, rotary_dim, value_dim
        sizes = contract.latent_sizes(*sizes, raw=raw, gate=gate, lent=lent)
        device = torch.get_default_device() if device is None else device
        options = {"device": device, "dtype": dtype}
        for name, shape in sizes.weights.items():
            linear = nn.utils.skip_init(nn.Linear, *shape, bias=False, **options)
            self.add_module(name, linear)
        eps = contract.positive("eps", eps)
        self.query_norm = None
        if query_rank is not None:
            self.query_norm = nn.RMSNorm(query_rank, eps, **options)
        self.kv_norm = None if lent else nn.RMSNorm(kv_rank, eps, **options)
        if not gate:
            self.gate = None
        heads = sizes.num_heads
        self.sinks = nn.Parameter(torch.empty(heads, **options)) if sinks else None
        growth = nn.Parameter(torch.empty(2, heads, **options)) if temperature else None
        self.temperature = growth
        self.dim, self.num_heads = self.output.out_features, sizes.num_heads
        self.widths = sizes.widths
        self.kv_rank, self.content_dim, self.rotary_dim, self.value_dim = sizes.widths
        self.rotate = rotate
        self.indexer, self.shared, self.lent, self.raw = indexer, shared, lent, raw
        self.scale = None if scale is None else contract.scale(scale)
        self.reset_parameters(rng)

    from_config = classmethod(from_config)

    @classmethod
    def _of_layer(cls, layer, **options):
        """A layer as a plan describes it."""
        as_latent(layer)
        return cls(
            layer.dim,
            layer.num_heads,
            **asdict(layer.latent),
            rotate=rotation(layer.rope),
            scale=layer.scale,
            indexer=LightningIndexer.of_layer(layer, **options),
            shared=layer.indexer is not None and layer.indexer.shared,
            lent=layer.kv_layer is not None,
            sinks=layer.sinks,
            gate=layer.gate,
            **options,
        )

    def _load(self, state, plan, index):
        """Copy the weights of a layer out of those of its model."""
        found = latent_weights(state, plan, index).items()
        self.load_state_dict(
            {name: torch.cat(w) if isinstance(w, list) else w for name, w in found}
        )

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the weights uniformly, within Glorot's bounds, and let all else do nothing.

        Args:
            rng: where the weights are drawn from; PyTorch's own generator if not given.
        """
        for part in self.children():
            if isinstance(part, nn.Linear):
                nn.init.xavier_uniform_(part.weight, generator=rng)
            elif isinstance(part, nn.RMSNorm):
                part.reset_parameters()
        with torch.no_grad():
            if self.sinks is not None:
                self.sinks.zero_()
            if self.temperature is not None:
                self.temperature[0], self.temperature[1] = 0, 1

    def extra_repr(self) -> str:
        """The numbers, and what is no module."""
        names = ("num_heads", "content_dim", "rotary_dim", "value_dim", "rotate", "scale")
        named = {name: getattr(self, name) for name in names}
        return ", ".join(
            f"{name}={value!r}"
            for name, value in named.items()
            if not (value is None or isinstance(value, nn.Module))
        )

    def init_cache(
        self,
        batch_shape: int | Sequence[int],
        max_len: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> LatentCache:
        """Make an empty cache that fits this layer.

        Twin of :meth:`posattn.reference.LatentAttention.init_cache`.

        Args:
            batch_shape: the batch axes of the sequences, `(8,)` or just 8.
            max_len: how many positions there are, at least 1.
            dtype: of the latent vectors; if not given, what the layer makes of them: under
                :class:`torch.autocast` its dtype, otherwise that of the weights.
            device: where the cache lives; where the weights are if not given.
        """
        dtype, device = made_by(self.key, dtype, device)
        width = 0 if self.lent else self.kv_rank + self.rotary_dim
        width += 0 if self.indexer is None else self.indexer.key.out_features
        return LatentCache.init(batch_shape, max_len, width, dtype=dtype, device=device)

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        query_positions: Real[Tensor, "*#batch n"] | None = None,
        select: Select | None = None,
        return_select: bool = False,
        latent: Latents | None = None,
        return_latent: bool = False,
        cache: LatentCache | None = None,
    ) -> Float[Tensor, "*batch n d"] | tuple[Any, ...]:
        """Let each token attend to the others, or to those in a cache.

        Twin of calling :class:`posattn.reference.LatentAttention`.

        Args:
            x: `(*batch, n, d)`.
            mask: bool, True means may attend; it broadcasts to `(*batch, n, n_k)` and holds for every head,
                or has one axis more, `(*batch, h, n, n_k)`; or a function of positions that returns
                `(*batch, n, n_k)`. With a cache, the keys are its slots.
            causal: hide the future.
            query_positions: where the tokens stand, `(n)` or `(*batch, n)`: from 0 on if not given, or
                after those in the cache.
            select: of a layer with `shared`: the keys, or slots of the cache, that each query reads,
                `(*batch, n, k)`; -1 is no key.
            return_select: return what each query reads, for layers that share it.
            latent: of a layer with `lent`: what another layer has returned, `(*batch, n_k, r + d_r)`.
            return_latent: return the latent vectors of all tokens or slots, for layers with `lent`.
            cache: the tokens before; then each query attends to what stands up to its own position, and a
                negative position marks padding.

        Returns:
            `(*batch, n, d)`; zeros where a query may attend to nothing. With a cache, that and the cache of
            all tokens so far; then the indices, and then the latent vectors, if asked for.
        """
        contract.sequence("x", x, self.dim)
        follow = query_positions is None
        aligned = cache is None and follow
        if cache is not None:
            contract.cache_batch("x", x, 2, cache)
            if query_positions is None:
                query_positions = cache.next_positions(x.shape[-2])
        parts = latent_parts(self, x, query_positions)
        content, rotated, kept, positions, narrow, source = parts
        masks = [mask]
        # a cache hides nothing but zeros
        finite = cache is not None and mask is None and latent is None
        if cache is not None:
            rule = rule_of(cache, positions.query, follow)
            cache = cache.append(kept, positions.query)
            kept = cache.latent
            causal = False
            masks.append(rule(cache))
            positions = Positions(positions.query, cache.positions)
        latent, chosen = self._split(kept, latent)
        absorbed = cache is not None and self.widths.absorb(x.shape[-2])
        if absorbed:
            content = content @ self._of_heads(self.key)
            key = latent[..., None, :, :]
            value = key[..., : self.kv_rank]
        else:
            key, value = self._keys_and_values(latent)
        query = torch.cat([content, rotated], dim=-1)
        shape = *query.shape[:-1], key.shape[-2]
        mask = all_of([for_heads(mask, shape) for mask in masks], positions, shape)
        select = selects(self, select, x, narrow, chosen, positions, mask, causal)
        each = select
        joined = absorbed and self.sinks is None
        if joined:
            query, mask, positions = _as_one_head(query, mask, positions)
            if select is not None:  # once for each head
                each = select[..., None, :, :].expand(*content.shape[:-1], -1)
                each = each.flatten(-3, -2)
        call = call_at(
            positions,
            query,
            key,
            value,
            mask=mask,
            causal=causal,
            scale=self.widths.scale(self.scale),
            sinks=self.sinks,
            select=each,
            aligned=aligned,
            finite=finite,
        )
        heads = attend(call)
        if joined:
            heads = heads.squeeze(-3).unflatten(-2, content.shape[-3:-1])
        if absorbed:
            heads = heads @ self._of_heads(self.value).mT
        out = self.output(gated(self, merge_heads(heads), source))
        lends = latent if return_latent else None
        return contract.returned(out, cache, select, return_select, lends)

    def attention_weights(
        self,
        x: Float[Tensor, "*batch n d"],
        *,
        mask: CallMask | None = None,
        causal: bool = False,
        query_positions: Real[Tensor, "*#batch n"] | None = None,
        select: Select | None = None,
        latent: Latents | None = None,
    ) -> Float[Tensor, "*batch h n n"]:
        """How much each query attends to each key, in every head: what the call mixes values with.

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
        contract.sequence("x", x, self.dim)
        parts = latent_parts(self, x, query_positions)
        content, rotated, kept, positions, narrow, _ = parts
        latent, chosen = self._split(kept, latent)
        query = torch.cat([content, rotated], dim=-1)
        key, _ = self._keys_and_values(latent)
        mask = for_heads(mask, (*query.shape[:-1], key.shape[-2]))
        call = call_at(
            positions,
            query,
            key,
            mask=mask,
            causal=causal,
            scale=self.widths.scale(self.scale),
            sinks=self.sinks,
            select=selects(self, select, x, narrow, chosen, positions, mask, causal),
        )
        return definition.weights(as_mask(call))

    def _split(self, kept, latent):
        """The latent vectors, those of another layer if it lends them, and the keys of the indexer."""
        width = self.kv_rank + self.rotary_dim
        contract.lent(latent, self.lent, kept, (*kept.shape[:-1], width))
        return (latent, kept) if self.lent else kept.tensor_split([width], dim=-1)

    def _keys_and_values(self, latent):
        """Those of all heads, `(*batch, h, n, d_c + d_r)` and `(*batch, h, n, d_v)`."""
        latent, rotated = latent.split([self.kv_rank, self.rotary_dim], dim=-1)
        content, value = (
            split_heads(up(latent), self.num_heads) for up in (self.key, self.value)
        )
        rotated = rotated[..., None, :, :].expand(*content.shape[:-1], -1)
        return torch.cat([content, rotated], dim=-1), value

    def _of_heads(self, up):
        """The part of each head in a projection of the latent vector, `(h, d, r)`."""
        return up.weight.unflatten(0, (self.num_heads, -1))


def _as_one_head(query, mask, positions):
    """Make the queries of all heads those of one, which they share a key with: nothing is copied for each."""
    heads, n = query.shape[-3:-1]
    at = positions.query[..., None, :]
    at = at.expand(*at.shape[:-2], heads, n).flatten(-2)
    if not (mask is None or callable(mask)):
        mask = mask.expand(*mask.shape[:-3], heads, n, -1).flatten(-3, -2)[..., None, :, :]
    return query.flatten(-3, -2)[..., None, :, :], mask, Positions(at, positions.key)
