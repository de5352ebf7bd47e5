"""Frequencies as others compute them. All are right."""

import math

import numpy as np
import torch

from tests.library.conformance.examples import right


@right("frequencies", "torch")
def inverse_of_powers(dim, base=10000.0):
    """One over a power, as in transformers."""
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.int64).double() / dim)


@right("frequencies")
def exponential_of_logarithms(dim, base=10000.0):
    """The exponential of multiples of a logarithm, as in the annotated transformer."""
    return np.exp(np.arange(0, dim, 2) * -(math.log(base) / dim))


@right("frequencies", "jax")
def one_after_the_other(dim, base=10000.0):
    """A list: each is the one before it, divided by the same ratio."""
    made = [1.0]
    while 2 * len(made) < dim:
        made.append(made[-1] / base ** (2 / dim))
    return np.array(made)


@right("position_interpolation", "torch")
def linear_scaling(dim, base=10000.0, factor=1.0):
    """The frequencies are divided, as by the type linear of transformers."""
    return 1.0 / (factor * base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))


@right("ntk_aware", skip=("a pair alone",))
def larger_base(dim, base=10000.0, factor=1.0):
    """Another base, as in the post that proposed it; it has no answer for a pair alone."""
    base *= factor ** (dim / (dim - 2))
    return base ** (-np.arange(0, dim, 2) / dim)


@right("dynamic_ntk")
class ResetsWhenShort:
    """It keeps the longest length so far, and goes back for a text within the trained length."""

    def __init__(self):
        self.kept = 0

    def __call__(self, dim, base=10000.0, factor=1.0, length=1, trained_length=2048):
        """Compute frequencies."""
        self.kept = length if length > trained_length else trained_length
        stretch = factor * self.kept / trained_length - (factor - 1)
        return (base * stretch ** (dim / (dim - 2))) ** (-np.arange(0, dim, 2) / dim)


def correction(turns, dim, base, trained_length):
    """The pair that makes so many turns within the trained length."""
    return dim * math.log(trained_length / (turns * 2 * math.pi)) / (2 * math.log(base))


@right("yarn", skip=("weight",), settings={"truncate": True})
def ramp_of_a_range(
    dim, base=10000.0, factor=1.0, trained_length=2048, beta_fast=32.0, beta_slow=1.0
):
    """A correction range and a linear ramp, as in the authors' code."""
    low = math.floor(correction(beta_fast, dim, base, trained_length))
    high = math.ceil(correction(beta_slow, dim, base, trained_length))
    low, high = max(low, 0), min(high, dim - 1)
    high += 0.001 * (low == high)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    plain = 1.0 / base ** (np.arange(0, dim, 2) / dim)
    made = plain / factor * ramp + plain * (1 - ramp)
    return made, 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0


