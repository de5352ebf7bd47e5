"""Cases of the frequencies, plain and for longer contexts. Every number counts, also the small ones."""

import numpy as np

from posattn.conformance.cases import Scheme
from posattn.reference.position import scaling
from posattn.reference.position.proportional import proportional_frequencies
from posattn.reference.position.sinusoidal import frequencies as plain


def frequencies():
    """Plain frequencies, and those of a larger base."""
    for dim in (128, 8, 2, 1, 7):
        yield f"width {dim}", (dim,), {}
    yield "the base of Llama 3", (128,), {"base": 500000.0}


def proportional():
    """Proportional rotation: pairs across the whole head, of which the first ones turn."""
    yield "a global head of Gemma 4", (512,), {"base": 1e6, "rotary_dim": 128}
    yield "half of the pairs", (16,), {"rotary_dim": 8}
    yield "all pairs turn", (8,), {"rotary_dim": 8}
    yield "an odd number of pairs, another base", (20,), {"base": 500.0, "rotary_dim": 6}
    yield "slowed down", (64,), {"rotary_dim": 32, "factor": 8.0}
    every = {"base": 500.0, "rotary_dim": 8, "factor": 8.0}
    yield "all options at once", (16,), every


def position_interpolation():
    """Position interpolation: all frequencies divided by a factor."""
    yield "factor 8", (128,), {"factor": 8.0}
    yield "factor 1 changes nothing", (8,), {"factor": 1.0}
    yield "a fraction, another base", (64,), {"factor": 2.5, "base": 500000.0}


def ntk_aware():
    """NTK-aware scaling: a larger base, which slows the last pair by the factor."""
    for factor in (2.0, 4.0, 8.0, 16.0):
        yield f"factor {factor:.0f}", (128,), {"factor": factor}
    yield "factor 1 changes nothing", (8,), {"factor": 1.0}
    yield "a pair alone", (2,), {"factor": 4.0}
    yield "another base", (64,), {"factor": 4.0, "base": 500000.0}


def dynamic_ntk():
    """Dynamic NTK: the base grows with the length, and a short text after a long one has the plain base."""
    trained = {"factor": 2.0, "trained_length": 2048}
    for length in (1, 2048, 2049, 8192, 2048, 4096, 17):
        yield f"length {length}", (128,), {"length": length, **trained}
    again = {"length": 8192, **trained}
    yield "another base", (64,), {"base": 500000.0, **again}
    yield "factor 1", (64,), {**again, "factor": 1.0}


def yarn():
    """YaRN: frequencies, blended between plain and interpolated ones, and the attention factor."""
    for factor, length in ((4.0, 2048), (16.0, 4096), (32.0, 8192), (1.0, 2048)):
        name = f"factor {factor:.0f}, trained length {length}"
        yield name, (128,), {"factor": factor, "trained_length": length}
    yield "a narrow head", (8,), {"factor": 4.0, "trained_length": 4096}
    long = {"factor": 4.0, "trained_length": 131072}
    yield "a long trained length: the ramp ends beyond the last pair", (64,), long
    longer = {"base": 100.0, "beta_fast": 1024.0, **long}
    yield "a longer one: the ramp would end beyond the head", (16,), longer
    short = {"factor": 4.0, "trained_length": 64, "base": 100.0}
    yield "a short trained length: the ramp begins before the first pair", (16,), short
    ramp = {"beta_fast": 16.0, "beta_slow": 2.0}
    yield "another ramp", (128,), {"factor": 4.0, "trained_length": 2048, **ramp}
    yield "another base", (64,), {"base": 1e6, "factor": 8.0, "trained_length": 32768}
    every = {"base": 1e6, "factor": 8.0, "trained_length": 32768, **ramp}
    yield "another base and another ramp", (64,), every
    trained = {"factor": 32.0, "trained_length": 4096}
    yield "ends not rounded", (64,), {"base": 150000.0, "truncate": False, **trained}
    weights = {"mscale": 1.0, "mscale_all_dim": 0.5}
    yield "weights of the logarithm", (64,), {**trained, **weights}
    yield "one weight of the logarithm counts as none", (64,), {**trained, "mscale": 0.5}
    yield "all options at once", (64,), {**every, **weights, "truncate": False}


def longrope():
    """LongRoPE: a factor per pair, another one within the trained length, and the attention factor."""
    pairs = np.arange(4)
    factors = {"short_factors": 1 + pairs / 4, "long_factors": 2.0 ** (2 * pairs)}
    trained = {"trained_length": 2048, **factors}
    for length in (4096, 2048, 2049, 2047, 1):
        yield f"length {length}", (8,), {"length": length, "factor": 10.0, **trained}
    yield "factor 2", (8,), {"length": 4096, "factor": 2.0, **trained}
    yield "another base", (8,), {"base": 500.0, "length": 9, "factor": 2.0, **trained}


def llama3():
    """The frequencies of Llama 3.1: plain, blended and divided ones."""
    yield "Llama 3.1", (128,), {}
    yield "Llama 3.2", (64,), {"factor": 32.0}
    yield "another base and length", (64,), {"base": 10000.0, "trained_length": 2048}
    ends = {"low_frequency_factor": 2.0, "high_frequency_factor": 3.0}
    yield "a narrower blend", (128,), ends
    equal = {"low_frequency_factor": 1.0, "high_frequency_factor": 1.0}
    yield "Llama 4 Scout: no blend", (128,), {"factor": 16.0, **equal}
    every = {"base": 10000.0, "factor": 4.0, "trained_length": 2048, **ends}
    yield "all options at once", (64,), every


def scheme(function, cases, source):
    """One way to compute frequencies."""
    return Scheme(function, cases, source, relative=True, exact=True)


SCHEMES = {
    "frequencies": scheme(
        plain, frequencies, "Vaswani.Shazeer.Parmar.ea.2017, section 3.5"
    ),
    "proportional": scheme(
        proportional_frequencies, proportional, "barbero2025round, as in Gemma 4"
    ),
    "position_interpolation": scheme(
        scaling.position_interpolation,
        position_interpolation,
        "chen2023extending, section 2.3",
    ),
    "ntk_aware": scheme(scaling.ntk_aware, ntk_aware, "peng2024yarn, section 3.1"),
    "dynamic_ntk": scheme(scaling.dynamic_ntk, dynamic_ntk, "peng2024yarn, section 3.3"),
    "yarn": scheme(scaling.yarn, yarn, "peng2024yarn, sections 3.2 and 3.4"),
    "longrope": scheme(scaling.longrope, longrope, "ding2024longrope, as in Phi-3"),
    "llama3": scheme(
        scaling.llama3, llama3, "grattafiori2024llama, and the authors' program"
    ),
}
