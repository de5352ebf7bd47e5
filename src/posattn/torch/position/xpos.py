"""xPos: a rotation that also fades, so that scores fall with the distance."""

import torch
from jaxtyping import Float, Real
from torch import Tensor

from posattn import contract
from posattn.torch.position.rotary import rotate_by
from posattn.torch.position.sinusoidal import frequencies
from posattn.torch.validated import validated

__all__ = ["xpos_key", "xpos_query"]


@validated
def xpos_query(
    x: Float[Tensor, "*batch n d"],
    positions: Real[Tensor, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
    gamma: float = 0.4,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Float[Tensor, "*batch n d"]:
    """Rotate each pair of entries of a query, and shrink it more the later it stands.

    Twin of :func:`posattn.reference.xpos_query`.
    Angles and powers are float64 until they meet the query.

    Args:
        x: the queries of each head, `(*batch, n, d)`, d even.
        positions: p, any real numbers: `(n)`, or with batch axes of which each is that of `x`
            or 1; 0, ..., n - 1 if not given.
        base: b, positive.
        gamma: gamma, positive; the larger, the less any pair fades.
        scale_base: tau, positive: over so many positions pair j fades by zeta_j.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see `rotate`.

    Returns:
        `(*batch, n, d)`.

    Examples:
        >>> xpos_query(torch.tensor([[1.0, 0.0]] * 2))
        tensor([[1.0000, 0.0000],
                [0.5390, 0.8394]])
    """
    return _fading(x, positions, base, gamma, scale_base, layout, 1)


@validated
def xpos_key(
    x: Float[Tensor, "*batch n d"],
    positions: Real[Tensor, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
    gamma: float = 0.4,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Float[Tensor, "*batch n d"]:
    """Rotate each pair of entries of a key, and grow it more the later it stands.

    Twin of :func:`posattn.reference.xpos_key`.
    Angles and powers are float64 until they meet the key.

    Args:
        x: the keys of each head, `(*batch, n, d)`, d even.
        positions: as in `xpos_query`, and so are the others.
        base: b, positive.
        gamma: gamma, positive.
        scale_base: tau, positive.
        layout: `"interleaved"` or `"half"`.

    Returns:
        `(*batch, n, d)`.

    Examples:
        >>> xpos_key(torch.tensor([[1.0, 0.0]] * 2))
        tensor([[1.0000, 0.0000],
                [0.5416, 0.8435]])
    """
    return _fading(x, positions, base, gamma, scale_base, layout, -1)


def _fading(x, positions, base, gamma, scale_base, layout, sign):
    """Rotate `x`, and multiply its pairs by the power `sign` of what makes them fade."""
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.pair_frequencies(None, x.shape)
    gamma = contract.positive("gamma", gamma)
    scale_base = contract.positive("scale_base", scale_base)
    (n, d), device = x.shape[-2:], x.device
    positions = torch.arange(n, device=device) if positions is None else positions
    where = positions.double()[..., None]
    even = torch.arange(0, d, 2, dtype=torch.float64, device=device)
    zeta = (even / d + gamma) / (1 + gamma)
    scale = zeta ** (sign * where / scale_base)
    angles = where * frequencies(d, base=base, device=device)
    return rotate_by(x, scale * angles.cos(), scale * angles.sin(), layout)