@right("yarn", "torch")
def ramp_with_every_option(
    dim,
    base=10000.0,
    factor=1.0,
    trained_length=2048,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=True,
    mscale=None,
    mscale_all_dim=None,
):
    """The extrapolated and the interpolated, lerp between them, and weights as in DeepSeek's code."""
    ends = [
        correction(turns, dim, base, trained_length) for turns in (beta_fast, beta_slow)
    ]
    if truncate:
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], dim - 1)
    pairs = torch.arange(dim // 2, dtype=torch.float64)
    stay = 1 - ((pairs - low) / max(high - low, 0.001)).clamp(0, 1)
    plain = base ** (-2 * pairs / dim)

    def sharpen(weight):
        return 0.1 * weight * math.log(factor) + 1.0

    weighted = mscale and mscale_all_dim
    sharp = sharpen(mscale) / sharpen(mscale_all_dim) if weighted else sharpen(1)
    return torch.lerp(plain / factor, plain, stay), sharp


@right("yarn", settings={"truncate": False})
def ramp_without_rounding(
    dim, base=10000.0, factor=1.0, trained_length=4096, beta_fast=32.0, beta_slow=1.0
):
    """The ramp in whole and broken pairs, with a mask, as in gpt-oss."""
    half = dim / 2
    low, high = (
        half * math.log(trained_length / (turns * 2 * math.pi)) / math.log(base)
        for turns in (beta_fast, beta_slow)
    )
    mask = 1 - np.clip((np.arange(half) - low) / (high - low), 0, 1)
    plain = 1 / base ** (np.arange(0, dim, 2) / dim)
    return plain / factor * (1 - mask) + plain * mask, 0.1 * math.log(factor) + 1.0


@right("longrope")
def factors_by_length(
    dim,
    base=10000.0,
    short_factors=(),
    long_factors=(),
    length=1,
    trained_length=2048,
    factor=1.0,
):
    """The factors multiply the powers, as in Phi-3's own code."""
    chosen = np.asarray(long_factors if length > trained_length else short_factors)
    sharp = (
        math.sqrt(1 + math.log(factor) / math.log(trained_length)) if factor > 1 else 1.0
    )
    return 1.0 / (chosen * base ** (np.arange(0, dim, 2) / dim)), sharp


@right("llama3")
def wavelengths_in_a_loop(
    dim,
    base=500000.0,
    factor=8.0,
    low_frequency_factor=1.0,
    high_frequency_factor=4.0,
    trained_length=8192,
):
    """A loop over wavelengths, as in Meta's apply_scaling."""
    made = []
    for omega in 1.0 / base ** (np.arange(0, dim, 2) / dim):
        wavelength = 2 * math.pi / omega
        if wavelength < trained_length / high_frequency_factor:
            made.append(omega)
        elif wavelength > trained_length / low_frequency_factor:
            made.append(omega / factor)
        else:
            share = trained_length / wavelength - low_frequency_factor
            share /= high_frequency_factor - low_frequency_factor
            made.append((1 - share) * omega / factor + share * omega)
    return np.array(made)


@right("llama3", "torch", skip=("no blend",))
def wavelengths_by_where(
    dim,
    base=500000.0,
    factor=8.0,
    low_frequency_factor=1.0,
    high_frequency_factor=4.0,
    trained_length=8192,
):
    """Two calls of where, as in transformers; the blend divides by nothing where its ends are equal."""
    plain = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    wavelengths = 2 * math.pi / plain
    longest = trained_length / low_frequency_factor
    shortest = trained_length / high_frequency_factor
    made = torch.where(wavelengths > longest, plain / factor, plain)
    share = (trained_length / wavelengths - low_frequency_factor) / (
        high_frequency_factor - low_frequency_factor
    )
    blended = (1 - share) * made / factor + share * made
    between = ~(wavelengths < shortest) & ~(wavelengths > longest)
    return torch.where(between, blended, made)


@right("proportional", "torch")
def angles_and_no_angles(head_dim, base=10000.0, rotary_dim=None, factor=1.0):
    """The rotated angles, and zeros for the pairs that stand still, as in Gemma 4."""
    rotation = rotary_dim // 2
    even = torch.arange(0, 2 * rotation, 2, dtype=torch.float64)
    still = torch.zeros(head_dim // 2 - rotation, dtype=torch.float64)
    return torch.cat([1.0 / base ** (even / head_dim), still]) / factor


@right("mrope_interleaved")
def overwritten_by_slices(dim, sections, base=10000.0):
    """All pairs are of time, and slices in steps of the axes are overwritten, as in Qwen3-VL."""
    axes = np.zeros(dim // 2, dtype=int)
    for axis, pairs in enumerate(sections[1:], start=1):
        axes[axis : axis + (pairs - 1) * len(sections) + 1 : len(sections)] = axis
    return (axes == np.arange(len(sections))[:, None]) * base ** (
        -np.arange(0, dim, 2) / dim
    )


@right("mrope_frequencies", "torch")
def split_into_sections(dim, sections, base=10000.0):
    """The frequencies are split, and each section is of one axis, as in Qwen2-VL."""
    plain = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    return torch.block_diag(*plain.split(list(sections)))


@right("axial_frequencies")
def same_for_rows_and_columns(dim, num_axes=2, base=100.0):
    """Each axis has the frequencies of a head as wide as its share, as in RoPE-ViT."""
    share = dim // num_axes
    return np.kron(np.eye(num_axes), base ** (-np.arange(0, share, 2) / share))
