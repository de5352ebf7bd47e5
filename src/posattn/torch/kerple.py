"""KERPLE: learned penalties on distance, from kernels that are positive definite up to a constant."""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.alibi import relative_positions

__all__ = ["KerpleLog", "KerplePower"]

LEAST = 0.01  # a smaller parameter counts as this


class KerpleLog(nn.Module):
    """A penalty that grows with the logarithm of the distance, in each head in its own measure.

    Twin of :class:`posattn.reference.KerpleLog`.
    Half-precision parameters are used in float32, as distances need it; the bias has their dtype.
    Up to position 2**20 its relative error is below 4e-7 in float32.

    Examples:
        >>> layer = KerpleLog(2)
        >>> layer(torch.arange(3, 6), torch.arange(6)).shape
        torch.Size([2, 3, 6])
    """

    def __init__(
        self,
        num_heads: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        self.r1 = _uniform(2, num_heads, dtype, device, rng)
        self.r2 = _uniform(1, num_heads, dtype, device, rng)

    def forward(
        self,
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.KerpleLog`.
        """
        _check(self.r1, self.r2)
        r1, r2 = _clamp(self.r1, math.inf), _clamp(self.r2, math.inf)
        distances = relative_positions(query_positions, key_positions).abs().to(r1.dtype)
        return (-r1 * torch.log1p(r2 * distances[..., None, :, :])).to(self.r1.dtype)


class KerplePower(nn.Module):
    """A penalty that grows with a power of the distance, in each head in its own measure.

    Twin of :class:`posattn.reference.KerplePower`.
    Half-precision parameters are used in float32, as distances need it; the bias has their dtype.
    Up to position 2**20 its relative error is below 4e-7 in float32.

    Examples:
        >>> layer = KerplePower(2)
        >>> layer(torch.arange(3, 6), torch.arange(6)).shape
        torch.Size([2, 3, 6])
    """

    def __init__(
        self,
        num_heads: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        self.r1 = _uniform(1, num_heads, dtype, device, rng)
        self.r2 = _uniform(2, num_heads, dtype, device, rng)

    def forward(
        self,
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Twin of calling :class:`posattn.reference.KerplePower`.
        """
        _check(self.r1, self.r2)
        r1, r2 = _clamp(self.r1, math.inf), _clamp(self.r2, 2)
        distances = relative_positions(query_positions, key_positions).abs().to(r1.dtype)
        distances = distances[..., None, :, :]
        here = distances == 0
        powers = (distances.masked_fill(here, 1) ** r2).masked_fill(here, 0)
        return (-r1 * powers).to(self.r1.dtype)


def _uniform(most, num_heads, dtype, device, rng):
    num_heads = contract.integer("num_heads", num_heads, least=1)
    contract.rng(rng, rng is None or isinstance(rng, torch.Generator), "torch.Generator")
    empty = torch.empty(num_heads, dtype=dtype, device=device)
    return nn.Parameter(nn.init.uniform_(empty, 0, most, generator=rng))


def _check(r1, r2):
    contract.parameter("r1", r1, ("num_heads",))
    contract.parameter("r2", r2, tuple(r1.shape))


def _clamp(r, most):
    """Bound the value and not the derivative, with axes for queries and keys."""
    r = r.to(torch.promote_types(r.dtype, torch.float32))
    return (r + (r.detach().clamp(LEAST, most) - r.detach()))[:, None, None]
