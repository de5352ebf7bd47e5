"""Sinusoidal positional encoding: each position becomes points on circles, from fast to slow."""

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.attention.random import Rng, dropout, warn_of_no_dropout
from posattn.torch.validated import validated

__all__ = ["PositionalEncoding", "frequencies", "shift_matrix", "sinusoidal_encoding"]


@validated
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

    Args:
        dim: the width d, at least 1.
        base: b, positive.
        dtype: of the result.
        device: where the result lives.

    Returns:
        omega in radians per position, `ceil(dim / 2)` numbers.

    Examples:
        >>> frequencies(4)
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    dim = contract.integer("dim", dim, least=1)
    base = contract.base(base)
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim
    return (base**-exponents).to(torch.float64 if dtype is None else dtype)


@validated
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

    Args:
        length_or_positions: n, for the positions 0, ..., n - 1; or the positions themselves,
            `(*batch, n)`.
        dim: the width d, at least 1.
        base: b, positive.
        dtype: of the result.
        device: where the result lives.

    Returns:
        `(n, d)` or `(*batch, n, d)`.

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


@validated
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

    Args:
        offset: delta in positions, any finite number.
        dim: the width d, even: a sine without its cosine cannot be shifted.
        base: b, positive.
        dtype: of the result.
        device: where the result lives.

    Returns:
        The transpose of R_delta, `(d, d)`. It is orthogonal and has determinant 1.

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


@validated
class PositionalEncoding(nn.Module):
    """Add to each token the sinusoidal encoding of its position.

    Twin of :class:`posattn.reference.PositionalEncoding`.
    The encodings of the longest sequence so far are kept, in no buffer: nothing of them is saved, cast,
    or sent to other processes.
    Dropout acts when `rng` is given to the call; a layer in `train` mode that gets none warns.

    Args:
        dim: the width d, at least 1.
        dropout_rate: probability in [0, 1) of dropping an entry of the sum.
        base: b of the frequencies, positive.

    Examples:
        >>> layer = PositionalEncoding(4)
        >>> layer(torch.zeros(1, 2, 4))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    def __init__(self, dim: int, *, dropout_rate: float = 0.0, base: float = 10000.0):
        super().__init__()
        self.dim = contract.integer("dim", dim, least=1)
        self.dropout_rate = contract.dropout_rate(dropout_rate)
        self.base = contract.base(base)
        self._kept = None

    def forward(
        self,
        x: Float[Tensor, "*batch n d"],
        *,
        positions: Real[Tensor, "*#batch n"] | None = None,
        rng: Rng | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Add the encoding to a sequence of any length.

        Twin of calling :class:`posattn.reference.PositionalEncoding`.

        Args:
            x: X, `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`; 0, ..., n - 1 if not
                given.
            rng: where the numbers are drawn from.

        Returns:
            `(*batch, n, d)`.
        """
        warn_of_no_dropout(self, rng)
        contract.sequence("x", x, self.dim)
        contract.positions_of(x.shape, positions)
        if positions is None:
            encoding = self._first_rows(x.shape[-2], x.dtype, x.device)
        else:
            encoding = sinusoidal_encoding(
                positions, self.dim, base=self.base, dtype=x.dtype, device=x.device
            )
        return dropout(x + encoding, self.dropout_rate, rng)

    def _first_rows(self, n, dtype, device):
        options = {"base": self.base, "dtype": dtype, "device": device}
        if torch.compiler.is_compiling():
            return sinusoidal_encoding(torch.arange(n, device=device), self.dim, **options)
        kept = self._kept
        if kept is None or len(kept) < n or (kept.dtype, kept.device) != (dtype, device):
            self._kept = sinusoidal_encoding(
                torch.arange(n, device=device), self.dim, **options
            )
        return self._kept[:n]

    def _apply(self, fn, recurse=True):
        self._kept = None
        return super()._apply(fn, recurse)

    def extra_repr(self) -> str:
        """The arguments it was made with."""
        return f"{self.dim}, dropout_rate={self.dropout_rate}, base={self.base}"
