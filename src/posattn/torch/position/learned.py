"""Learned positional encoding: one row of parameters per position."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["LearnedPositionalEncoding"]


@validated
class LearnedPositionalEncoding(nn.Module):
    r"""Add to each token a learned vector that belongs to its position.

    Twin of :class:`posattn.reference.LearnedPositionalEncoding`.
    Under `torch.compile` the values of `positions` are not checked here, but by the look-up.

    Args:
        max_len: $n_{\max}$, the number of positions, at least 1.
        dim: the width, at least 1.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> layer = LearnedPositionalEncoding(10, 4)
        >>> layer(torch.zeros(2, 3, 4)).shape
        torch.Size([2, 3, 4])
    """

    table: Float[Tensor, "max_len d"]

    def __init__(
        self,
        max_len: int,
        dim: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        max_len, dim = contract.sizes(max_len=max_len, dim=dim)
        self.table = nn.Parameter(torch.empty(max_len, dim, dtype=dtype, device=device))
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the table from a normal distribution with standard deviation 0.02.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        nn.init.normal_(self.table, std=0.02, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        max_len, dim = self.table.shape
        return f"max_len={max_len}, dim={dim}"

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        *,
        positions: Integer[Tensor, "*#batch n"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        r"""Add the rows of the table to a sequence.

        Twin of calling :class:`posattn.reference.LearnedPositionalEncoding`.

        Args:
            x: `(*batch, n, d)`, with $n \le n_{\max}$ unless `positions` are given.
            positions: where the tokens stand, integers from 0 to $n_{\max} - 1$, `(n)` or
                `(*batch, n)`; $0, \ldots, n - 1$ if not given.

        Returns:
            `(*batch, n, d)`.
        """
        max_len, dim = self.table.shape
        contract.sequence("x", x, dim)
        contract.positions_of(x.shape, positions)
        if positions is None:
            contract.table_length(x.shape[-2], max_len)
            return x + self.table[: x.shape[-2]].to(x.dtype)
        known = not (torch.compiler.is_compiling() or positions.is_meta)
        contract.table_rows(positions, max_len, known=known)
        return x + nn.functional.embedding(positions.long(), self.table).to(x.dtype)
