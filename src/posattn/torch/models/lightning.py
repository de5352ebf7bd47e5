"""The lightning indexer: weights of its own that select the keys of an attention."""

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Integer, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.heads import split_heads
from posattn.torch.attention.indexer import indexer_scores
from posattn.torch.attention.selection import select_keys
from posattn.torch.models.layer_plan import rotation
from posattn.torch.validated import validated

__all__ = ["LightningIndexer"]


@validated
class LightningIndexer(nn.Module):
    """What selects the keys of a layer, from the tokens: a part of :class:`LatentAttention`.

    Twin of :class:`posattn.reference.LightningIndexer`.
    The weights are those of :class:`torch.nn.Linear`, `query`, `key` and `head`, which keep them
    transposed, and of :class:`torch.nn.LayerNorm`, `key_norm`.

    Args:
        dim: the width of the tokens, at least 1.
        num_heads: the number of heads.
        head_dim: the width of a head.
        count: how many keys a query reads at most, at least 1.
        query_rank: the width of what queries are made from; `dim` if not given.
        rotate: acts on queries and keys, `(x, positions) -> x`, such as `Rotary()`.
        eps: added to the variance in the norm.
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
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        sizes = contract.indexer_sizes(dim, num_heads, head_dim, count, query_rank)
        self.num_heads, self.count, shapes = sizes
        device = torch.get_default_device() if device is None else device
        options = {"device": device, "dtype": dtype}
        for name, shape in shapes.items():
            linear = nn.utils.skip_init(nn.Linear, *shape, bias=False, **options)
            nn.init.xavier_uniform_(linear.weight, generator=rng)
            self.add_module(name, linear)
        self.key_norm = nn.LayerNorm(head_dim, contract.positive("eps", eps), **options)
        self.rotate = rotate

    @classmethod
    def of_layer(cls, layer, **options):
        """The indexer of a layer of a plan, or None; `options` are dtype, device and rng."""
        if layer.indexer is None or layer.indexer.shared:
            return None
        return cls(
            layer.dim,
            layer.indexer.num_heads,
            layer.indexer.head_dim,
            count=layer.selected,
            query_rank=layer.latent.query_rank,
            rotate=rotation(replace(layer.rope, layout=layer.indexer.layout)),
            **options,
        )

    def extra_repr(self) -> str:
        """The numbers, and what is no module."""
        turned = "" if self.rotate is None else f", rotate={self.rotate!r}"
        return f"num_heads={self.num_heads}, count={self.count}{turned}"

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
            Rotated keys, `(*batch, n, d_h)`.
        """
        contract.sequence("x", x, self.key.in_features)
        contract.positions_of(x.shape, positions)
        key = self.key(x)
        key = self.key_norm(key.to(self.key_norm.weight.dtype)).to(key.dtype)
        return self._turn(key[..., None, :, :], positions)[..., 0, :, :]

    @torch.no_grad()
    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        narrow: Float[Tensor, "*batch n d_q"],
        key: Float[Tensor, "*batch n_k d_h"],
        positions: Real[Tensor, "*#batch n"],
        *,
        mask: Bool[Tensor, "*#batch #n n_k"] | None = None,
        causal: bool = False,
    ) -> Integer[Tensor, "*batch n count"]:
        """The keys that each token reads.

        Twin of calling :class:`posattn.reference.LightningIndexer`; without a graph.

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
        contract.sequence("x", x, self.key.in_features)
        contract.positions_of(x.shape, positions)
        contract.sequence("narrow", narrow, self.query.in_features)
        query = self._turn(split_heads(self.query(narrow), self.num_heads), positions)
        weights = self.head(x).to(torch.promote_types(x.dtype, torch.float32))
        scores = indexer_scores(query, key.to(query.dtype), weights * self.num_heads**-0.5)
        return select_keys(scores, self.count, mask=mask, causal=causal)

    def _turn(self, x, positions):
        """Rotate `(*batch, h, n, d_h)`."""
        return x if self.rotate is None else self.rotate(x, positions[..., None, :])
