"""Transformer-XL: attention by content and by distance, with two queries that are the same everywhere."""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.position.sinusoidal import sinusoidal_encoding
from posattn.torch.validated import validated

__all__ = ["TransformerXLBias"]


@validated
class TransformerXLBias(nn.Module):
    r"""Transformer-XL's terms of the score: relative position, and preferences of every query.

    Twin of :class:`posattn.reference.TransformerXLBias`.
    Instead of shifting a matrix of products, which needs tokens without gaps, it splits the sinusoids
    of a distance into those of query and key: $\cos(i - j) = \cos i \cos j + \sin i \sin j$.
    So it takes any positions and never holds a vector per pair, at the price of products as wide as
    the layer for each head.
    Angles count from the first key.
    So float64 agrees with the reference to about $10^{-16}$ times the largest distance, and float32 to
    $2 \cdot 10^{-6}$ of the largest score for distances up to $2^{20}$.

    Args:
        dim: the width $d$ of the layer, and of the sinusoids, even.
        num_heads: the number of heads, a divisor of `dim`.
        base: $b$ of the frequencies, positive.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> bias = TransformerXLBias(dim=6, num_heads=3)
        >>> query = key = torch.ones(3, 5, 2)
        >>> bias.scores(query, key, torch.arange(5), torch.arange(5)).shape
        torch.Size([3, 5, 5])
    """

    needs_all_keys = False  # a score needs only its own query and key
    content_bias: Float[Tensor, "h d_h"]
    position_bias: Float[Tensor, "h d_h"]
    weight: Float[Tensor, "d width"]

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        base: float = 10000.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        dim = contract.integer("dim", dim, least=1, even=True)
        num_heads = contract.heads(num_heads, dim)
        self.base = contract.base(base)
        shape = (num_heads, dim // num_heads)
        self.content_bias = nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
        self.position_bias = nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
        self.weight = nn.Parameter(torch.empty(dim, dim, dtype=dtype, device=device))
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw all parameters from a normal distribution with standard deviation 0.02.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        dim, num_heads = len(self.weight), len(self.content_bias)
        return f"dim={dim}, num_heads={num_heads}, base={self.base}"

    def scores(
        self,
        query: Float[Tensor, "*batch h n_q d_h"],
        key: Float[Tensor, "*batch h n_k d_h"],
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """What is added to the scores, the last three terms.

        Twin of :meth:`posattn.reference.TransformerXLBias.scores`.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        num_heads, head_dim = self.content_bias.shape
        contract.parameter("position_bias", self.position_bias, (num_heads, head_dim))
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=num_heads)  # fmt: skip
        dim = contract.sinusoid_weight(self.weight, num_heads * head_dim)
        wide = torch.promote_types(query.dtype, torch.float32)
        u, v, weight = (
            p.to(wide) for p in (self.content_bias, self.position_bias, self.weight)
        )
        first = key_positions[..., :1].double() if key.shape[-2] else 0
        at_query, at_key = (
            sinusoidal_encoding(p - first, dim, base=self.base, dtype=wide)
            for p in (query_positions, key_positions)
        )
        projections = weight.unflatten(-1, (num_heads, head_dim)).permute(1, 2, 0)
        asked = (query.to(wide) + v[:, None]) @ projections
        scores = _turn(asked, at_query[..., None, :, :]) @ at_key[..., None, :, :].mT
        scores = scores + torch.einsum("hd,...hjd->...hj", u, key.to(wide))[..., None, :]
        return (scores / math.sqrt(head_dim)).to(query.dtype)


def _turn(asked, encoding):
    """What a query asks of sines and cosines of distances, asked of those of the keys' positions."""
    asked_sin, asked_cos = asked[..., ::2], asked[..., 1::2]
    sin, cos = encoding[..., ::2], encoding[..., 1::2]
    of_sin, of_cos = asked_cos * sin - asked_sin * cos, asked_sin * sin + asked_cos * cos
    return torch.stack([of_sin, of_cos], dim=-1).flatten(-2)
