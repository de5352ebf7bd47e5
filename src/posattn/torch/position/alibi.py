"""ALiBi: each head subtracts from its scores in proportion to the distance."""

from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float, Real
from torch import Tensor

from posattn import contract
from posattn.torch.attention.masks import relative_positions
from posattn.torch.position.tables import doubles, table
from posattn.torch.validated import validated

__all__ = ["ALiBi", "alibi_slopes"]


@validated
def alibi_slopes(
    num_heads: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " h"]:
    """How steeply each head of ALiBi falls with the distance.

    Twin of :func:`posattn.reference.alibi_slopes`; float64 by default, as they multiply distances.

    Args:
        num_heads: H, at least 1.
        dtype: of the result.
        device: where the result lives.

    Returns:
        m, `(num_heads)`, between 0 and 1.

    Examples:
        >>> -alibi_slopes(3).log2()
        tensor([4., 8., 2.], dtype=torch.float64)
    """
    num_heads = contract.integer("num_heads", num_heads, least=1)
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    between = [4 * h / power for h in range(1, 2 * power, 2)]
    slopes = [2**-e for e in [*exponents, *between][:num_heads]]
    return doubles(slopes, device=device).to(dtype or torch.float64)


@validated
@dataclass(frozen=True, repr=False)
class ALiBi:
    """A linear penalty on distance, with its own slope in each head.

    Twin of :class:`posattn.reference.ALiBi`; it has no parameters and is no module.
    Computed in float64 where the positions are.
    Up to position 2**20 its relative error is below 2**-23 in float32.

    Args:
        num_heads: the number of heads, at least 1.
        dtype: of the bias; PyTorch's default one if not given.

    Examples:
        >>> ALiBi(1)(torch.tensor([7]), torch.tensor([3, 8]))
        tensor([[[-0.0156, -0.0039]]])
    """

    relative = True  # a function of distances only

    num_heads: int
    _: KW_ONLY
    dtype: torch.dtype | None = None

    def __post_init__(self):
        num_heads = contract.integer("num_heads", self.num_heads, least=1)
        object.__setattr__(self, "num_heads", num_heads)

    def __repr__(self):
        """The arguments it was made with."""
        dtype = "" if self.dtype is None else f", dtype={self.dtype}"
        return f"ALiBi({self.num_heads}{dtype})"

    def __call__(
        self,
        query_positions: Real[Tensor, "*#batch n_q"],
        key_positions: Real[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """What is added to the scores.

        Twin of calling :class:`posattn.reference.ALiBi`.

        Args:
            query_positions: any real numbers, `(n_q)` or `(*batch, n_q)`.
            key_positions: any real numbers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        distances = relative_positions(query_positions, key_positions).abs()
        slopes = table(alibi_slopes, self.num_heads, device=distances.device)
        exact = -slopes[:, None, None] * distances[..., None, :, :]
        return exact.to(torch.get_default_dtype() if self.dtype is None else self.dtype)
