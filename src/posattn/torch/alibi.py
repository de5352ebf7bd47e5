"""ALiBi: each head subtracts from its scores in proportion to the distance."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Real
from torch import Tensor

from posattn import contract

__all__ = ["alibi_bias", "alibi_slopes"]


def relative_positions(
    query_positions: Real[Tensor, "*#batch n_q"],
    key_positions: Real[Tensor, "*#batch n_k"],
) -> Real[Tensor, "*batch n_q n_k"]:
    """Key minus query, exactly: integers stay integers, and unsigned ones get a sign."""
    contract.position_pair(query_positions, key_positions)
    query, key = (
        p.double() if p.is_floating_point() else p.long()
        for p in (query_positions, key_positions)
    )
    return key[..., None, :] - query[..., :, None]


def alibi_slopes(
    num_heads: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " h"]:
    """How steeply each head of ALiBi falls with the distance.

    Twin of :func:`posattn.reference.alibi_slopes`; float64 by default, as they multiply distances.

    Examples:
        >>> -alibi_slopes(3).log2()
        tensor([4., 8., 2.], dtype=torch.float64)
    """
    num_heads = contract.integer("num_heads", num_heads, least=1)
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    between = [4 * h / power for h in range(1, 2 * power, 2)]
    slopes = [2**-e for e in [*exponents, *between][:num_heads]]
    return torch.tensor(slopes, dtype=torch.float64).to(device, dtype)


def alibi_bias(num_heads: int, *, dtype: torch.dtype | None = None) -> Callable:
    """A linear penalty on distance, in each head with a slope of its own.

    Twin of :func:`posattn.reference.alibi_bias`.
    Computed in float64 where the positions are; the bias has `dtype`, or PyTorch's default one.
    Up to position 2**20 its relative error is below 2**-23 in float32.

    Examples:
        >>> alibi_bias(1)(torch.tensor([7]), torch.tensor([3, 8]))
        tensor([[[-0.0156, -0.0039]]])
    """
    slopes = alibi_slopes(num_heads)[:, None, None]

    def bias(
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        distances = relative_positions(query_positions, key_positions).abs()
        exact = -slopes.to(distances.device) * distances[..., None, :, :]
        return exact.to(torch.get_default_dtype() if dtype is None else dtype)

    return bias
