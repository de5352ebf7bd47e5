"""Rotation by several coordinates: images, video, and text between them."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float, Integer, Real
from torch import Tensor, nn

from posattn import contract
from posattn.torch.position.rotary import rotate_by
from posattn.torch.position.sinusoidal import frequencies as sinusoidal_frequencies
from posattn.torch.position.tables import doubles, table
from posattn.torch.validated import validated

__all__ = [
    "MixedRotary",
    "RotaryAxes",
    "axial_frequencies",
    "grid_coordinates",
    "rotate_axes",
]


@validated
def rotate_axes(
    x: Float[Tensor, "*batch n d"],
    coordinates: Real[Tensor, "*#batch n c"],
    frequencies: Float[Tensor, "c *#h m"],
    *,
    layout: str = "interleaved",
    attention_factor: float = 1.0,
) -> Float[Tensor, "*batch n d"]:
    """Rotate each pair of entries of a token by an angle that is linear in the token's coordinates.

    Twin of :func:`posattn.reference.rotate_axes`.
    Angles are float64 until sine and cosine are taken.

    Args:
        x: the queries or keys of each head, `(*batch, n, d)`.
        coordinates: p, any real numbers: `(n, c)`, or with batch axes of which each is that of
            `x` or 1.
        frequencies: omega in radians per step, `(c, m)`, or `(c, h, m)` with a set for each of
            the heads of `x`, `(*batch, h, n, d)`; 2m <= d, and the rest of a token passes
            through.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see `rotate`.
        attention_factor: alpha, positive, on the entries that rotate: it multiplies their part of the
            scores by alpha**2. A model whose frequencies YaRN has slowed needs it.

    Returns:
        `(*batch, n, d)`.

    Examples:
        >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
        >>> rotate_axes(x, torch.tensor([[0, 1]]), torch.eye(2))
        tensor([[1.0000, 0.0000, 0.5403, 0.8415]])
    """
    contract.sequence("x", x)
    contract.axis_frequencies(frequencies, x.shape)
    contract.coordinates(coordinates, x.shape, frequencies.shape[0])
    factor = contract.positive("attention_factor", attention_factor)
    places, frequencies = coordinates.double(), frequencies.double()
    angles = sum(
        p[..., None] * omega[..., None, :]
        for p, omega in zip(places.unbind(-1), frequencies, strict=True)
    )
    cos, sin = angles.cos(), angles.sin()
    if factor != 1:
        cos, sin = factor * cos, factor * sin
    return rotate_by(x, cos, sin, layout)


@validated
@dataclass(frozen=True)
class RotaryAxes:
    """`rotate_axes` with its frequencies, as a value that a layer takes and a checkpoint keeps.

    Twin of :class:`posattn.reference.RotaryAxes`; it has no parameters and is no module.

    Args:
        frequencies: omega in radians per step, `(c, m)`: an array, or a row of numbers for each axis;
            kept as Python numbers.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see `rotate`.
        attention_factor: positive, on the entries that rotate.

    Examples:
        >>> rotary = RotaryAxes([[1.0, 0.0], [0.0, 1.0]], layout="half")
        >>> rotary == RotaryAxes(torch.eye(2), layout="half")
        True
        >>> rotary(torch.ones(3, 4), torch.zeros(3, 2)).shape
        torch.Size([3, 4])
    """

    frequencies: Float[Tensor, "c m"] | Sequence[Sequence[float]]
    _: KW_ONLY
    layout: str = "interleaved"
    attention_factor: float = 1.0

    def __post_init__(self):
        for name, value in contract.rotary_axes(**vars(self)).items():
            object.__setattr__(self, name, value)

    def __call__(
        self, x: Float[Tensor, "*batch n d"], coordinates: Real[Tensor, "*#batch n c"]
    ) -> Float[Tensor, "*batch n d"]:
        """Rotate the pairs of `x`.

        Twin of calling :class:`posattn.reference.RotaryAxes`.

        Args:
            x: the queries or keys of each head, `(*batch, n, d)`.
            coordinates: where the tokens stand on each axis, any real numbers: `(n, c)`, or with batch
                axes of which each is that of `x` or 1.

        Returns:
            `(*batch, n, d)`.
        """
        return rotate_axes(
            x,
            coordinates,
            table(doubles, self.frequencies, device=x.device),
            layout=self.layout,
            attention_factor=self.attention_factor,
        )


@validated
def axial_frequencies(
    dim: int,
    num_axes: int = 2,
    *,
    base: float = 100.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "c m"]:
    """Give each axis an equal share of the pairs, from fast to slow.

    Twin of :func:`posattn.reference.axial_frequencies`; float64 by default.

    Args:
        dim: the number of entries that rotate, d, a multiple of 2c.
        num_axes: c, at least 1.
        base: b, positive.
        dtype: of the result.
        device: where the result lives.

    Returns:
        omega in radians per step, `(c, d / 2)`.

    Examples:
        >>> axial_frequencies(8)
        tensor([[1.0000, 0.1000, 0.0000, 0.0000],
                [0.0000, 0.0000, 1.0000, 0.1000]], dtype=torch.float64)
    """
    num_axes = contract.integer("num_axes", num_axes, least=1)
    dim = contract.multiple("dim", dim, 2 * num_axes)
    share = sinusoidal_frequencies(dim // num_axes, base=base)
    return torch.block_diag(*[share] * num_axes).to(device, dtype)


@validated
def grid_coordinates(
    height: int, width: int, *, device: torch.device | str | None = None
) -> Integer[Tensor, "n c"]:
    """Row and column of each cell of a grid, row by row.

    Twin of :func:`posattn.reference.grid_coordinates`.

    Args:
        height: the number of rows, at least 1.
        width: the number of columns, at least 1.
        device: where the result lives.

    Returns:
        `(height * width, 2)`, integers.

    Examples:
        >>> grid_coordinates(1, 2)
        tensor([[0, 0],
                [0, 1]])
    """
    height, width = contract.sizes(height=height, width=width)
    rows, columns = (torch.arange(size, device=device) for size in (height, width))
    return torch.cartesian_prod(rows, columns)


@validated
class MixedRotary(nn.Module):
    """Rotate queries and keys by row and column, with learned frequencies for both in every pair.

    Twin of :class:`posattn.reference.MixedRotary`.
    The frequencies are a parameter that weight decay should leave alone, as the authors do.

    Args:
        head_dim: the width of a head d_h, a multiple of 4.
        num_heads: the number of heads H, at least 1.
        width: the number of columns of the grid, at least 1.
        base: b, positive.
        layout: `"interleaved"` or `"half"`.
        dtype: of the parameters; PyTorch's default one if not given.
        device: where the parameters live.
        rng: where the parameters are drawn from; PyTorch's own generator if not given.

    Examples:
        >>> layer = MixedRotary(8, 2, 14)
        >>> layer(torch.ones(3, 2, 196, 8)).shape
        torch.Size([3, 2, 196, 8])
    """

    frequencies: Float[Tensor, "c h m"]

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        width: int,
        *,
        base: float = 10.0,
        layout: str = "interleaved",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        rng: torch.Generator | None = None,
    ):
        super().__init__()
        head_dim = contract.multiple("head_dim", head_dim, 4)
        num_heads, self.width = contract.sizes(num_heads=num_heads, width=width)
        contract.layout(layout)
        self.layout = layout
        omega = sinusoidal_frequencies(head_dim // 2, base=base, device=device)
        direction = torch.rand(num_heads, 1, generator=rng, device=device).double()
        cos, sin = (2 * math.pi * direction).cos(), (2 * math.pi * direction).sin()
        rows = torch.cat([cos * omega, -sin * omega], dim=-1)
        columns = torch.cat([sin * omega, cos * omega], dim=-1)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self.frequencies = nn.Parameter(torch.stack([rows, columns]).to(dtype))

    def forward(
        self,
        x: Float[Tensor, "*batch h n d"],
        positions: Integer[Tensor, "*#batch_and_heads n"] | None = None,
    ) -> Float[Tensor, "*batch h n d"]:
        """Rotate the heads of a sequence of cells.

        Twin of calling :class:`posattn.reference.MixedRotary`.

        Args:
            x: the queries or keys of each head, `(*batch, H, n, d_h)`.
            positions: p, the numbers of the cells, row by row: integers, `(n)`, or with batch
                axes of which each is that of `x` or 1; 0, ..., n - 1 if not given.

        Returns:
            `(*batch, H, n, d_h)`.
        """
        contract.head_sequence("x", x)
        contract.token_positions(positions, x.shape, integers=True)
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        coordinates = torch.stack([positions // self.width, positions % self.width], dim=-1)
        return rotate_axes(x, coordinates, self.frequencies.double(), layout=self.layout)
