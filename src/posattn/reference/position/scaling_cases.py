"""The cards and cases of the frequencies for longer contexts."""

import numpy as np

from posattn.reference.cases import Cases
from posattn.reference.position import scaling
from posattn.reference.position.card import SMALL, Card
from posattn.reference.position.rotary import rotation


def _longrope(n, z):
    return scaling.longrope(
        z.head_dim,
        short_factors=[1.0] * (z.head_dim // 2),
        long_factors=np.linspace(1, 3, z.head_dim // 2).tolist(),
        length=n,
        trained_length=z.trained // 2,
        factor=4.0,
    )


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


def cases_of(function, cases, source):
    """The cases of one way to compute frequencies, every number of which counts."""
    return Cases(function, cases, source, relative=True, exact=True)


CARDS = {
    "position interpolation": Card(
        title="Position interpolation",
        year=2023,
        idea=(
            "Slow all pairs down by the same factor, so that a long text has the angles "
            "of a short one."
        ),
        formula=r"\omega_c \mapsto \omega_c / s",
        symbols=r"$\omega_c$ is the frequency of pair $c$ of rotary, and $s$ the factor.",
        cites=("chen2023extending",),
        function="position_interpolation",
        shows="the stripes of rotary, four times as broad",
        models=("Gemma 3 (global layers)",),
        page="position/longer_contexts",
        make=lambda n, z=SMALL: rotation(
            scaling.position_interpolation(z.head_dim, factor=4.0)
        ),
    ),
    "NTK-aware": Card(
        title="NTK-aware scaling",
        year=2023,
        idea=(
            "Enlarge the base of rotary. The fast pairs keep their frequency, and the "
            "slowest one is slowed down by the full factor."
        ),
        formula=r"b \mapsto b\,s^{d/(d-2)}, \quad \omega_c = b^{-2c/d}",
        symbols=(
            "$b$ is the base, $s$ the factor, $d$ the number of entries that rotate, and "
            r"$\omega_c$ the frequency of pair $c$."
        ),
        cites=("bloc972023ntk", "peng2024yarn"),
        function="ntk_aware",
        shows="the fine stripes of rotary, over broader ones",
        page="position/longer_contexts",
        make=lambda n, z=SMALL: rotation(scaling.ntk_aware(z.head_dim, factor=4.0)),
    ),
    "dynamic NTK": Card(
        title="Dynamic NTK",
        year=2023,
        idea=(
            "NTK-aware scaling that starts when the text gets longer than those of "
            "training. From then on its factor grows with the text."
        ),
        formula=r"b \mapsto b\,\left(1 + s\left(\tfrac{\max(n, L)}{L} - 1\right)\right)^{d/(d-2)}",
        symbols=(
            "$n$ is the length of the text, $L$ that of training, $b$ the base, $s$ a "
            "factor, and $d$ the number of entries that rotate."
        ),
        cites=("emozilla2023dynamically", "peng2024yarn"),
        function="dynamic_ntk",
        shows="the fine stripes of rotary, over broader ones",
        models=("Qwen-7B (the first Qwen, with its own formula for the factor)",),
        page="build/extending",
        make=lambda n, z=SMALL: rotation(
            scaling.dynamic_ntk(
                z.head_dim, factor=2.0, length=n, trained_length=z.trained // 2
            )
        ),
    ),
    "YaRN": Card(
        title="YaRN",
        year=2023,
        idea=(
            "Interpolate the slow pairs, keep the fast ones, and make all scores a "
            "little larger."
        ),
        formula=(
            r"\omega_c \mapsto \gamma_c\,\omega_c / s + (1 - \gamma_c)\,\omega_c, \quad "
            r"\mathbf{q}_i \mapsto (0.1 \ln s + 1)\,\mathbf{R}_i\,\mathbf{q}_i"
        ),
        symbols=(
            r"$\gamma_c$ is 1 for slow pairs, 0 for fast ones and in between for the "
            r"rest. $\omega_c$ is the frequency of pair $c$, $s$ the factor, and "
            r"$\mathbf{R}_i$ the rotation with the new frequencies."
        ),
        cites=("peng2024yarn",),
        function="yarn",
        shows="the fine stripes of rotary, over broader ones",
        models=("gpt-oss", "Olmo 3.1 (global layers)", "DeepSeek-V3"),
        page="position/longer_contexts",
        make=lambda n, z=SMALL: rotation(
            *scaling.yarn(z.head_dim, factor=4.0, trained_length=z.trained)
        ),
    ),
    "LongRoPE": Card(
        title="LongRoPE",
        year=2024,
        idea=(
            "Slow each pair down by its own factor, found by search. There is one set of "
            "factors for short texts and another for long ones."
        ),
        formula=(
            r"\omega_c \mapsto \omega_c / \lambda_c, \quad \lambda \text{ short if } n "
            r"\le L, \text{ else long}"
        ),
        symbols=(
            r"$\omega_c$ is the frequency of pair $c$, $\lambda_c$ its factor, $n$ the length "
            "of the text, and $L$ that of training."
        ),
        cites=("ding2024longrope",),
        function="longrope",
        shows="stripes along the diagonal, a little broader than those of rotary",
        models=("Phi-3-mini-128k",),
        page="build/extending",
        make=lambda n, z=SMALL: rotation(*_longrope(n, z)),
    ),
    "Llama 3": Card(
        title="Scaling of Llama 3.1",
        year=2024,
        idea="Slow the slow pairs down by a factor, keep the fast ones, and blend in between.",
        formula=r"\omega_c \mapsto \omega_c / s \text{ if slow}, \quad \omega_c \text{ if fast}",
        symbols=(
            r"$\omega_c$ is the frequency of pair $c$, and $s$ the factor. Fast pairs make at "
            "least four circles within the length of training, slow ones at most one."
        ),
        cites=("grattafiori2024llama",),
        function="llama3",
        shows="stripes along the diagonal, over much broader ones from its base of 500000",
        models=("Llama 3.1", "Llama 4 (Scout)", "EXAONE 4.0", "Apertus"),
        page="position/longer_contexts",
        make=lambda n, z=SMALL: rotation(scaling.llama3(z.head_dim)),
    ),
}

CASES = {
    "position_interpolation": cases_of(
        scaling.position_interpolation,
        position_interpolation,
        "chen2023extending, section 2.3",
    ),
    "ntk_aware": cases_of(scaling.ntk_aware, ntk_aware, "peng2024yarn, section 3.1"),
    "dynamic_ntk": cases_of(scaling.dynamic_ntk, dynamic_ntk, "peng2024yarn, section 3.3"),
    "yarn": cases_of(scaling.yarn, yarn, "peng2024yarn, sections 3.2 and 3.4"),
    "longrope": cases_of(scaling.longrope, longrope, "ding2024longrope, as in Phi-3"),
    "llama3": cases_of(
        scaling.llama3, llama3, "grattafiori2024llama, and the authors' program"
    ),
}
