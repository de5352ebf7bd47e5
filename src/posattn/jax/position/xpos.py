"""xPos: a rotation that also fades, so that scores fall with the distance."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.position.rotary import rotate_by
from posattn.jax.position.sinusoidal import cos_sin, frequencies
from posattn.jax.validated import validated

__all__ = ["xpos_key", "xpos_query"]


@validated
def xpos_query(
    x: Float[Array, "*batch n d"],
    positions: Real[Array | np.ndarray, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
    gamma: float = 0.4,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Float[Array, "*batch n d"]:
    """Rotate each pair of entries of a query, and shrink it more the later it stands.

    Twin of :func:`posattn.reference.xpos_query`.
    Positions in a NumPy array are made into angles and powers in float64; others, in the 32-bit
    mode, by an exact reduction of both, so that they are right to 1e-6 of what they are.

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
        >>> xpos_query(jnp.array([[1.0, 0.0]] * 2)).round(4)
        Array([[1.    , 0.    ],
               [0.539 , 0.8394]], dtype=float32)
    """
    return _fading(x, positions, base, gamma, scale_base, layout, 1)


@validated
def xpos_key(
    x: Float[Array, "*batch n d"],
    positions: Real[Array | np.ndarray, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
    gamma: float = 0.4,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Float[Array, "*batch n d"]:
    """Rotate each pair of entries of a key, and grow it more the later it stands.

    Twin of :func:`posattn.reference.xpos_key`, as exact as the query.

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
        >>> jnp.linalg.norm(xpos_key(jnp.array([[1.0, 0.0]]), jnp.array([512])))
        Array(3.5, dtype=float32)
    """
    return _fading(x, positions, base, gamma, scale_base, layout, -1)


def _fading(x, positions, base, gamma, scale_base, layout, sign):
    """Rotate `x`, and multiply its pairs by the power `sign` of what makes them fade."""
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.pair_frequencies(None, x.shape)
    gamma = contract.positive("gamma", gamma)
    scale_base = contract.positive("scale_base", scale_base)
    contract.layout(layout)
    d = x.shape[-1]
    where = (jnp.arange(x.shape[-2]) if positions is None else positions)[..., None]
    zeta = (np.arange(0, d, 2) / d + gamma) / (1 + gamma)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    scale = _power(zeta, where, sign * scale_base, wide)
    cos, sin = cos_sin([where], [frequencies(d, base=base)], wide)
    return rotate_by(x, scale * cos, scale * sin, layout)


def _power(base, positions, period, dtype):
    """The power `positions / period` of `base`, in `dtype`.

    In 32 bits an exponent of 100 has an error of 4e-6, and its power too.
    So the exponent of 2 is a sum there: a rate of 8 bits times an integer of up to 16, which is
    exact, and a small rest; the whole part of the first goes into the exponent of the result.
    """
    if isinstance(positions, np.ndarray):
        return jnp.asarray(base ** (np.asarray(positions, np.float64) / period), dtype)
    if jax.config.jax_enable_x64:
        return jnp.power(base, positions.astype(jnp.float64) / period).astype(dtype)
    rate = np.log2(base) / period
    mantissa, exponent = np.frexp(rate)
    coarse = np.ldexp(np.round(mantissa * 2**8), exponent - 8)
    integer = jnp.round(positions)
    large = integer.astype(jnp.float32) * coarse.astype(np.float32)
    whole = jnp.round(large)
    small = integer * np.float32(rate - coarse) + (positions - integer) * np.float32(rate)
    return jnp.ldexp(jnp.exp2(large - whole + small), whole.astype(jnp.int32)).astype(dtype)
