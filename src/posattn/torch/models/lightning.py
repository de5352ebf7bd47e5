"""The lightning indexer: weights of its own that select the keys of an attention."""

import math

import torch
from jaxtyping import Bool, Float, Integer, Real
from torch import Tensor, nn
from torch.nn import functional

from posattn import contract
from posattn.torch.attention.heads import split_heads
from posattn.torch.attention.indexer import indexer_scores
from posattn.torch.attention.masks import causal_mask, of_pairs
from posattn.torch.attention.selection import rising, select_keys
from posattn.torch.models.head_norm import normed
from posattn.torch.models.layer_plan import rotation
from posattn.torch.models.projections import grown, rotated
from posattn.torch.validated import validated

__all__ = ["LightningIndexer"]


@validated
class LightningIndexer(nn.Module):
    """What selects the keys of a layer, from the tokens: a part of its attention.

    Twin of :class:`posattn.reference.LightningIndexer`.
    The weights are those of :class:`torch.nn.Linear`, `query`, `key` and `head`, which keep them
    transposed, and of :class:`torch.nn.LayerNorm`, `key_norm`. Where keys are pooled without gates there is
    no `head`, and `key_norm` and `query_norm` are :class:`torch.nn.RMSNorm`; with gates, these are the second
    half of what `key` projects, and there are `places`, `(size, d_h)`. There may be an `input_norm` and a
    `temperature`, `(2, h)`.

    Args:
        dim: the width of the tokens, at least 1.
        num_heads: the number of heads.
        head_dim: the width of a head.
        count: how many keys a query reads at most, or how many blocks of keys, at least 1.
        query_rank: the width of what queries are made from; `dim` if not given.
        rotate: acts on queries and keys, `(x, positions) -> x`, such as `Rotary()`.
        eps: added to the variance in the norm.
        size: how many neighboring keys make a block.
        pooled: None, or what a block is worth: its best key, `"max"`, or its keys' mean, `"mean"` or
            `"gated"`.
        input_norm: whether queries are made from what a norm has passed.
        temperature: whether queries grow with their position as each head learns.
        dtype: of the weights; PyTorch's default one if not given.
        device: of the weights.
        rng: where the weights are drawn from.

    Examples:
        >>> indexer = LightningIndexer(8, 4, 6, count=2)
        >>> x = torch.randn(5, 8)
        >>> key = indexer.keys(x, torch.arange(5))
        >>> indexer(x, x, key, torch.arange(5), causal=True).shape
        torch.Size([5, 2])
    """

    def __init__(
        self,
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
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        sizes = dim, num_heads, head_dim, count, query_rank, pooled, size
        sizes = contract.indexer_sizes(*sizes)
        self.num_heads, self.count, shapes = sizes
        device = torch.get_default_device() if device is None else device
        options = {"device": device, "dtype": dtype}
        for name, shape in shapes.items():
            linear = nn.utils.skip_init(nn.Linear, *shape, bias=False, **options)
            nn.init.xavier_uniform_(linear.weight, generator=rng)
            self.add_module(name, linear)
        eps = contract.positive("eps", eps)
        plain = pooled in (None, "gated")
        norm = nn.LayerNorm if plain else nn.RMSNorm
        norms = [norm(head_dim, eps, **options) for _ in range(2)]
        self.key_norm, self.query_norm = norms[0], None if plain else norms[1]
        self.input_norm = self.temperature = self.places = None
        if pooled == "gated":
            self.places = nn.Parameter(torch.zeros(size, head_dim, **options))
        if input_norm:
            self.input_norm = nn.LayerNorm(shapes["query"][0], eps, **options)
        if temperature:
            start = torch.tensor([[0.0], [1.0]], **options).repeat(1, self.num_heads)
            self.temperature = nn.Parameter(start)
        self.rotate, self.size, self.pooled = rotate, size, pooled

    @classmethod
    def of_layer(cls, layer, **options):
        """The indexer of a layer of a plan, or None; `options` are dtype, device and rng."""
        if layer.indexer is None or layer.indexer.shared:
            return None
        return cls(
            layer.dim,
            layer.indexer.num_heads,
            layer.indexer.head_dim,
            **layer.choice(),
            rotate=rotation(layer.indexer.rope(layer.rope)),
            **options,
        )

    def extra_repr(self) -> str:
        """The numbers, and what is no module."""
        rest = f", size={self.size}, pooled={self.pooled!r}" if self.pooled else ""
        rest += "" if self.rotate is None else f", rotate={self.rotate!r}"
        return f"num_heads={self.num_heads}, count={self.count}{rest}"

    @torch.no_grad()
    def keys(
        self, x: Float[Tensor, "*batch n d"], positions: Real[Tensor, "*#batch n"]
    ) -> Float[Tensor, "*batch n d_h"]:
        """The keys of tokens, which a cache keeps.

        Twin of :meth:`posattn.reference.LightningIndexer.keys`; without a graph.

        Args:
            x: `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`.

        Returns:
            Rotated keys, `(*batch, n, d_h)`; keys as they are if their mean is asked for; with gates,
            `(*batch, n, 2 d_h)`, where these stand behind the keys.
        """
        contract.sequence("x", x, self.key.in_features)
        contract.positions_of(x.shape, positions)
        key = self.key(x)
        if self.pooled == "mean":
            return key
        key, gates = key.tensor_split(self.key_norm.normalized_shape, dim=-1)
        return torch.cat([self._rotated(key, positions), gates], dim=-1)

    @torch.no_grad()
    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        narrow: Float[Tensor, "*batch n d_q"],
        key: Float[Tensor, "*batch n_k d_h"],
        positions: Real[Tensor, "*#batch n"],
        *,
        key_positions: Real[Tensor, "*#batch n_k"] | None = None,
        mask: Bool[Tensor, "*#batch_and_heads #n n_k"] | None = None,
        causal: bool = False,
    ) -> Integer[Tensor, "*heads n count"]:
        """The keys that each token reads.

        Twin of calling :class:`posattn.reference.LightningIndexer`; without a graph.

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
        contract.sequence("x", x, self.key.in_features)
        contract.positions_of(x.shape, positions)
        contract.indexer_keys(x, key, key_positions, self.pooled)
        if getattr(mask, "ndim", 0) > x.ndim:
            mask = mask.any(-3)
        contract.mask(mask, (*x.shape[:-1], key.shape[-2]))
        contract.sequence("narrow", narrow, self.query.in_features)
        if self.input_norm is not None:
            narrow = normed(self.input_norm, narrow)
        query = split_heads(self.query(narrow), self.num_heads)
        if self.query_norm is not None:
            query = normed(self.query_norm, query)
        query = grown(query, self.temperature, positions)
        query = rotated(self.rotate, 0, query, positions)
        weights = None
        if self.pooled in (None, "gated"):
            weights = self.head(x).to(torch.promote_types(x.dtype, torch.float32))
            weights = weights * self.num_heads**-0.5
        if self.pooled is not None:
            return self._blocks(query, key, weights, key_positions, mask, causal)
        scores = indexer_scores(query, key.to(query.dtype), weights)
        return select_keys(scores, self.count, mask=mask, causal=causal)

    def _blocks(self, query, key, weights, positions, mask, causal):
        """The keys of the best blocks, which begin at the first key that each query sees."""
        size = self.size
        mean = self.pooled != "max"
        n, n_k = query.shape[-2], key.shape[-2]
        wide = torch.promote_types(query.dtype, torch.float32)
        if mean:  # of each key and those after it
            key = functional.pad(key.to(wide), (0, 0, 0, size - 1)).unfold(-2, size, 1)
            if self.pooled == "gated":
                key, gates = key.chunk(2, dim=-2)
                key = (key * (gates + self.places.mT).softmax(-1)).sum(-1).to(query.dtype)
            else:
                key = self._rotated(key.mean(-1).to(query.dtype), positions)
            scores = indexer_scores(query, key, weights)[..., None, :, :]
        else:
            scores = query.to(wide) @ key[..., None, :, :].mT.to(wide)
        seen = key.new_ones(1, 1, dtype=torch.bool) if mask is None else mask
        seen = seen & causal_mask(n, n_k, device=key.device) if causal else seen
        seen = seen.expand(*query.shape[:-3], n, n_k)[..., None, :, :]
        first = seen.int().argmax(-1, keepdim=True)
        end = n_k - seen.flip(-1).int().argmax(-1, keepdim=True)
        blocks = torch.arange(n_k // size + 1, device=key.device)
        places = first + torch.arange(len(blocks) * size, device=key.device)
        scores = scores.masked_fill(~seen, -math.inf)
        scores = functional.pad(scores, (0, places.shape[-1]), value=-math.inf)
        scores = scores.gather(-1, places.expand(*scores.shape[:-1], -1))
        each = scores.unflatten(-1, (-1, size))
        best = each.amax(-1)
        if mean:  # whole blocks, and what stands after them
            best = each[..., 0].where(each[..., -1] > -math.inf, -math.inf)
        own = (end - first - 1 + int(mean)) // size == blocks
        chosen = select_keys(best.masked_fill(own, math.inf), self.count + mean)[..., None]
        tokens = (chosen * size + torch.arange(size, device=key.device)).flatten(-2)
        kept = (tokens >= 0) & (scores.gather(-1, tokens.clamp(min=0)) > -math.inf)
        tokens = rising((tokens + first).masked_fill(~kept, -1), n_k)
        return tokens[..., 0, :, :] if mean else tokens

    def _rotated(self, key, positions):
        """Keys, normalised and rotated."""
        key = normed(self.key_norm, key)[..., None, :, :]
        return rotated(self.rotate, 1, key, positions)[..., 0, :, :]


def selects(layer, select, x, narrow, key, positions, mask, causal):
    """The keys that each query of a layer reads, where an indexer selects them."""
    contract.chosen_before(select, layer.shared)
    if layer.shared or layer.indexer is None:
        return select
    shape = *x.shape[:-2], layer.num_heads, x.shape[-2], key.shape[-2]
    seen = of_pairs(mask, positions, shape)
    return layer.indexer(x, narrow, key, positions.query, mask=seen, causal=causal)
