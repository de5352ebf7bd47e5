"""PoPE: how large an entry is says what, and only the angle says where."""

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn
from torch.nn import functional

from posattn import contract
from posattn.torch.position.sinusoidal import frequencies
from posattn.torch.validated import validated

__all__ = ["PolarKey", "polar_query"]


@validated
def polar_query(
    x: Float[Tensor, "*batch n d"],
    positions: Real[Tensor, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
) -> Float[Tensor, "*batch n 2*d"]:
    r"""Make each entry of a query the length of an arrow, and let only the position rotate the arrow.

    Twin of :func:`posattn.reference.polar_query`.
    Angles are float64 until sine and cosine are taken; half precision is rotated in float32 and
    rounded once.

    Args:
        x: the queries of each head, `(*batch, n, d)`, of any width.
        positions: any real numbers: `(n)`, or with batch axes of which each is that of `x` or 1;
            $0, \ldots, n - 1$ if not given.
        base: the base of the frequencies, positive.

    Returns:
        `(*batch, n, 2 d)`, all cosines before all sines.

    Examples:
        >>> polar_query(torch.full((1, 2), 1.0).expm1().log(), torch.tensor([0]))
        tensor([[1., 1., 0., 0.]])
    """
    return _turned(x, positions, base, 0)


@validated
class PolarKey(nn.Module):
    r"""Make each entry of a key the length of an arrow, which position and a learned angle rotate.

    Twin of :class:`posattn.reference.PolarKey`.
    The angles are a parameter that weight decay should leave alone.

    Args:
        num_heads: the number of heads of keys, at least 1.
        head_dim: the width of the heads, at least 1.
        base: the base of the frequencies, positive.
        dtype: of the parameter `phase`, `(num_heads, head_dim)`, in radians.
        device: where the parameter lies.

    Examples:
        >>> layer = PolarKey(2, 4)
        >>> layer(torch.ones(3, 2, 5, 4)).shape
        torch.Size([3, 2, 5, 8])
    """

    phase: Float[Tensor, "h d"]

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        base: float = 10000.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        num_heads, head_dim = contract.sizes(num_heads=num_heads, head_dim=head_dim)
        self.base = contract.base(base)
        self.phase = nn.Parameter(
            torch.empty(num_heads, head_dim, dtype=dtype, device=device)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start from angles of zero."""
        nn.init.zeros_(self.phase)

    def extra_repr(self) -> str:
        """What was given, for `repr`."""
        return "{}, {}, base={}".format(*self.phase.shape, self.base)

    def forward(
        self,
        x: Float[Tensor, "*batch h n d"],
        positions: Real[Tensor, "*#batch_and_heads n"] | None = None,
    ) -> Float[Tensor, "*batch h n 2*d"]:
        r"""Rotate the keys of all heads.

        Twin of calling :class:`posattn.reference.PolarKey`.

        Args:
            x: the keys of each head, `(*batch, h, n, d)`.
            positions: any real numbers: `(n)`, or with batch axes of which each is that of `x`
                or 1; $0, \ldots, n - 1$ if not given.

        Returns:
            `(*batch, h, n, 2 d)`.
        """
        contract.head_sequence("x", x)
        contract.parameter("phase", self.phase, (x.shape[-3], x.shape[-1]))
        phase = self.phase.double()
        # masked_fill, unlike clamp, keeps the gradient at the bound; NaN stays
        phase = phase.masked_fill(phase > 0, 0)
        phase = phase.masked_fill(phase < -2 * math.pi, -2 * math.pi)
        return _turned(x, positions, self.base, phase[:, None, :])


def _turned(x, positions, base, phase):
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    omega = frequencies(2 * x.shape[-1], base=base, device=x.device)
    angles = positions.double()[..., None] * omega.double() + phase
    wide = torch.promote_types(x.dtype, torch.float32)
    size = -functional.logsigmoid(-x.to(wide))
    rotated = [size * angles.cos().to(wide), size * angles.sin().to(wide)]
    return torch.cat(rotated, dim=-1).to(x.dtype)
