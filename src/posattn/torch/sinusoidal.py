"""Sinusoidal positional encoding: each position becomes the hands of many clocks."""

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention import dropout

__all__ = ["PositionalEncoding", "frequencies", "shift_matrix", "sinusoidal_encoding"]


def frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " m"]:
    """The frequencies of a sinusoidal encoding, from fast to slow.

    Twin of :func:`posattn.reference.frequencies`.
    The default dtype is float64, because angles made from rounded frequencies drift with the position.

    Examples:
        >>> frequencies(4)
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    dim = contract.integer("dim", dim, least=1)
    base = contract.base(base)
    exact = torch.tensor(
        [base ** (-j / dim) for j in range(0, dim, 2)], dtype=torch.float64
    )
    return exact.to(device, dtype)


def sinusoidal_encoding(
    length_or_positions: int | Real[Tensor, "*batch n"],
    dim: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "*batch n d"]:
    """One row of sines and cosines per position.

    Twin of :func:`posattn.reference.sinusoidal_encoding`.
    Angles are float64 until the sines are taken; the result has `dtype`, or PyTorch's default one,
    and lives on `device`, or where the positions are.

    Examples:
        >>> sinusoidal_encoding(2, 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    length = contract.length_or_positions(length_or_positions)
    positions = length_or_positions if length is None else torch.arange(length)
    angles = positions.double()[..., None] * frequencies(
        dim, base=base, device=positions.device
    )
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return pairs[..., :dim].to(
        device, torch.get_default_dtype() if dtype is None else dtype
    )


def shift_matrix(
    offset: float,
    dim: int,
    *,
    base: float = 10000.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "d d"]:
    """The rotation that takes each encoding to the one `offset` positions later.

    Twin of :func:`posattn.reference.shift_matrix`.

    Examples:
        >>> shift_matrix(1, 2)
        tensor([[ 0.5403,  0.8415],
                [-0.8415,  0.5403]])
    """
    offset = contract.offset(offset)
    dim = contract.integer("dim", dim, least=1, even=True)
    angles = offset * frequencies(dim, base=base)
    cos, sin = angles.cos(), angles.sin()
    rotations = torch.stack([cos, sin, -sin, cos], dim=-1).unflatten(-1, (2, 2))
    return torch.block_diag(*rotations).to(
        device, torch.get_default_dtype() if dtype is None else dtype
    )


class PositionalEncoding(nn.Module):
    """Add to each token the sinusoidal encoding of its position.

    Twin of :class:`posattn.reference.PositionalEncoding`.
    The table is a cache, no part of the state dict: it grows with the longest sequence seen, and is
    made anew after the module was moved or cast.
    Dropout acts when `rng` is given to the call, not in `train` mode.

    Examples:
        >>> layer = PositionalEncoding(4)
        >>> layer(torch.zeros(1, 2, 4))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    table: Tensor

    def __init__(self, dim: int, *, dropout_rate: float = 0.0, base: float = 10000.0):
        super().__init__()
        self.dim = contract.integer("dim", dim, least=1)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.base = contract.base(base)
        self.register_buffer("table", torch.empty(0, self.dim), persistent=False)

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        *,
        positions: Real[Tensor, "*#batch n"] | None = None,
        rng: torch.Generator | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Add the encoding to a sequence of any length.

        Twin of calling :class:`posattn.reference.PositionalEncoding`.
        """
        contract.sequence("x", x, self.dim)
        contract.positions_of(x.shape, positions)
        if positions is None:
            encoding = self._first_rows(x.shape[-2], x.dtype, x.device)
        else:
            encoding = sinusoidal_encoding(
                positions, self.dim, base=self.base, dtype=x.dtype, device=x.device
            )
        return dropout(x + encoding, self.dropout_rate, rng)

    def _first_rows(
        self, n: int, dtype: torch.dtype, device: torch.device
    ) -> Float[Tensor, "n d"]:
        if len(self.table) < n or self.table.dtype != dtype or self.table.device != device:
            self.table = sinusoidal_encoding(
                n, self.dim, base=self.base, dtype=dtype, device=device
            )
        return self.table[:n]

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.table = self.table[
            :0
        ]  # a cast table has lost digits that a later cast cannot restore
        return self
