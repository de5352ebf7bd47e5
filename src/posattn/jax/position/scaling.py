"""Frequencies for contexts longer than those of training: six ways to slow a rotation down."""

import math
from collections.abc import Sequence

import numpy as np
from jax import Array
from jaxtyping import Float

from posattn import contract
from posattn.jax.position.sinusoidal import frequencies
from posattn.jax.validated import validated

__all__ = [
    "dynamic_ntk",
    "llama3",
    "longrope",
    "ntk_aware",
    "position_interpolation",
    "yarn",
]


@validated
def position_interpolation(
    dim: int, *, base: float = 10000.0, factor: float
) -> Float[np.ndarray, " m"]:
    r"""Slow every pair down by the same factor, so that a longer context stays within the trained angles.

    Twin of :func:`posattn.reference.position_interpolation`; a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, $d$: the width of a head, or the part of it; even.
        base: $b$, positive.
        factor: $s$, how many times longer the context becomes, at least 1.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`.

    Examples:
        >>> position_interpolation(4, factor=8.0)
        array([0.125  , 0.00125])
    """
    factor = contract.factor(factor)
    return frequencies(_even(dim), base=base) / factor


@validated
def ntk_aware(dim: int, *, base: float = 10000.0, factor: float) -> Float[np.ndarray, " m"]:
    r"""Use a larger base, which slows the slow pairs down and leaves the fast ones almost as they are.

    Twin of :func:`posattn.reference.ntk_aware`; a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, $d$, even.
        base: $b$, positive.
        factor: $s$, how many times longer the context becomes, at least 1.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`.

    Examples:
        >>> ntk_aware(4, factor=8.0)
        array([1.     , 0.00125])
    """
    dim, factor = _even(dim), contract.factor(factor)
    base = contract.larger_base(base, factor, _exponent(dim), factor)
    return frequencies(dim, base=base)


@validated
def dynamic_ntk(
    dim: int, *, base: float = 10000.0, factor: float, length: int, trained_length: int
) -> Float[np.ndarray, " m"]:
    r"""Choose the base for the current length, and keep the trained base within the trained length.

    Twin of :func:`posattn.reference.dynamic_ntk`; a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, $d$, even.
        base: $b$, positive.
        factor: $s$, at least 1.
        length: $n$, the number of tokens up to the last one, cached ones included.
        trained_length: $L$, the longest length of training.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`.

    Examples:
        >>> dynamic_ntk(4, factor=2.0, length=5120, trained_length=2048)
        array([1.    , 0.0025])
    """
    dim, factor = _even(dim), contract.factor(factor)
    length = contract.integer("length", length)
    trained_length = contract.integer("trained_length", trained_length, least=1)
    stretch = 1 + factor * (max(length, trained_length) / trained_length - 1)
    base = contract.larger_base(base, stretch, _exponent(dim), factor)
    return frequencies(dim, base=base)


@validated
def yarn(
    dim: int,
    *,
    base: float = 10000.0,
    factor: float,
    trained_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
) -> tuple[Float[np.ndarray, " m"], float]:
    r"""Slow down the pairs that rotate rarely within the trained length, and sharpen the scores.

    Twin of :func:`posattn.reference.yarn`; the frequencies are a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, $d$, even.
        base: $b$, above 1.
        factor: $s$, how many times longer the context becomes, at least 1.
        trained_length: $L$, the longest length of training.
        beta_fast: $\beta_f$, the number of circles from which a pair stays, above `beta_slow`.
        beta_slow: $\beta_s$, the number of circles up to which a pair is interpolated, positive.
        truncate: whether the ends of the blend are rounded to whole pairs.
        mscale: $m$, not negative, or None.
        mscale_all_dim: $m'$, not negative, or None.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`; and $c$, for
        `rotate(x, positions, frequencies=..., attention_factor=...)`.

    Examples:
        >>> yarn(4, factor=4.0, trained_length=4096)
        (array([1.     , 0.00625]), 1.138629436111989)
    """
    dim, factor = _even(dim), contract.factor(factor)
    base = contract.above("base", base, 1)
    trained_length = contract.integer("trained_length", trained_length, least=1)
    beta_slow = contract.positive("beta_slow", beta_slow)
    beta_fast = contract.above("beta_fast", beta_fast, beta_slow, "beta_slow = ")
    mscale = contract.sharpening("mscale", mscale)
    mscale_all_dim = contract.sharpening("mscale_all_dim", mscale_all_dim)
    plain = frequencies(dim, base=base)
    fast, slow = (
        dim
        * (math.log(trained_length / (2 * math.pi)) - math.log(beta))
        / (2 * math.log(base))
        for beta in (beta_fast, beta_slow)
    )
    if truncate:
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - fast) / max(slow - fast, 1e-3), 0, 1)
    both = (mscale, mscale_all_dim) if mscale and mscale_all_dim else (1, 0)
    over, under = (0.1 * weight * math.log(factor) + 1 for weight in both)
    return ramp * plain / factor + (1 - ramp) * plain, over / under


