"""Rotary position embedding: queries and keys rotate with their position."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from jaxtyping import Float, Real, Shaped
from torch import Tensor

from posattn import contract
from posattn.torch.attention.masks import transformed
from posattn.torch.position import sinusoidal
from posattn.torch.position.tables import doubles, table
from posattn.torch.validated import validated

__all__ = [
    "Rotary",
    "rotate",
    "to_half",
    "to_interleaved",
    "weight_to_half",
    "weight_to_interleaved",
]


@validated
def rotate(
    x: Float[Tensor, "*batch n d"],
    positions: Real[Tensor, "*#batch n"] | None = None,
    *,
    frequencies: Float[Tensor, " m"] | None = None,
    base: float = 10000.0,
    layout: Literal["interleaved", "half"] = "interleaved",
    attention_factor: float = 1.0,
) -> Float[Tensor, "*batch n d"]:
    """Rotate each pair of entries of a token by an angle that grows with the token's position.

    Tokens are the axis before the last, and heads stand before them: of `(b, n, h, d)` the heads would count
    as positions. Fewer than d/2 `frequencies` rotate the first entries only.

    Twin of :func:`posattn.reference.rotate`.
    Angles are float64 until sine and cosine are taken, so that float32 results are right to 2e-7 of
    the largest entry at any position; half precision is rotated in float32 and rounded once.

    Args:
        x: the queries or keys of each head, `(*batch, n, d)`.
        positions: p, any real numbers: `(n)`, or with batch axes of which each is that of `x`
            or 1; 0, ..., n - 1 if not given. Negative ones rotate `x` back.
        frequencies: omega in radians per position, `(m)`, with 2m <= d. If not given, omega_j =
            b**(-2j/d) with m = d/2, the paper's.
        base: b, positive; unused where `frequencies` are given.
        layout: `"interleaved"` or `"half"`.
        attention_factor: c, positive, on the entries that rotate: it multiplies their part of the
            scores by c**2. YaRN and LongRoPE need it.

    Returns:
        `(*batch, n, d)`.

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
    return rotate_by(x, *_waves(x, positions, frequencies, factor), layout)


@validated
@dataclass(frozen=True, kw_only=True, repr=False)
class Rotary:
    """`rotate` with its options, as a value that a layer takes and a checkpoint keeps.

    Twin of :class:`posattn.reference.Rotary`; it has no parameters and is no module.

    Args:
        rotary_dim: how many entries of a head rotate, a positive even number: twice the number of
            frequencies if they are given, otherwise all if not given.
        base: of the frequencies `base ** (-2 * j / rotary_dim)`; unused where `frequencies` are given.
        layout: `"interleaved"` or `"half"`.
        frequencies: in radians per position, numbers or an array; kept as Python numbers.
        attention_factor: positive, on the entries that rotate.

    Examples:
        >>> rotary = Rotary(base=500000.0, layout="half")
        >>> rotary
        Rotary(base=500000.0, layout='half')
        >>> rotary == Rotary(base=500000.0, layout="half")
        True
        >>> rotary(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """

    rotary_dim: int | None = None
    base: float = 10000.0
    layout: Literal["interleaved", "half"] = "interleaved"
    frequencies: Sequence[float] | Float[Tensor, " m"] | None = None
    attention_factor: float = 1.0

    def __post_init__(self):
        for name, value in contract.rotary(**vars(self)).items():
            object.__setattr__(self, name, value)

    def __repr__(self):
        """The options that differ from their defaults."""
        given = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        named = (f"{name}={value!r}" for name, value, default in given if value != default)
        return f"Rotary({', '.join(named)})"

    def __call__(
        self,
        x: Float[Tensor, "*batch n d"],
        positions: Real[Tensor, "*#batch n"] | None = None,
    ) -> Float[Tensor, "*batch n d"]:
        """Rotate the pairs of `x`.

        Twin of calling :class:`posattn.reference.Rotary`.

        Args:
            x: the queries or keys of each head, `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or with batch axes, of which each is that of `x` or
                1; 0 to `n - 1` if not given. Negative ones rotate `x` back.

        Returns:
            `(*batch, n, d)`.
        """
        contract.sequence("x", x)
        contract.token_positions(positions, x.shape)
        return rotate_by(x, *_waves_of(self, x, positions), self.layout)


