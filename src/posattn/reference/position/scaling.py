"""Frequencies for contexts longer than those of training: six ways to slow a rotation down."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from posattn import contract
from posattn.reference.position.sinusoidal import frequencies
from posattn.reference.validated import validated

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

    .. math:: \omega'_j = \omega_j / s, \qquad \omega_j = b^{-2j/d}, \qquad j = 0, \ldots, d/2 - 1.

    It gives frequencies for `rotate(x, positions, frequencies=...)`, and is the same as dividing
    the positions by $s$.
    No angle within $s$ trained lengths is new to the model. But neighbors are now $s$ times closer in
    angle, which costs accuracy on short texts and calls for fine-tuning.

    Args:
        dim: the number of entries that rotate, $d$: the width of a head, or the part of it; even.
        base: $b$, positive.
        factor: $s$, how many times longer the context becomes, at least 1.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`.

    Examples:
        >>> position_interpolation(4, factor=8.0)
        array([0.125  , 0.00125])

    References:
        :cite:t:`chen2023extending`, section 2.3.
    """
    factor = contract.factor(factor)
    return frequencies(_even(dim), base=base) / factor


@validated
def ntk_aware(dim: int, *, base: float = 10000.0, factor: float) -> Float[np.ndarray, " m"]:
    r"""Use a larger base, which slows the slow pairs down and leaves the fast ones almost as they are.

    .. math:: \omega'_j = b'^{-2j/d}, \qquad b' = b\,s^{d/(d-2)}, \qquad j = 0, \ldots, d/2 - 1.

    The exponent makes the slowest pair $s$ times slower, as interpolation does, while the fastest
    stays at one radian per position.
    At $d = 2$ there is only the fastest, and $b' = b$: the exponent counts as 0.
    Neighbors remain as far apart as in training, so it works without fine-tuning. The pairs in the
    middle do not slow down enough and reach new angles before $s$ trained lengths.

    A larger base need not come from a factor. Code Llama and :cite:t:`xiong2024effective` continue
    training with $b = 10^6$ and $b = 500\,000$. For that, use `frequencies(dim, base=...)`.

    Args:
        dim: the number of entries that rotate, $d$, even.
        base: $b$, positive.
        factor: $s$, how many times longer the context becomes, at least 1.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`.

    Examples:
        >>> ntk_aware(4, factor=8.0)
        array([1.     , 0.00125])

    References:
        :cite:t:`bloc972023ntk`; :cite:t:`peng2024yarn`, section 3.1.
    """
    dim, factor = _even(dim), contract.factor(factor)
    return frequencies(dim, base=contract.larger_base(base, factor, _exponent(dim), factor))


