"""Rotary position embedding: queries and keys rotate with their position."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Real, Shaped

from posattn import contract
from posattn.jax.position import sinusoidal
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = [
    "Rotary",
    "rotate",
    "to_half",
    "to_interleaved",
    "weight_to_half",
    "weight_to_interleaved",
]

Layout = Literal["interleaved", "half"]

_BLOCK = 64  # positions in a row; sines of a block and of its starts make all others


@validated
@register
@dataclass(frozen=True)
class Rotary:
    """A rotation as a value: :func:`rotate` with these options.

    Twin of :class:`posattn.reference.Rotary`; a pytree without leaves.
    Frequencies are kept as Python numbers, which have 64 bits, and are constants; for learned ones
    call :func:`rotate`.

    Args:
        rotary_dim: how many entries of a head rotate, the first ones, an even number; if not given,
            all, or two for each of the frequencies.
        base: of the frequencies, positive; unused where `frequencies` are given.
        layout: which entries make a pair, `"interleaved"` or `"half"`.
        frequencies: in radians per position, `(m)`, an array or a sequence of numbers.
        attention_factor: multiplies the entries that rotate, positive.

    Examples:
        >>> Rotary(base=500000.0) == Rotary(base=500000.0)
        True
        >>> Rotary(rotary_dim=2, layout="half")(jnp.array([[1.0, 0.0, 1.0, 0.0]] * 2)).round(4)
        Array([[1.    , 0.    , 1.    , 0.    ],
               [0.5403, 0.8415, 1.    , 0.    ]], dtype=float32)
    """

    _: KW_ONLY
    rotary_dim: int | None = field(default=None, metadata={"static": True})
    base: float = field(default=10000.0, metadata={"static": True})
    layout: Layout = field(default="interleaved", metadata={"static": True})
    frequencies: Float[Array | np.ndarray, " m"] | Sequence[float] | None = field(
        default=None, metadata={"static": True}
    )
    attention_factor: float = field(default=1.0, metadata={"static": True})

    def __post_init__(self):
        for name, value in contract.rotary(**vars(self)).items():
            object.__setattr__(self, name, value)

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        positions: Real[Array | np.ndarray, "*#batch n"] | None = None,
    ) -> Float[Array, "*batch n d"]:
        """Rotate each pair of entries of a token by an angle that grows with the token's position.

        Twin of calling :class:`posattn.reference.Rotary`.

        Args:
            x: the queries or keys of each head, `(*batch, n, d)`.
            positions: where they stand, in tokens, any real numbers: `(n)`, or with batch axes of
                which each is that of `x` or 1; from 0 on if not given. Negative ones rotate `x` back.

        Returns:
            `(*batch, n, d)`.
        """
        frequencies = self.frequencies
        if frequencies is None and self.rotary_dim is not None:
            frequencies = sinusoidal.frequencies(self.rotary_dim, base=self.base)
        return rotate(
            x,
            positions,
            frequencies=None if frequencies is None else np.array(frequencies),
            base=self.base,
            layout=self.layout,
            attention_factor=self.attention_factor,
        )


@validated
def rotate(
    x: Float[Array, "*batch n d"],
    positions: Real[Array | np.ndarray, "*#batch n"] | None = None,
    *,
    frequencies: Float[Array | np.ndarray, " m"] | None = None,
    base: float = 10000.0,
    layout: Layout = "interleaved",
    attention_factor: float = 1.0,
) -> Float[Array, "*batch n d"]:
    """Rotate each pair of entries of a token by an angle that grows with the token's position.

    Tokens are the axis before the last, and heads stand before them: of `(b, n, h, d)` the heads would count
    as positions. Fewer than d/2 `frequencies` rotate the first entries only.

    Twin of :func:`posattn.reference.rotate`.
    Angles are exact, also in the 32-bit mode, so that float32 results are right to 5e-7 of the largest
    entry at any position that int32 holds; half precision is rotated in float32 and rounded once.
    Sines are computed on the device unless positions are in a NumPy array: no table is part of the
    compiled program.
    Traced frequencies are an exception: in the 32-bit mode their angles are products in float32,
    off by up to 6e-8 of the angle.
    Where they are not learned, keep them out of the tree, as `Rotary(frequencies=...)` does; those
    in a JAX array that is not traced are copied to the host at each call.

    Args:
        x: the queries or keys of each head, `(*batch, n, d)`.
        positions: where they stand, in tokens, any real numbers: `(n)`, or with batch axes of which
            each is that of `x` or 1; from 0 on if not given. Negative ones rotate `x` back.
        frequencies: in radians per position, `(m)` with $2m$ at most $d$; the first $2m$ entries
            rotate.
        base: of the frequencies, positive; unused where `frequencies` are given.
        layout: which entries make a pair, `"interleaved"` or `"half"`.
        attention_factor: multiplies the entries that rotate, positive.

    Returns:
        `(*batch, n, d)`.

    Examples:
        >>> x = jnp.array([[1.0, 0.0, 1.0, 0.0]] * 2)
        >>> rotate(x).round(4)
        Array([[1.    , 0.    , 1.    , 0.    ],
               [0.5403, 0.8415, 1.    , 0.01  ]], dtype=float32)
    """
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.pair_frequencies(frequencies, x.shape)
    factor = contract.positive("attention_factor", attention_factor)
    contract.layout(layout)
    if frequencies is None:
        frequencies = sinusoidal.frequencies(x.shape[-1], base=base)
    if isinstance(frequencies, jax.core.Tracer) or isinstance(positions, np.ndarray):
        return _rotated(x, positions, frequencies, factor, layout)
    known = tuple(np.asarray(frequencies, np.float64).tolist())
    return _rotated_at_once(x, positions, known, factor, layout)


def _rotated(x, positions, frequencies, factor, layout):
    """`rotate` of what was checked, with its frequencies in an array or in a tuple."""
    frequencies = np.array(frequencies) if isinstance(frequencies, tuple) else frequencies
    wide = jnp.promote_types(x.dtype, jnp.float32)
    if positions is None:
        cos, sin = _in_a_row(x.shape[-2], frequencies, wide)
    else:
        cos, sin = sinusoidal.cos_sin([positions[..., None]], [frequencies], wide)
    return rotate_by(x, factor * cos, factor * sin, layout)


# outside of a compiled program, one program where there were seven
_rotated_at_once = jax.jit(_rotated, static_argnums=(2, 3, 4))


def _in_a_row(n, frequencies, dtype):
    """Cosines and sines at positions 0 to n - 1: rotated to where a block starts, and on within it."""
    starts, within = _BLOCK * jnp.arange(-(-n // _BLOCK))[:, None, None], jnp.arange(_BLOCK)
    (c, s), (cos, sin) = (
        _computed_once(*sinusoidal.cos_sin([p], [frequencies], dtype))
        for p in (starts, within[:, None])
    )
    tables = c * cos - s * sin, s * cos + c * sin
    return tuple(lax.collapse(table, 0, 2)[:n] for table in tables)


@partial(jax.jit, static_argnames="layout")
def rotate_by(x, cos, sin, layout):
    """Multiply the first pairs of `x` by rotations, as many as there are, and pass the rest through."""
    cos, sin = _computed_once(cos, sin)
    m = cos.shape[-1]
    rotation = x[..., : 2 * m].astype(cos.dtype)
    half = layout == "half"
    # slices: XLA is slower on CPUs where an axis of pairs is split off (jaxlib 0.10.2)
    first, second = (
        (slice(m), slice(m, None)) if half else (slice(0, None, 2), slice(1, None, 2))
    )
    a, b = rotation[..., first], rotation[..., second]
    rotated = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-2 if half else -1)
    rotated = rotated.reshape(rotation.shape).astype(x.dtype)
    return jnp.concatenate([rotated, x[..., 2 * m :]], axis=-1)


def _computed_once(cos, sin):
    """The same numbers, out of a loop: XLA computes others on CPUs anew for each head (jaxlib 0.10.2)."""

    def looped(*tables):
        return tuple(
            lax.map(lambda first: jnp.where(first, *tables), jnp.array([True, False]))
        )

    return lax.platform_dependent(cos, sin, cpu=looped, default=lambda *tables: tables)


@validated
def to_half(x: Shaped[Array, "*batch d"]) -> Shaped[Array, "*batch d"]:
    """Put the even columns before the odd ones: from the layout `"interleaved"` to `"half"`.

    Twin of :func:`posattn.reference.to_half`.

    Args:
        x: any entries whose last axis is the width, `(*batch, d)`.

    Returns:
        `(*batch, d)`, the even columns and then the odd ones.

    Examples:
        >>> to_half(jnp.arange(5))
        Array([0, 2, 4, 1, 3], dtype=int32)
    """
    contract.columns(x)
    return jnp.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


@validated
def to_interleaved(x: Shaped[Array, "*batch d"]) -> Shaped[Array, "*batch d"]:
    """Alternate the columns of the first half with those of the second: the inverse of `to_half`.

    Twin of :func:`posattn.reference.to_interleaved`.

    Args:
        x: any entries whose last axis is the width, `(*batch, d)`.

    Returns:
        `(*batch, d)`, columns of both halves in turn.

    Examples:
        >>> to_interleaved(jnp.array([0, 2, 4, 1, 3]))
        Array([0, 1, 2, 3, 4], dtype=int32)
    """
    contract.columns(x)
    return x[..., jnp.argsort(to_half(jnp.arange(x.shape[-1])))]


@validated
def weight_to_half(
    weight: Float[Array, "*d_in d_out"], num_heads: int, rotary_dim: int | None = None
) -> Float[Array, "*d_in d_out"]:
    """Convert the projection of queries or keys of a model made for the layout `"interleaved"`.

    Twin of :func:`posattn.reference.weight_to_half`.

    Args:
        weight: of the projection, `(d_in, d_out)`, or its offset, `(d_out)`.
        num_heads: number of heads, a divisor of `d_out`.
        rotary_dim: how many entries of a head rotate, an even number; all if not given.

    Returns:
        The converted weight, of the same shape.

    Examples:
        >>> weight_to_half(jnp.arange(8.0), 2)
        Array([0., 2., 1., 3., 4., 6., 5., 7.], dtype=float32)
    """
    return _of_each_head(to_half, weight, num_heads, rotary_dim)


@validated
def weight_to_interleaved(
    weight: Float[Array, "*d_in d_out"], num_heads: int, rotary_dim: int | None = None
) -> Float[Array, "*d_in d_out"]:
    """Convert the projection of queries or keys of a model made for the layout `"half"`.

    Twin of :func:`posattn.reference.weight_to_interleaved`.

    Args:
        weight: of the projection, `(d_in, d_out)`, or its offset, `(d_out)`.
        num_heads: number of heads, a divisor of `d_out`.
        rotary_dim: how many entries of a head rotate, an even number; all if not given.

    Returns:
        The converted weight, of the same shape.

    Examples:
        >>> weight_to_interleaved(jnp.array([0.0, 2.0, 1.0, 3.0]), 1)
        Array([0., 1., 2., 3.], dtype=float32)
    """
    return _of_each_head(to_interleaved, weight, num_heads, rotary_dim)


def _of_each_head(convert, weight, num_heads, rotary_dim):
    """Convert the outputs of each head that rotate."""
    contract.projection(weight)
    num_heads = contract.heads(num_heads, weight.shape[-1])
    *rows, width = weight.shape
    heads = weight.reshape(*rows, num_heads, width // num_heads)
    rotation = contract.rotary_dim(rotary_dim, heads.shape[-1])
    parts = [convert(heads[..., :rotation]), heads[..., rotation:]]
    return jnp.concatenate(parts, axis=-1).reshape(weight.shape)