def rotate_alike(rotary, query, key, positions):
    """Queries and keys of the same tokens, rotated by one `Rotary`; at once in steps, where calls cost."""
    waves = _waves_of(rotary, query, positions)
    if not torch.compiler.is_compiling() and query.shape[-2] <= 8:
        both = rotate_by(torch.cat([query, key], -3), *waves, rotary.layout)
        return both.split([query.shape[-3], key.shape[-3]], -3)
    return tuple(rotate_by(x, *waves, rotary.layout) for x in (query, key))


def _waves_of(rotary, x, positions):
    """Cosines and sines of the angles of a `Rotary`."""
    dim = x.shape[-1] if rotary.rotary_dim is None else rotary.rotary_dim
    if rotary.frequencies is not None:
        frequencies = table(doubles, rotary.frequencies, device=x.device)
    else:
        frequencies = table(sinusoidal.frequencies, dim, base=rotary.base, device=x.device)
    contract.pair_frequencies(None if rotary.rotary_dim is None else frequencies, x.shape)
    return _waves(x, positions, frequencies, rotary.attention_factor)


def _waves(x, positions, frequencies, factor):
    """Cosines and sines of the angles."""
    where = torch.arange(x.shape[-2], device=x.device) if positions is None else positions
    angles = where.double()[..., None] * frequencies.double()
    cos, sin = angles.cos(), angles.sin()
    return (cos, sin) if factor == 1 else (factor * cos, factor * sin)


def rotate_by(x, cos, sin, layout):
    """Multiply the first pairs of `x` by rotations, as many as there are, and pass the rest through."""
    contract.layout(layout)
    m = cos.shape[-1]
    wide = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(wide), sin.to(wide)
    half = layout == "half" and m > 1  # one pair lies alike in both
    whole = x.shape[-1] == 2 * m
    rotation = (x if whole else x[..., : 2 * m]).to(wide)
    if torch.compiler.is_compiling() or x.numel() == 0:
        # kept, or the compiled pass computes them for each head
        rotated = _by_parts(rotation, *torch.stack([cos, sin]), half)
    elif half:
        rotated = _by_halves(rotation, cos, sin)
    else:
        rotated = _product(rotation.unflatten(-1, (m, 2)), cos, sin).flatten(-2)
    rotated = rotated.to(x.dtype)
    return rotated if whole else torch.cat([rotated, x[..., 2 * m :]], dim=-1)


def _by_parts(x, cos, sin, half):
    """Entries of pairs by themselves, which only a compiler makes one pass over memory."""
    m = cos.shape[-1]
    axis, pairs = (-2, (2, m)) if half else (-1, (m, 2))
    a, b = x.unflatten(-1, pairs).unbind(axis)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=axis).flatten(-2)


def _by_halves(x, cos, sin):
    """Each half rotated with the other."""
    if transformed():
        return _by_parts(x, cos, sin, True)
    learns = torch.is_grad_enabled() and any(part.requires_grad for part in (x, cos, sin))
    return (_Halves.apply if learns else _in_place)(x, cos, sin)


def _in_place(x, cos, sin):
    m = cos.shape[-1]
    rotated = x * torch.cat([cos, cos], dim=-1)
    rotated[..., :m].addcmul_(x[..., m:], sin, value=-1)
    rotated[..., m:].addcmul_(x[..., :m], sin)
    return rotated


