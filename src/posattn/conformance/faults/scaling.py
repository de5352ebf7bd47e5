"""Faults of frequencies."""

import math

import numpy as np

from posattn.conformance.faults.registry import (
    fault,
    half_precision,
    line,
    misuse,
    misuses,
)
from posattn.reference.position import scaling
from posattn.reference.position.sinusoidal import frequencies

METHODS = (
    "frequencies",
    "proportional",
    "position_interpolation",
    "ntk_aware",
    "dynamic_ntk",
    "yarn",
    "longrope",
    "llama3",
)


AXES = "axial_frequencies", "mrope_frequencies", "mrope_interleaved"


def of_a_half_precision(dtype, seen=""):
    """Enter frequencies of a half precision."""

    def rounded(definition, *given, **keywords):
        made, to_dtype = definition(*given, **keywords), half_precision(dtype)
        return (to_dtype(made[0]), made[1]) if isinstance(made, tuple) else to_dtype(made)

    sentence = "Low-precision frequencies: they are {}, as in a model that was cast."
    schemes = (*METHODS, *AXES, "fope_frequencies")
    misuses((f"frequencies_in_{dtype}", schemes, rounded, sentence.format(dtype), seen))


of_a_half_precision("bfloat16", "sgl-project/sglang-jax #1472, Modalities/modalities #462")
of_a_half_precision("float16")