@validated
def dynamic_ntk(
    dim: int, *, base: float = 10000.0, factor: float, length: int, trained_length: int
) -> Float[np.ndarray, " m"]:
    r"""Choose the base for the current length, and keep the trained base within the trained length.

    .. math:: \omega'_j = b'^{-2j/d}, \qquad
        b' = b\,\Bigl(1 + s\,\Bigl(\frac{\max(n, L)}{L} - 1\Bigr)\Bigr)^{d/(d-2)}.

    At $d = 2$ the exponent counts as 0, and $b' = b$.
    The result depends only on the arguments. After a long text, a short one gets the trained frequencies
    again. Implementations that keep what they computed for the longest text do not do that.

    All frequencies change with $n$, so a key that was rotated and cached does not fit the queries of
    later, longer calls. Cache keys before they are rotated, or fix $n$ at the final length.

    The formula with $s$ is that of Hugging Face and of the code that it follows.
    $s = 1$ gives the one of :cite:t:`peng2024yarn`, where $n / L$ is the factor.

    Args:
        dim: the number of entries that rotate, $d$, even.
        base: $b$, positive.
        factor: $s$, at least 1.
        length: $n$, the number of tokens up to the last one, cached ones included.
        trained_length: $L$, the longest length of training.

    Returns:
        $\omega'$ in radians per position, `(d / 2)`.

    Examples:
        >>> dynamic_ntk(4, factor=2.0, length=2048, trained_length=2048)
        array([1.  , 0.01])
        >>> dynamic_ntk(4, factor=2.0, length=5120, trained_length=2048)
        array([1.    , 0.0025])

    References:
        :cite:t:`emozilla2023dynamically`; :cite:t:`peng2024yarn`, section 3.3.
    """
    dim, factor = _even(dim), contract.factor(factor)
    length = contract.integer("length", length)
    trained_length = contract.integer("trained_length", trained_length, least=1)
    stretch = 1 + factor * (max(length, trained_length) / trained_length - 1)
    return frequencies(
        dim, base=contract.larger_base(base, stretch, _exponent(dim), factor)
    )


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

    .. math:: \omega'_j = \gamma_j \frac{\omega_j}{s} + (1 - \gamma_j)\,\omega_j, \qquad
        \gamma_j = \operatorname{clip}\Bigl(\frac{j - j_f}{\max(j_s - j_f, 10^{-3})}, 0, 1\Bigr),
        \qquad c = 0.1 \ln s + 1.

    Pair $j$, with the frequency $\omega_j = b^{-2j/d}$, completes $L\omega_j / 2\pi$ circles within the
    trained length, that is $\beta$ circles at $j(\beta) = d \ln(L / 2\pi\beta) / (2 \ln b)$.
    Pairs up to $j_f = \max(\lfloor j(\beta_f) \rfloor, 0)$ stay, pairs from
    $j_s = \min(\lceil j(\beta_s) \rceil, d - 1)$ on are interpolated, those between are blended.
    The attention factor $c$ multiplies rotated queries and keys, so their scores are multiplied by
    $c^2$. Longer contexts need a sharper softmax.

    This is the authors' code and that of Hugging Face. Both blend linearly in $j$, and round and
    bound both ends. The paper's formula blends linearly in the number of circles.
    If the bounds make the ends equal or cross, all pairs after $j_f$ are interpolated. Those two codes
    do so for equal ends, but interpolate the pairs before $j_f$ if the ends cross.
    With `truncate=False` the ends are not rounded, $j_f = \max(j(\beta_f), 0)$ and
    $j_s = \min(j(\beta_s), d - 1)$, as in gpt-oss, whose frequencies would be up to 76 % higher
    with rounded ends.

    DeepSeek weights the logarithm, with $m$ for the part that rotates and $m'$ for the whole head:

    .. math:: c = \frac{0.1\,m \ln s + 1}{0.1\,m' \ln s + 1},

    which is 1 where both are the same, as in DeepSeek-V3.
    Its attention then multiplies the scores by the square of the divisor, which sharpens the part that
    does not rotate as well: `scale=(0.1 * mscale_all_dim * math.log(factor) + 1) ** 2 / head_dim**0.5`.
    As in Hugging Face's code, this applies only if both are given and neither is 0.

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
        >>> slowed, attention_factor = yarn(8, factor=4.0, trained_length=4096)
        >>> (slowed / frequencies(8)).round(4)
        array([1.   , 1.   , 0.625, 0.25 ])
        >>> round(attention_factor, 4)
        1.1386

    References:
        :cite:t:`peng2024yarn`, sections 3.2 and 3.4; `truncate` and the two weights are those of the file
        `modeling_rope_utils.py` of Hugging Face.
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
    short_factors: Sequence[float] | Float[np.ndarray, " m"],
    long_factors: Sequence[float] | Float[np.ndarray, " m"],
    length: int,
    trained_length: int,
    factor: float,
) -> tuple[Float[np.ndarray, " m"], float]:
    r"""Slow each pair down by its own factor, found by a search.

    .. math:: \omega'_j = \frac{\omega_j}{\lambda_j}, \qquad
        \lambda = \begin{cases} \text{short factors} & n \le L \\ \text{long factors} & n > L
        \end{cases}, \qquad c = \sqrt{1 + \frac{\ln s}{\ln L}}.

    Here $\omega_j = b^{-2j/d}$ is the frequency of pair $j = 0, \ldots, d/2 - 1$.
    The factors belong to a checkpoint and are stored in its configuration.
    $\lambda$ changes when a text outgrows the trained length, and keys that were rotated and cached
    before no longer fit. Cache keys before they are rotated, or decide from the start.
    The attention factor $c$ holds for short texts too.

    This is LongRoPE as Phi-3 and Hugging Face have it.
    The paper also leaves the first few positions unscaled. These codes do not.

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
        >>> slowed, attention_factor = longrope(
        ...     4, **options, length=9000, trained_length=4096, factor=32.0)
        >>> slowed
        array([1.e+00, 5.e-04])
        >>> round(attention_factor, 4)
        1.1902

    References:
        :cite:t:`ding2024longrope`; the attention factor is that of the code of Phi-3 and of the file
        `modeling_rope_utils.py` of Hugging Face.
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

    .. math:: \omega'_j = (1 - \gamma_j)\,\frac{\omega_j}{s} + \gamma_j\,\omega_j, \qquad
        \gamma_j = \operatorname{clip}\Bigl(\frac{r_j - \alpha}{\beta - \alpha}, 0, 1\Bigr), \qquad
        r_j = \frac{L\,\omega_j}{2\pi}.

    Pair $j$, with the frequency $\omega_j = b^{-2j/d}$, completes $r_j$ circles within the trained
    length. With at least $\beta$ circles it stays, with at most $\alpha$ it is interpolated.
    It is the blend of :cite:t:`peng2024yarn`, section 3.2, linear in the number of circles, with other
    ends and no attention factor.
    If $\alpha = \beta$ nothing is blended. A pair with at least $\beta$ circles stays and any other is
    interpolated, as in the model Llama 4 Scout.
    The defaults are those of Llama 3.1. Llama 3.2 has `factor=32.0`.

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

    References:
        The code of Llama 3.1, function `apply_scaling` of `meta-llama/llama-models`; the model:
        :cite:t:`grattafiori2024llama`.
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
