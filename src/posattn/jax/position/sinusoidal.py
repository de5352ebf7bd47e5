"""Sinusoidal positional encoding: each position becomes points on circles, from fast to slow."""

import math
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.attention.random import dropout
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["PositionalEncoding", "frequencies", "shift_matrix", "sinusoidal_encoding"]

_INVERSE_TAU = 0x28BE60DB9391054A7F09D5F47D4D3770  # 2**128 / (2 pi)


@validated
def frequencies(dim: int, *, base: float = 10000.0) -> Float[np.ndarray, " m"]:
    """The frequencies of a sinusoidal encoding, from fast to slow.

    Twin of :func:`posattn.reference.frequencies`.
    A NumPy array in float64, which JAX has only in its 64-bit mode: angles made from rounded
    frequencies drift with the position.

    Args:
        dim: the width $d$ of the encoding, at least 1.
        base: of the geometric sequence, positive.

    Returns:
        The frequencies in radians per position, `(m)` with $m$ half the width, rounded up.

    Examples:
        >>> frequencies(4)
        array([1.  , 0.01])
    """
    dim = contract.integer("dim", dim, least=1)
    base = contract.base(base)
    return np.array([base ** (-j / dim) for j in range(0, dim, 2)])


@validated
def sinusoidal_encoding(
    length_or_positions: int | Real[Array | np.ndarray, "*batch n"],
    dim: int,
    *,
    base: float = 10000.0,
    dtype: DTypeLike | None = None,
) -> Float[Array, "*batch n d"]:
    """One row of sines and cosines per position.

    Twin of :func:`posattn.reference.sinusoidal_encoding`.
    Positions in a NumPy array are made into sines in float64 before JAX sees them.
    A length, and positions in a JAX array, become sines on the device, and in the 32-bit mode by an
    exact reduction, so that float32 sines are right to 3e-7 at any position that int32 holds.
    No table is then part of the compiled program, and nothing is copied between host and device.

    Args:
        length_or_positions: the number of positions from 0 on, at least 0; or the positions
            themselves, in tokens, `(*batch, n)`.
        dim: the width $d$, at least 1.
        base: of the frequencies, positive.
        dtype: of the result; JAX's default one if not given.

    Returns:
        `(n, d)` or `(*batch, n, d)`: sine and cosine of each frequency alternate.

    Examples:
        >>> sinusoidal_encoding(2, 4).round(4)
        Array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]], dtype=float32)
    """
    length = contract.length_or_positions(length_or_positions)
    positions = length_or_positions if length is None else jnp.arange(length)
    dtype = jnp.result_type(float if dtype is None else dtype)
    cos, sin = cos_sin([positions[..., None]], [frequencies(dim, base=base)], dtype)
    pairs = jnp.stack([sin, cos], axis=-1)
    return pairs.reshape(*positions.shape, 2 * cos.shape[-1])[..., :dim]


@validated
def shift_matrix(
    offset: float, dim: int, *, base: float = 10000.0, dtype: DTypeLike | None = None
) -> Float[Array, "d d"]:
    """The rotation that takes each encoding to the one `offset` positions later.

    Twin of :func:`posattn.reference.shift_matrix`.

    Args:
        offset: number of positions, any finite number.
        dim: the width $d$, even: a sine without its cosine cannot be shifted.
        base: of the frequencies, positive.
        dtype: of the result; JAX's default one if not given.

    Returns:
        The matrix, `(d, d)`, orthogonal with determinant 1.

    Examples:
        >>> shift_matrix(1, 2).round(4)
        Array([[ 0.5403,  0.8415],
               [-0.8415,  0.5403]], dtype=float32)
    """
    offset = contract.offset(offset)
    dim = contract.integer("dim", dim, least=1, even=True)
    angles = offset * frequencies(dim, base=base)
    cos, sin = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    shift = np.kron(cos, np.eye(2)) + np.kron(sin, np.array([[0, 1], [-1, 0]]))
    return jnp.asarray(shift, jnp.result_type(float if dtype is None else dtype))


