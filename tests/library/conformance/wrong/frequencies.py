"""Frequencies that are subtly wrong, as they were seen or are easily written."""

import functools
import math

import numpy as np
import torch

from tests.library.conformance.examples import wrong


def plain(dim, base):
    """The frequencies, which are right."""
    return base ** (-np.arange(0, dim, 2) / dim)


def yarn_of(dim, base, factor, ends, first=0):
    """A linear ramp between two ends, and the attention factor, which are right."""
    low, high = ends
    ramp = np.clip((np.arange(dim // 2) + first - low) / max(high - low, 0.001), 0, 1)
    made = plain(dim, base) * (ramp / factor + 1 - ramp)
    return made, 0.1 * math.log(factor) + 1


def turns_to_pair(turns, dim, base, trained_length):
    """The pair that makes so many turns, which is right."""
    return dim * math.log(trained_length / (turns * 2 * math.pi)) / (2 * math.log(base))


def ends_of(dim, base, trained_length, last):
    """Both ends, rounded and bounded, the second by `last`."""
    low, high = (turns_to_pair(turns, dim, base, trained_length) for turns in (32, 1))
    return max(math.floor(low), 0), min(math.ceil(high), last)


PLAIN = {"skip": ("another ramp", "rounded", "weight"), "settings": {"truncate": True}}


@wrong("yarn", **PLAIN)
def ramp_from_one(dim, base=10000.0, factor=1.0, trained_length=2048):
    """The ramp counts the pairs from 1."""
    return yarn_of(dim, base, factor, ends_of(dim, base, trained_length, dim - 1), 1)


@wrong("yarn", cause="ramp_ends_at_the_last_pair", **PLAIN)
def clamped_to_half(dim, base=10000.0, factor=1.0, trained_length=2048):
    """The upper end is at most d/2 - 1, the last pair, where the authors have d - 1."""
    return yarn_of(dim, base, factor, ends_of(dim, base, trained_length, dim // 2 - 1))


@wrong("yarn", cause="ramp_may_begin_below_0", **PLAIN)
def never_clamped_below(dim, base=10000.0, factor=1.0, trained_length=2048):
    """The lower end may be negative: the fast pairs of a short text are slowed."""
    low, high = (turns_to_pair(turns, dim, base, trained_length) for turns in (32, 1))
    return yarn_of(dim, base, factor, (math.floor(low), min(math.ceil(high), dim - 1)))


@wrong("yarn", cause="ramp_may_end_beyond_the_head", **PLAIN)
def never_clamped_above(dim, base=10000.0, factor=1.0, trained_length=2048, beta_fast=32.0):
    """The upper end may lie beyond d - 1: slow pairs are not slowed by the whole factor."""
    low, high = (
        turns_to_pair(turns, dim, base, trained_length) for turns in (beta_fast, 1)
    )
    return yarn_of(dim, base, factor, (max(math.floor(low), 0), math.ceil(high)))


@wrong("yarn", cause="ends_rounded_inwards", **PLAIN)
def both_ends_rounded_down(dim, base=10000.0, factor=1.0, trained_length=2048):
    """Both ends are cut off to whole pairs: the upper one should be rounded up."""
    low, high = (math.floor(turns_to_pair(t, dim, base, trained_length)) for t in (32, 1))
    return yarn_of(dim, base, factor, (max(low, 0), min(high, dim - 1)))


@wrong("yarn", **PLAIN)
def turns_of_one_radian(dim, base=10000.0, factor=1.0, trained_length=2048):
    """A turn has one radian: 2 pi is missing where turns become pairs."""
    length = trained_length * 2 * math.pi
    return yarn_of(dim, base, factor, ends_of(dim, base, length, dim - 1))


@wrong("yarn", **PLAIN)
def sharpened_by_the_logarithm_alone(dim, base=10000.0, factor=1.0, trained_length=2048):
    """The attention factor is 0.1 ln s, without the 1."""
    made, sharp = yarn_of(dim, base, factor, ends_of(dim, base, trained_length, dim - 1))
    return made, sharp - 1


@wrong("yarn", **PLAIN)
def trained_length_after_scaling(dim, base=10000.0, factor=1.0, trained_length=2048):
    """The length is the long one, max_position_embeddings, where that of training is meant."""
    length = trained_length * factor
    return yarn_of(dim, base, factor, ends_of(dim, base, length, dim - 1))


def of_longrope(change):
    """Make frequencies of what is right: plain ones, both lists of factors, if a text is long, the factor."""

    @functools.wraps(change)
    def made(
        dim, *, base=10000.0, short_factors, long_factors, length, trained_length, factor
    ):
        sharp = math.sqrt(1 + math.log(factor) / math.log(trained_length))
        long = length > trained_length
        return change(plain(dim, base), short_factors, long_factors, long, sharp)

    del made.__wrapped__  # its signature is the one of LongRoPE
    return made


@wrong("longrope", cause="attention_factor_squared")
@of_longrope
def square_root_missing(omega, short, long, is_long, sharp):
    """The square root of the attention factor is missing."""
    return omega / (long if is_long else short), sharp**2


@wrong("longrope", cause="attention_factor_of_long_texts")
@of_longrope
def short_only_without_a_factor(omega, short, long, is_long, sharp):
    """Short texts have the attention factor 1: it should be the same for both."""
    return omega / (long if is_long else short), sharp if is_long else 1.0


@wrong("longrope", cause="short_factors_ignored")
@of_longrope
def long_factors_always(omega, short, long, is_long, sharp):
    """The long factors are taken for every length, as by a table that is built once."""
    return omega / long, sharp


@wrong("longrope", cause="factors_multiplied")
@of_longrope
def factors_multiplied(omega, short, long, is_long, sharp):
    """The frequencies are multiplied by the factors, which should divide them."""
    return omega * (long if is_long else short), sharp


def llama_of(omega, by, factor, low, high, length):
    """The blend of Llama 3 for frequencies, `by` the wavelengths of those."""
    share = np.clip((length / by - low) / (high - low), 0, 1)
    return (1 - share) * omega / factor + share * omega


BLENDED = {"skip": ("no blend",)}


def of_llama(change):
    """Make frequencies of what is right: the width, the base, the factor, both ends, the length."""

    @functools.wraps(change)
    def made(
        dim, *, base=500000.0, factor=8.0, low_frequency_factor=1.0,
        high_frequency_factor=4.0, trained_length=8192,
    ):  # fmt: skip
        ends = low_frequency_factor, high_frequency_factor
        return change(dim, base, factor, *ends, trained_length)

    del made.__wrapped__  # its signature is the one of Llama 3
    return made


@wrong("llama3", **BLENDED)
@of_llama
def wavelengths_of_another_base(dim, base, factor, low, high, length):
    """The wavelengths are those of the base 10000, and the frequencies those of the model's."""
    by = 2 * math.pi / plain(dim, 10000.0)
    return llama_of(plain(dim, base), by, factor, low, high, length)


@wrong("llama3", **BLENDED)
@of_llama
def blend_the_wrong_way_round(dim, base, factor, low, high, length):
    """Both ends are right, and between them the share is that of the other."""
    omega = plain(dim, base)
    turns = length * omega / (2 * math.pi)
    share = (turns - low) / (high - low)
    made = np.where(turns >= high, omega, omega / factor)
    between = (turns > low) & (turns < high)
    return np.where(between, share * omega / factor + (1 - share) * omega, made)


@wrong("llama3", **BLENDED)
@of_llama
def blend_of_wavelengths(dim, base, factor, low, high, length):
    """The share is linear in the wavelength, where it should be linear in the turns."""
    by = 2 * math.pi / plain(dim, base)
    longest, shortest = length / low, length / high
    share = np.clip((longest - by) / (longest - shortest), 0, 1)
    return plain(dim, base) * ((1 - share) / factor + share)


@wrong("llama3", cause="turns_of_one_radian", **BLENDED)
@of_llama
def turns_in_radians(dim, base, factor, low, high, length):
    """The wavelength is one over the frequency: 2 pi is missing."""
    return llama_of(plain(dim, base), 1 / plain(dim, base), factor, low, high, length)


@wrong("llama3", cause="ends_of_llama_31", **BLENDED)
@of_llama
def ends_written_down(dim, base, factor, low, high, length):
    """The ends are written into the function, and those of the configuration are not read."""
    by = 2 * math.pi / plain(dim, base)
    return llama_of(plain(dim, base), by, factor, 1.0, 4.0, length)


@wrong("frequencies", "torch", cause="frequencies_in_bfloat16")
def left_in_bfloat16(dim, base=10000.0):
    """The frequencies come back in bfloat16, where they are off by up to 0.2 %."""
    even = torch.arange(0, dim, 2, dtype=torch.float64)
    return (base ** (-even / dim)).bfloat16()


@wrong("yarn", cause="frequencies_in_bfloat16", **PLAIN)
def yarn_in_bfloat16(dim, base=10000.0, factor=1.0, trained_length=2048):
    """The frequencies of YaRN went to bfloat16 with the model, and back."""
    ends = ends_of(dim, base, trained_length, dim - 1)
    made, sharp = yarn_of(dim, base, factor, ends)
    return torch.from_numpy(made).bfloat16().double().numpy(), sharp


@wrong("dynamic_ntk", cause="NeverReset")
class TheLongestStays:
    """The frequencies are computed anew only if a text is longer than all before it."""

    def __init__(self):
        self.longest, self.kept = {}, {}

    def __call__(self, dim, base=10000.0, factor=1.0, length=1, trained_length=2048):
        """Compute frequencies."""
        key = dim, base, factor
        if key not in self.kept or length > self.longest[key]:
            self.longest[key] = max(length, trained_length)
            stretch = factor * self.longest[key] / trained_length - (factor - 1)
            self.kept[key] = plain(dim, base * stretch ** (dim / (dim - 2)))
        return self.kept[key]


@wrong("dynamic_ntk")
def stretch_without_subtraction(
    dim, base=10000.0, factor=1.0, length=1, trained_length=2048
):
    """The base grows by factor times length over trained length: what is subtracted is missing."""
    stretch = max(factor * length / trained_length, 1)
    return plain(dim, base * stretch ** (dim / (dim - 2)))


@wrong("ntk_aware")
def exponent_upside_down(dim, base=10000.0, factor=1.0):
    """The exponent is (d - 2) / d, where d / (d - 2) should be."""
    return plain(dim, base * factor ** ((dim - 2) / dim))


@wrong("proportional")
def twice_as_many_pairs(head_dim, base=10000.0, rotary_dim=None, factor=1.0):
    """As many pairs turn as entries should: rotary_dim is not halved."""
    rotation = np.arange(head_dim // 2) < rotary_dim
    return np.where(rotation, plain(head_dim, base) / factor, 0.0)


@wrong("proportional")
def every_fourth_pair_turns(head_dim, base=10000.0, rotary_dim=None, factor=1.0):
    """The pairs that turn are spread over the head, where they should be the first."""
    step = head_dim // rotary_dim
    rotation = np.arange(head_dim // 2) % step == 0
    return np.where(rotation, plain(head_dim, base) / factor, 0.0)


@wrong("mrope_interleaved")
def width_before_height(dim, sections, base=10000.0):
    """The axes take turns in another order: time, width, height."""
    turn, pairs = np.arange(dim // 2) % len(sections), np.arange(dim // 2)
    axis = np.where(pairs < len(sections) * np.array(sections)[turn], turn, 0)
    axis = np.where(axis > 0, len(sections) - axis, 0)
    return (axis == np.arange(len(sections))[:, None]) * plain(dim, base)


@wrong("frequencies", "torch", cause="frequencies_in_bfloat16")
def powers_in_bfloat16(dim, base=10000.0):
    """The frequencies were cast to bfloat16 with the model, and back."""
    even = torch.arange(0, dim, 2, dtype=torch.float64)
    return (base ** (-even / dim)).bfloat16().double()


@wrong("frequencies", cause="exponent_up_to_one")
def exponents_by_linspace(dim, base=10000.0):
    """The exponents go from 0 to 1, both included."""
    return base ** -np.linspace(0, 1, (dim + 1) // 2)


@wrong("axial_frequencies")
def width_of_the_whole_head(dim, num_axes=2, base=100.0):
    """The exponents divide by the whole head, where the share of an axis is meant."""
    share = dim // num_axes
    return np.kron(np.eye(num_axes), plain(dim, base)[: share // 2])
