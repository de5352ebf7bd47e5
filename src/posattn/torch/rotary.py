"""Rotary position embedding: queries and keys turn with their position."""

import torch
from jaxtyping import Float, Real, Shaped
from torch import Tensor

from posattn import contract
from posattn.torch import sinusoidal

__all__ = ["rotate", "to_half", "to_interleaved", "weight_to_half", "weight_to_interleaved"]


def rotate(
    x: Float[Tensor, "*batch n d"],
    positions: Real[Tensor, "*#batch n"] | None = None,
    *,
    frequencies: Float[Tensor, " m"] | None = None,
    base: float = 10000.0,
    layout: str = "interleaved",
    attention_factor: float = 1.0,
) -> Float[Tensor, "*batch n d"]:
    """Turn each pair of entries of a token by an angle that grows with the token's position.

    Twin of :func:`posattn.reference.rotate`.
    Angles are float64 until sine and cosine are taken, so that float32 results are right to 2e-7 of
    the largest entry at any position; half precision is turned in float32 and rounded once.

    Examples:
        >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0]] * 2)
        >>> rotate(x)
        tensor([[1.0000, 0.0000, 1.0000, 0.0000],
                [0.5403, 0.8415, 0.9999, 0.0100]])
    """
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.pair_frequencies(frequencies, x.shape)
    factor = contract.positive("attention_factor", attention_factor)
    if frequencies is None:
        frequencies = sinusoidal.frequencies(x.shape[-1], base=base, device=x.device)
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    angles = positions.double()[..., None] * frequencies.double()
    return turn(x, factor * angles.cos(), factor * angles.sin(), layout)


def turn(x, cos, sin, layout):
    """Multiply the first pairs of `x` by rotations, as many as there are, and pass the rest through."""
    contract.layout(layout)
    m = cos.shape[-1]
    wide = torch.promote_types(x.dtype, torch.float32)
    axis, pairs = (-2, (2, m)) if layout == "half" else (-1, (m, 2))
    a, b = x[..., : 2 * m].to(wide).unflatten(-1, pairs).unbind(axis)
    cos, sin = cos.to(wide), sin.to(wide)
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=axis)
    turned = turned.flatten(-2).to(x.dtype)
    rest = x[..., 2 * m :]
    return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned


def to_half(x: Shaped[Tensor, "*batch d"]) -> Shaped[Tensor, "*batch d"]:
    """Put the even columns before the odd ones: from the layout `"interleaved"` to `"half"`.

    Twin of :func:`posattn.reference.to_half`.

    Examples:
        >>> to_half(torch.arange(5))
        tensor([0, 2, 4, 1, 3])
    """
    contract.columns(x)
    return torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1)


def to_interleaved(x: Shaped[Tensor, "*batch d"]) -> Shaped[Tensor, "*batch d"]:
    """Alternate the columns of the first half with those of the second: the inverse of `to_half`.

    Twin of :func:`posattn.reference.to_interleaved`.

    Examples:
        >>> to_interleaved(torch.tensor([0, 2, 4, 1, 3]))
        tensor([0, 1, 2, 3, 4])
    """
    contract.columns(x)
    return x[..., to_half(torch.arange(x.shape[-1], device=x.device)).argsort()]


def weight_to_half(
    weight: Float[Tensor, "d_out *d_in"], num_heads: int, rotary_dim: int | None = None
) -> Float[Tensor, "d_out *d_in"]:
    """Convert the projection of queries or keys of a model made for the layout `"interleaved"`.

    Twin of :func:`posattn.reference.weight_to_half`.
    The weight is that of a :class:`torch.nn.Linear`, `(d_out, d_in)`, or its bias, `(d_out)`.

    Examples:
        >>> weight_to_half(torch.arange(8.0), 2)
        tensor([0., 2., 1., 3., 4., 6., 5., 7.])
    """
    return _of_each_head(to_half, weight, num_heads, rotary_dim)


def weight_to_interleaved(
    weight: Float[Tensor, "d_out *d_in"], num_heads: int, rotary_dim: int | None = None
) -> Float[Tensor, "d_out *d_in"]:
    """Convert the projection of queries or keys of a model made for the layout `"half"`.

    Twin of :func:`posattn.reference.weight_to_interleaved`.
    The weight is that of a :class:`torch.nn.Linear`, `(d_out, d_in)`, or its bias, `(d_out)`.

    Examples:
        >>> weight_to_interleaved(torch.tensor([0.0, 2.0, 1.0, 3.0]), 1)
        tensor([0., 1., 2., 3.])
    """
    return _of_each_head(to_interleaved, weight, num_heads, rotary_dim)


def _of_each_head(convert, weight, num_heads, rotary_dim):
    """Convert the outputs of each head that turn."""
    contract.projection(weight)
    num_heads = contract.heads(num_heads, weight.shape[0])
    heads = weight.movedim(0, -1).unflatten(-1, (num_heads, -1))
    turning = contract.rotary_dim(rotary_dim, heads.shape[-1])
    parts = [convert(heads[..., :turning]), heads[..., turning:]]
    return torch.cat(parts, dim=-1).flatten(-2).movedim(-1, 0)