@validated
def longrope(
    dim: int,
    *,
    base: float = 10000.0,
    short_factors: Sequence[float] | Float[Array | np.ndarray, " m"],
    long_factors: Sequence[float] | Float[Array | np.ndarray, " m"],
    length: int,
    trained_length: int,
    factor: float,
) -> tuple[Float[np.ndarray, " m"], float]:
    r"""Slow each pair down by its own factor, found by a search.

    Twin of :func:`posattn.reference.longrope`; the frequencies are a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, $d$, even.
        base: $b$, positive.
        short_factors: $\lambda$ within the trained length, `(d / 2)` positive numbers.
        long_factors: $\lambda$ beyond it, `(d / 2)` positive numbers.
        length: $n$, the number of tokens up to the last one, cached ones included.
        trained_length: $L$, the longest length of training before the extension, above 1.
        factor: $s$, how many times longer the context becomes, at least 1.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`; and $c$, for
        `rotate(x, positions, frequencies=..., attention_factor=...)`.

    Examples:
        >>> options = {"short_factors": [1.0, 1.0], "long_factors": [1.0, 20.0]}
        >>> longrope(4, **options, length=9000, trained_length=4096, factor=32.0)[0]
        array([1.e+00, 5.e-04])
    """
    dim, factor = _even(dim), contract.factor(factor)
    short = contract.factors("short_factors", short_factors, dim // 2)
    long = contract.factors("long_factors", long_factors, dim // 2)
    length = contract.integer("length", length)
    trained_length = contract.integer("trained_length", trained_length, least=1)
    contract.above("trained_length", trained_length, 1)
    slowing = np.array(long if length > trained_length else short)
    attention_factor = math.sqrt(1 + math.log(factor) / math.log(trained_length))
    return frequencies(dim, base=base) / slowing, attention_factor


@validated
def llama3(
    dim: int,
    *,
    base: float = 500000.0,
    factor: float = 8.0,
    low_frequency_factor: float = 1.0,
    high_frequency_factor: float = 4.0,
    trained_length: int = 8192,
) -> Float[np.ndarray, " m"]:
    r"""Slow down the pairs that rotate rarely within the trained length: the frequencies of Llama 3.1.

    Twin of :func:`posattn.reference.llama3`; a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, $d$, even.
        base: $b$, positive.
        factor: $s$, how much slower the slow pairs become, at least 1.
        low_frequency_factor: $\alpha$, positive.
        high_frequency_factor: $\beta$, at least $\alpha$.
        trained_length: $L$, the longest length of training before the extension.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`.

    Examples:
        >>> (llama3(16) / frequencies(16, base=500000.0)).round(4)
        array([1.    , 1.    , 1.    , 1.    , 0.3711, 0.125 , 0.125 , 0.125 ])
    """
    dim, factor = _even(dim), contract.factor(factor)
    low = contract.positive("low_frequency_factor", low_frequency_factor)
    high = contract.at_least(
        "high_frequency_factor", high_frequency_factor, low, "low_frequency_factor = "
    )
    trained_length = contract.integer("trained_length", trained_length, least=1)
    plain = frequencies(dim, base=base)
    turns = trained_length * plain / (2 * math.pi)
    blend = np.clip((turns - low) / ((high - low) or 1), 0, 1)
    stay = np.where(turns < high, blend, 1)
    return (1 - stay) * plain / factor + stay * plain


def _even(dim):
    return contract.integer("dim", dim, least=1, even=True)


def _exponent(dim):
    """Of the factor on the base that slows the last pair by the factor; a width of 2 has no slow pair."""
    return dim / (dim - 2) if dim > 2 else 0
