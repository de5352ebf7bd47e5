"""Swin's relative bias: one learned number per head and displacement inside a window of an image."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["SwinBias"]


@validated
class SwinBias(nn.Module):
    """A learned bias for each head and each displacement inside a two-dimensional window.

    Twin of :class:`posattn.reference.SwinBias`.
    The gradient of a half-precision table is summed in float32: a row has many pairs.
    Under `torch.compile` a cell outside the window is not named here, but fails in the look-up.

    Args:
        num_heads: the number of heads, at least 1.
        height: the number of rows of the window, at least 1.
        width: the number of columns of the window, at least 1.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters are made; PyTorch's default one if not given.
        rng: where they are drawn from; PyTorch's own source if not given.

    Examples:
        >>> layer = SwinBias(2, 4, 4)
        >>> layer(torch.arange(16), torch.arange(16)).shape
        torch.Size([2, 16, 16])
    """

    table: Float[Tensor, "displacements h"]

    def __init__(
        self,
        num_heads: int,
        height: int,
        width: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        num_heads, self.height, self.width = contract.sizes(
            num_heads=num_heads, height=height, width=width
        )
        displacements = (2 * self.height - 1) * (2 * self.width - 1)
        self.table = nn.Parameter(
            torch.empty(displacements, num_heads, dtype=dtype, device=device)
        )
        self.reset_parameters(rng)

    def reset_parameters(self, rng: torch.Generator | None = None) -> None:
        """Draw the table from a normal distribution with standard deviation 0.02.

        Args:
            rng: where they are drawn from, or None for PyTorch's own source.
        """
        nn.init.normal_(self.table, std=0.02, generator=rng)

    def extra_repr(self) -> str:
        """The sizes, for `repr`."""
        num_heads = self.table.shape[1]
        return f"num_heads={num_heads}, height={self.height}, width={self.width}"

    def forward(
        self,
        query_positions: Integer[Tensor, "*#batch n_q"],
        key_positions: Integer[Tensor, "*#batch n_k"],
    ) -> Float[Tensor, "*batch h n_q n_k"]:
        """Look up the bias of each query and key.

        Twin of calling :class:`posattn.reference.SwinBias`.

        Args:
            query_positions: integers from 0 to `height * width - 1`, `(*batch, n_q)`.
            key_positions: integers from 0 to `height * width - 1`, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        return look_up(self.table, query_positions, key_positions, self.height, self.width)


def look_up(table, query_positions, key_positions, height, width):
    """The rows of a table of displacements that belong to pairs of cells of a window."""
    displacements = (2 * height - 1) * (2 * width - 1)
    contract.parameter("table", table, (displacements, "num_heads"))
    contract.position_pair(query_positions, key_positions, integers=True)
    for name, p in (("query", query_positions), ("key", key_positions)):
        known = not (torch.compiler.is_compiling() or p.is_meta)
        contract.window_positions(f"{name}_positions", p, height, width, known=known)
    query, key = (query_positions.long()[..., :, None], key_positions.long()[..., None, :])
    row = query // width - key // width + height - 1
    column = query % width - key % width + width - 1
    outside = (torch.minimum(query, key) < 0) | (
        torch.maximum(query, key) >= height * width
    )
    index = (row * (2 * width - 1) + column).masked_fill(outside, displacements)
    wide = table.to(torch.promote_types(table.dtype, torch.float32))
    return nn.functional.embedding(index, wide).movedim(-1, -3).to(table.dtype)