class _Halves(torch.autograd.Function):
    """In place, forward and backward, because new arrays of parts are slow on CPUs."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        learned = any(ctx.needs_input_grad[1:])
        ctx.save_for_backward(x if learned else None, cos, sin)
        ctx.save_for_forward(x, cos, sin)
        return _in_place(x, cos, sin)

    @staticmethod
    def jvp(ctx, moved, cos_moved, sin_moved):
        x, cos, sin = ctx.saved_tensors
        return _by_halves(moved, cos, sin) + _by_halves(x, cos_moved, sin_moved)

    @staticmethod
    def backward(ctx, grad):
        x, cos, sin = ctx.saved_tensors
        back = _by_halves(grad, cos, -sin) if ctx.needs_input_grad[0] else None
        if x is None:
            return back, None, None
        (a, b), (to_a, to_b) = (each.chunk(2, dim=-1) for each in (x, grad))
        to_cos, to_sin = to_a * a + to_b * b, to_b * a - to_a * b
        return back, to_cos.sum_to_size(cos.shape), to_sin.sum_to_size(sin.shape)


def _product(pairs, cos, sin):
    """Pairs as complex numbers, times cos + i sin: one pass over memory, where it lies well."""
    steps = pairs.storage_offset(), *pairs.stride()[:-1]
    if pairs.stride(-1) != 1 or any(step % 2 for step in steps):
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_real(torch.view_as_complex(pairs) * torch.complex(cos, sin))


@validated
def to_half(x: Shaped[Tensor, "*batch d"]) -> Shaped[Tensor, "*batch d"]:
    """Put the even columns before the odd ones: from the layout `"interleaved"` to `"half"`.

    Twin of :func:`posattn.reference.to_half`.

    Args:
        x: `(*batch, d)`, of any dtype; d may be odd.

    Returns:
        The same entries in another order.

    Examples:
        >>> to_half(torch.arange(5))
        tensor([0, 2, 4, 1, 3])
    """
    contract.columns(x)
    return torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1)


@validated
def to_interleaved(x: Shaped[Tensor, "*batch d"]) -> Shaped[Tensor, "*batch d"]:
    """Alternate the columns of the first half with those of the second: the inverse of `to_half`.

    Twin of :func:`posattn.reference.to_interleaved`.

    Args:
        x: `(*batch, d)`, of any dtype; if d is odd, the first half is the larger one.

    Returns:
        The same entries in another order.

    Examples:
        >>> to_interleaved(torch.tensor([0, 2, 4, 1, 3]))
        tensor([0, 1, 2, 3, 4])
    """
    contract.columns(x)
    return x[..., to_half(torch.arange(x.shape[-1], device=x.device)).argsort()]


@validated
def weight_to_half(
    weight: Float[Tensor, "d_out *d_in"], num_heads: int, rotary_dim: int | None = None
) -> Float[Tensor, "d_out *d_in"]:
    """Convert the projection of queries or keys of a model made for the layout `"interleaved"`.

    Twin of :func:`posattn.reference.weight_to_half`.
    The weight is that of a :class:`torch.nn.Linear`, `(d_out, d_in)`, or its bias, `(d_out)`.

    Args:
        weight: `(d_in, d_out)` for `x @ weight`, or an offset, `(d_out)`.
        num_heads: the number of heads in `weight`, which divides d_out; where queries share
            keys, the keys have fewer.
        rotary_dim: how many entries of each head rotate, even; all if not given.

    Returns:
        An array of the same shape and the same numbers.

    Examples:
        >>> weight_to_half(torch.arange(8.0), 2)
        tensor([0., 2., 1., 3., 4., 6., 5., 7.])
    """
    return _of_each_head(to_half, weight, num_heads, rotary_dim)


@validated
def weight_to_interleaved(
    weight: Float[Tensor, "d_out *d_in"], num_heads: int, rotary_dim: int | None = None
) -> Float[Tensor, "d_out *d_in"]:
    """Convert the projection of queries or keys of a model made for the layout `"half"`.

    Twin of :func:`posattn.reference.weight_to_interleaved`.
    The weight is that of a :class:`torch.nn.Linear`, `(d_out, d_in)`, or its bias, `(d_out)`.

    Args:
        weight: `(d_in, d_out)` for `x @ weight`, or an offset, `(d_out)`.
        num_heads: the number of heads in `weight`, which divides d_out.
        rotary_dim: how many entries of each head rotate, even; all if not given.

    Returns:
        An array of the same shape and the same numbers.

    Examples:
        >>> weight_to_interleaved(torch.tensor([0.0, 2.0, 1.0, 3.0]), 1)
        tensor([0., 1., 2., 3.])
    """
    return _of_each_head(to_interleaved, weight, num_heads, rotary_dim)


def _of_each_head(convert, weight, num_heads, rotary_dim):
    """Convert the outputs of each head that rotate."""
    contract.projection(weight)
    num_heads = contract.heads(num_heads, weight.shape[0])
    heads = weight.movedim(0, -1).unflatten(-1, (num_heads, -1))
    rotation = contract.rotary_dim(rotary_dim, heads.shape[-1])
    parts = [convert(heads[..., :rotation]), heads[..., rotation:]]
    return torch.cat(parts, dim=-1).flatten(-2).movedim(-1, 0)