@validated
@register
@dataclass(frozen=True)
class PositionalEncoding:
    """Add to each token the sinusoidal encoding of its position.

    Twin of :class:`posattn.reference.PositionalEncoding`; a pytree without leaves.

    Args:
        dim: the width $d$, at least 1.
        dropout_rate: probability in [0, 1) of dropping an entry of the sum.
        base: of the frequencies, positive.

    Examples:
        >>> layer = PositionalEncoding(4)
        >>> jax.jit(layer)(jnp.zeros((1, 2, 4))).round(4)
        Array([[[0.    , 1.    , 0.    , 1.    ],
                [0.8415, 0.5403, 0.01  , 1.    ]]], dtype=float32)
    """

    dim: int = field(metadata={"static": True})
    _: KW_ONLY
    dropout_rate: float = field(default=0.0, metadata={"static": True})
    base: float = field(default=10000.0, metadata={"static": True})

    def __post_init__(self):
        contract.integer("dim", self.dim, least=1)
        contract.dropout_rate(self.dropout_rate)
        contract.base(self.base)

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        *,
        positions: Real[Array | np.ndarray, "*#batch n"] | None = None,
        rng: Array | None = None,
    ) -> Float[Array, "*batch n d"]:
        """Add the encoding to a sequence of any length.

        Twin of calling :class:`posattn.reference.PositionalEncoding`.

        Args:
            x: the tokens, `(*batch, n, d)`.
            positions: where they stand, `(n)` or `(*batch, n)`; from 0 on if not given.
            rng: a JAX key where dropout draws from; None means no dropout.

        Returns:
            `(*batch, n, d)`.
        """
        contract.sequence("x", x, self.dim)
        contract.positions_of(x.shape, positions)
        where = x.shape[-2] if positions is None else positions
        encoding = sinusoidal_encoding(where, self.dim, base=self.base, dtype=x.dtype)
        return dropout(x + encoding, self.dropout_rate, rng)


def cos_sin(positions, frequencies, dtype):
    """Cosine and sine, in `dtype`, of a sum of products: of `positions[i]` and `frequencies[i]`."""
    angle, sign = 0, 1
    for position, frequency in zip(positions, frequencies, strict=True):
        part, flip = _angles(position, frequency)
        angle, sign = angle + part, sign * flip
    numpy = jnp if isinstance(angle, Array) else np
    return tuple(jnp.asarray(sign * f(angle), dtype) for f in (numpy.cos, numpy.sin))


def _angles(positions, frequencies):
    """Positions times frequencies, in float64 or up to half turns, and the sign of sine and cosine."""
    learned = isinstance(frequencies, jax.core.Tracer)
    if not learned and isinstance(positions, np.ndarray):
        return positions.astype(np.float64) * np.asarray(frequencies, np.float64), 1
    if learned or jax.config.jax_enable_x64:
        wide = jnp.result_type(float)
        return jnp.asarray(positions, wide) * jnp.asarray(frequencies, wide), 1
    frequencies = np.asarray(frequencies, np.float64)
    return _reduced(positions, tuple(frequencies.ravel().tolist()), frequencies.shape)


@partial(jax.jit, static_argnums=(1, 2))
def _reduced(positions, frequencies, shape):
    """Positions times frequencies, minus half turns, and the sign of sine and cosine."""
    whole = jnp.round(positions)
    rest = (positions - whole).astype(jnp.float32)
    angles, sign = _half_turns(whole.astype(jnp.int32), frequencies, shape)
    return angles + rest * np.array(frequencies, np.float32).reshape(shape), sign


def _half_turns(positions, frequencies, shape):
    """Integers times frequencies, minus half turns, exactly: in 64-bit fixed point of 32-bit words.

    A frequency is a fraction of a turn, `high / 2**32 + low / 2**64`.
    The product modulo one turn is what unsigned 32-bit arithmetic keeps when it overflows.
    A half turn less changes the sign of sine and cosine, and leaves angles small enough for float32.
    """
    ratios = [f.as_integer_ratio() for f in frequencies]
    turns = [
        (over * _INVERSE_TAU // under >> 64) & 0xFFFFFFFFFFFFFFFF for over, under in ratios
    ]
    high = np.array([t >> 32 for t in turns], np.uint32).reshape(shape)
    low = np.array([t & 0xFFFFFFFF for t in turns], np.uint32).reshape(shape)
    size = jnp.abs(positions).astype(jnp.uint32)
    fraction = size * high + _high_word(size, low)
    half = (fraction + 2**30) >> 31
    rest = jax.lax.bitcast_convert_type(fraction - (half << 31), jnp.int32).astype(
        jnp.float32
    )
    return jnp.sign(positions) * rest * np.float32(math.tau / 2**32), 1 - 2 * half.astype(
        jnp.float32
    )


def _high_word(a, b):
    """The upper 32 bits of the 64-bit product of two unsigned 32-bit integers."""
    a_high, a_low, b_high, b_low = a >> 16, a & 0xFFFF, b >> 16, b & 0xFFFF
    middle = a_high * b_low + (a_low * b_low >> 16)
    crossed = a_low * b_high + (middle & 0xFFFF)
    return a_high * b_high + (middle >> 16) + (crossed >> 16)
