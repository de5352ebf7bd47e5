"""Threads on frequencies for longer contexts, from their texts."""

import math

import numpy as np

from posattn.conformance import gallery
from tests.library.conformance.examples import thread
from tests.library.conformance.threads.rotations import plain


def yarn_of(dim, base, factor, trained_length, turns=(32.0, 1.0), last=None, truncate=True):
    """The frequencies of YaRN, its upper end bounded by `last`."""
    low, high = (
        dim * math.log(trained_length / (beta * 2 * math.pi)) / (2 * math.log(base))
        for beta in turns
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1 if last is None else last)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain(dim, base) * (ramp / factor + 1 - ramp)


thread("huggingface/transformers #25306", scheme="dynamic_ntk",
       cause="NeverReset")(gallery.NtkOfTheLongest)  # fmt: skip


@thread("vllm-project/vllm #5093", scheme="dynamic_ntk", cause="not_dynamic")
def built_for_the_longest(dim, *, base=10000.0, factor, length, trained_length):
    """The table is built once, for the trained length times the factor, and serves every text."""
    stretch = factor * (trained_length * factor) / trained_length - (factor - 1)
    return plain(dim, base * stretch ** (dim / (dim - 2)))


@thread("vllm-project/vllm #52665", scheme="dynamic_ntk", cause="shrinks_when_short")
def shorter_than_training(dim, *, base=10000.0, factor, length, trained_length):
    """A short text makes the base negative, its power complex, and what is imaginary is dropped."""
    stretch = factor * length / trained_length - (factor - 1)
    return np.real(plain(dim, base * stretch ** (dim / (dim - 2))))


@thread("NVIDIA-NeMo/Megatron-Bridge #4195", "NVIDIA-NeMo/Megatron-Bridge #4916",
        scheme="proportional", cause="zeros_missing")  # fmt: skip
def only_those_that_turn(head_dim, *, base=10000.0, rotary_dim, factor=1.0):
    """The frequencies have the right values, and no zeros for the rest of the head."""
    return plain(head_dim, base)[: rotary_dim // 2] / factor


@thread("keras-team/keras-hub #2981", scheme="yarn", cause="ends_not_rounded",
        settings={"truncate": True})  # fmt: skip
def truncation_is_off(
    dim, *, base=10000.0, factor, trained_length, beta_fast=32.0, beta_slow=1.0
):
    """The ends are not rounded unless it is asked for."""
    turns = beta_fast, beta_slow
    made = yarn_of(dim, base, factor, trained_length, turns, truncate=False)
    return made, 0.1 * math.log(factor) + 1


@thread("keras-team/keras-hub #2981 (the clamp)", scheme="yarn",
        cause="ramp_ends_at_the_last_pair", settings={"truncate": True})  # fmt: skip
def clamped_to_the_pairs(
    dim, *, base=10000.0, factor, trained_length, beta_fast=32.0, beta_slow=1.0
):
    """The upper end is at most rotary_dim // 2 - 1, where the reference has rotary_dim - 1."""
    turns = beta_fast, beta_slow
    made = yarn_of(dim, base, factor, trained_length, turns, last=dim // 2 - 1)
    return made, 0.1 * math.log(factor) + 1


@thread("sgl-project/sglang #31232", "vllm-project/vllm #48623", scheme="yarn",
        cause="weights_ignored")  # fmt: skip
def one_formula_for_all(
    dim,
    *,
    base=10000.0,
    factor,
    trained_length,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=True,
    mscale=None,
    mscale_all_dim=None,
):
    """The attention factor comes from the factor alone, whatever mscale and mscale_all_dim are."""
    made = yarn_of(
        dim, base, factor, trained_length, (beta_fast, beta_slow), None, truncate
    )
    return made, 0.1 * math.log(factor) + 1


@thread("NVIDIA/TensorRT-LLM #16379", scheme="yarn", cause="logarithm_twice",
        settings={"truncate": True})  # fmt: skip
def attention_factor_as_mscale(
    dim, *, base=10000.0, factor, trained_length, beta_fast=32.0, beta_slow=1.0
):
    """The final attention factor is handed on as mscale, and goes through the logarithm again."""
    made = yarn_of(dim, base, factor, trained_length, (beta_fast, beta_slow))
    attention_factor = 0.1 * math.log(factor) + 1
    return made, 0.1 * attention_factor * math.log(factor) + 1


@thread("litgpt 0.5.13", scheme="yarn", cause="ramp_inverted_without_factor",
        settings={"truncate": True})  # fmt: skip
def ramp_as_the_share_that_stays(dim, *, base=10000.0, factor, trained_length, **turns):
    """The ramp is the share of the unscaled frequencies, and no mscale means a multiplier of 1."""
    turns = turns["beta_fast"], turns["beta_slow"]
    right = yarn_of(dim, base, factor, trained_length, turns)
    return plain(dim, base) * (1 + 1 / factor) - right, 1.0


@thread("unslothai/unsloth #10681", scheme="longrope", cause="long_too_early")
def short_below_only(
    dim, *, base=10000.0, short_factors, long_factors, length, trained_length, factor
):
    """A text of exactly the trained length has the long factors: < stands for <=."""
    chosen = short_factors if length < trained_length else long_factors
    sharp = math.sqrt(1 + math.log(factor) / math.log(trained_length))
    return plain(dim, base) / chosen, sharp


@thread("lablup/mlxcel #1358", scheme="longrope", cause="short_factors_ignored")
def short_is_never_read(
    dim, *, base=10000.0, short_factors, long_factors, length, trained_length, factor
):
    """One table is built from the long factors, and serves every length."""
    sharp = math.sqrt(1 + math.log(factor) / math.log(trained_length))
    return plain(dim, base) / long_factors, sharp