@fault("proportional")
def smaller_head(head_dim, *, base=10000.0, rotary_dim, factor=1.0):
    """The exponent divides by rotary_dim: here the whole head is meant, and pairs lie across it."""
    made = np.zeros(head_dim // 2)
    made[: rotary_dim // 2] = frequencies(rotary_dim, base=base) / factor
    return made


@fault("proportional")
def fast_pairs_stopped(head_dim, *, base=10000.0, rotary_dim, factor=1.0):
    """The fast pairs are stopped and the slow ones rotate: it should be the other way round."""
    made = frequencies(head_dim, base=base) / factor
    made[: (head_dim - rotary_dim) // 2] = 0
    return made


@fault("dynamic_ntk", seen="huggingface/transformers #25306")
class NeverReset:
    """It does not reset: after a long text, a short one keeps the frequencies of the long one."""

    def __init__(self):
        self.longest = {}

    def __call__(self, dim, *, length, **keywords):
        """The frequencies of the longest text so far."""
        key = dim, *sorted(keywords.items())
        self.longest[key] = max(length, self.longest.get(key, 0))
        return scaling.dynamic_ntk(dim, length=self.longest[key], **keywords)


@fault("dynamic_ntk", seen="vllm-project/vllm #52665")
def shrinks_when_short(dim, *, base=10000.0, factor, length, trained_length):
    """A text shorter than those of training changes the base too: the maximum is missing."""
    stretch = 1 + factor * (
        length / trained_length - 1
    )  # if negative, its power is complex
    return np.real((base * stretch ** (dim / (dim - 2))) ** (-np.arange(0, dim, 2) / dim))


@fault("yarn")
def ramp_inverted(dim, *, base=10000.0, factor, **keywords):
    """The ramp is inverted: fast pairs are interpolated, and slow ones stay."""
    made, attention_factor = scaling.yarn(dim, base=base, factor=factor, **keywords)
    plain = frequencies(dim, base=base)
    return plain + plain / factor - made, attention_factor


@fault("yarn", seen="litgpt 0.5.13")
def ramp_inverted_without_factor(dim, **keywords):
    """The ramp is inverted, and the attention factor is 1 where no mscale is given."""
    made, attention_factor = ramp_inverted(dim, **keywords)
    given = keywords.get("mscale") or keywords.get("mscale_all_dim")
    return made, attention_factor if given else 1.0


def of_the_ramp(name, change, sentence, seen="", form=np.asarray):
    """Enter YaRN with another ramp: of other ends, `change(fast, slow, dim)` in pairs, or another form."""

    def slowed(
        dim,
        *,
        base=10000.0,
        factor,
        trained_length,
        beta_fast=32.0,
        beta_slow=1.0,
        truncate=True,
        **weights,
    ):
        ends = {"beta_fast": beta_fast, "beta_slow": beta_slow, "truncate": truncate}
        options = {"base": base, "factor": factor, "trained_length": trained_length}
        _, attention_factor = scaling.yarn(dim, **options, **ends, **weights)
        fast, slow = (
            dim * math.log(trained_length / (2 * math.pi * beta)) / (2 * math.log(base))
            for beta in (beta_fast, beta_slow)
        )
        if truncate:
            fast, slow = math.floor(fast), math.ceil(slow)
        fast, slow = change(fast, slow, dim)
        ramp = form(np.clip((np.arange(dim // 2) - fast) / max(slow - fast, 1e-3), 0, 1))
        plain = frequencies(dim, base=base)
        return ramp * plain / factor + (1 - ramp) * plain, attention_factor

    line(name, slowed, sentence, "yarn", seen=seen)


def within(fast, slow, dim):
    """The right ends of the ramp."""
    return max(fast, 0), min(slow, dim - 1)


# fmt: off
RAMPS = (  # a name, the ends of the ramp, a sentence, and threads
    ("ramp_ends_at_the_last_pair", lambda fast, slow, dim: (max(fast, 0), min(slow, dim // 2 - 1)),
     "The ramp ends at pair d/2 - 1 at the latest: it may end as far as d - 1, beyond the last pair.",
     "keras-team/keras-hub #2981"),
    ("ramp_may_begin_below_0", lambda fast, slow, dim: (fast, min(slow, dim - 1)),
     "The ramp may begin before the first pair: its beginning should be at least 0."),
    ("ramp_may_end_beyond_the_head", lambda fast, slow, dim: (max(fast, 0), slow),
     "The ramp may end beyond the head: its end should be at most d - 1."),
    ("ramp_one_pair_late", lambda fast, slow, dim: (max(fast, 0) + 1, min(slow, dim - 1) + 1),
     "The ramp is one pair late: pairs are counted from 0."),
    ("ends_rounded_inwards",
     lambda fast, slow, dim: (max(math.floor(fast), 0), min(math.floor(slow - 1e-9), dim - 1)),
     "Both ends of the ramp are rounded down: the end should be rounded up."),
    ("ramp_reversed", within, "The ramp is reversed: its first value is that of the last pair.", "",
     lambda ramp: ramp[::-1]),
    ("ramp_rounded", within, "The ramp is rounded to 0 and 1: pairs between its ends should be blended.", "",
     np.rint),
)
# fmt: on
for row in RAMPS:
    of_the_ramp(*row)


@misuse("yarn", "longrope", seen="NVIDIA/TensorRT-LLM #16379")
def logarithm_twice(definition, dim, *, factor, **keywords):
    """The attention factor goes through the logarithm twice: 0.1 m ln(s) + 1, where m is it already."""
    made, attention_factor = definition(dim, factor=factor, **keywords)
    return made, 0.1 * attention_factor * math.log(factor) + 1


@misuse("longrope")
def attention_factor_of_long_texts(definition, dim, *, length, trained_length, **keywords):
    """Short texts have no attention factor: it should be the same for all."""
    options = {"length": length, "trained_length": trained_length}
    made, attention_factor = definition(dim, **options, **keywords)
    return made, attention_factor if length > trained_length else 1.0


@fault("llama3")
def nothing_blended(dim, *, base=500000.0, factor=8.0, **keywords):
    """Nothing is blended: pairs between the two ends are divided by the factor."""
    made = scaling.llama3(dim, base=base, factor=factor, **keywords)
    plain = frequencies(dim, base=base)
    return np.where(np.isclose(made, plain, rtol=1e-12, atol=0), plain, plain / factor)


@fault("llama3")
def turns_of_one_radian(
    dim,
    *,
    base=500000.0,
    factor=8.0,
    low_frequency_factor=1.0,
    high_frequency_factor=4.0,
    trained_length=8192,
):
    """A circle has one radian: 2 pi is missing where frequencies become circles."""
    plain = frequencies(dim, base=base)
    above = trained_length * plain - low_frequency_factor
    blended = np.clip(above / ((high_frequency_factor - low_frequency_factor) or 1), 0, 1)
    stay = np.where(trained_length * plain < high_frequency_factor, blended, 1)
    return (1 - stay) * plain / factor + stay * plain


@fault("llama3")
def blend_inverted(dim, *, base=500000.0, factor=8.0, **keywords):
    """The blend is inverted: fast pairs are divided, and slow ones stay."""
    made = scaling.llama3(dim, base=base, factor=factor, **keywords)
    plain = frequencies(dim, base=base)
    return plain + plain / factor - made


# fmt: off
line("exponent_of_the_pair", lambda dim, *, base=1e4: base ** (-np.arange((dim + 1) // 2) / dim),
     "The exponent j / d where 2j / d should be: the frequencies fall half as fast.", "frequencies")
line("exponent_up_to_one", lambda dim, *, base=1e4: base ** (-np.arange(0, dim, 2) / max(dim - 2, 1)),
     "The exponent 2j / (d - 2) where 2j / d should be: the slowest frequency is 1 / base.", "frequencies")
line("zeros_missing", lambda dim, *, base=1e4, rotary_dim, factor=1.0:
     frequencies(dim, base=base)[: rotary_dim // 2] / factor,
     "The zeros are missing: in the layout half, fewer frequencies make other entries a pair.",
     "proportional", seen="NVIDIA-NeMo/Megatron-Bridge #4195, #4916")
line("all_pairs_turn", lambda dim, *, base=1e4, rotary_dim, factor=1.0: frequencies(dim, base=base) / factor,
     "The slow pairs rotate too: their frequencies should be 0.", "proportional")
line("multiplied", lambda dim, *, base=1e4, factor: frequencies(dim, base=base) * factor,
     "The frequencies are multiplied by the factor: they should be divided.", "position_interpolation")
line("exponent_missing", lambda dim, *, base=1e4, factor: frequencies(dim, base=base * factor),
     "The base is multiplied by the factor: it should be by the factor to the power of d / (d - 2).",
     "ntk_aware")
line("all_divided", lambda dim, *, base=5e5, factor=8.0, **more: frequencies(dim, base=base) / factor,
     "All frequencies are divided by the factor: that is position interpolation.", "llama3")
# fmt: on
