"""Frequencies for longer contexts."""

import math

import numpy as np
import pytest
import torch

from tests.conftest import BOUND, REFERENCE, TWINS

SHORT, LONG = [1.0, 1.5, 2.0, 2.5], [1.0, 4.0, 16.0, 30.0]
FACTORS = {"short_factors": SHORT, "long_factors": LONG}

# name, options that must be given; for a width of 8
METHODS = {
    "position_interpolation": {"factor": 4.0},
    "ntk_aware": {"factor": 4.0},
    "dynamic_ntk": {"factor": 4.0, "length": 300, "trained_length": 128},
    "yarn": {"factor": 4.0, "trained_length": 128},
    "longrope": FACTORS | {"factor": 4.0, "length": 300, "trained_length": 128},
    "llama3": {"trained_length": 12000},
}
on_methods = pytest.mark.parametrize(("name", "options"), METHODS.items(), ids=METHODS)


def call(column, name, dim, **options):
    """The frequencies as a NumPy array, and the attention factor, 1 where there is none."""
    result = getattr(column, name)(dim, **options)
    frequencies, factor = result if isinstance(result, tuple) else (result, 1.0)
    assert type(factor) is float
    return np.asarray(frequencies), factor


@pytest.mark.parametrize(("factor", "base"), [
    (2, 20221.26), (4, 40889.94), (8, 82684.62), (16, 167198.74)
])  # fmt: skip
def test_the_larger_bases_are_the_published_ones(column, factor, base):
    got, _ = call(column, "ntk_aware", 128, factor=factor)
    assert round(float(got[1]) ** -64, 2) == base


@pytest.mark.parametrize(("factor", "want"), [(4, 1.1386), (16, 1.2773), (32, 1.3466)])
def test_attention_factors_of_yarn_are_the_published_ones(column, factor, want):
    _, got = call(column, "yarn", 128, factor=factor, trained_length=2048)
    assert round(got, 4) == want


@pytest.mark.parametrize(
    ("trained_length", "fast", "slow"), [(2048, 16, 41), (4096, 20, 46), (8192, 25, 50)]
)
def test_the_ramp_of_yarn_is_the_published_one(column, trained_length, fast, slow):
    got, _ = call(column, "yarn", 128, factor=8, trained_length=trained_length)
    ratio = got / REFERENCE.frequencies(128)
    assert np.array_equal(ratio[: fast + 1], np.ones(fast + 1))
    assert np.allclose(ratio[slow:], 1 / 8, rtol=1e-15)
    assert np.allclose(np.diff(ratio[fast : slow + 1]), -7 / 8 / (slow - fast), rtol=1e-9)


@pytest.mark.parametrize(("factor", "want"), [(2, 1.04447), (10, 1.14105), (1, 1.0)])
def test_attention_factors_of_longrope_are_the_published_ones(column, factor, want):
    options = METHODS["longrope"] | {"factor": factor, "trained_length": 2048}
    assert round(call(column, "longrope", 8, **options)[1], 5) == want


def test_llama3_keeps_29_blends_6_and_slows_29(column):
    got, _ = call(column, "llama3", 128)
    plain = REFERENCE.frequencies(128, base=500000.0)
    assert np.allclose(got[:29], plain[:29], rtol=4e-16, atol=0)
    assert ((plain / 8 < got) & (got < plain))[29:35].all()
    assert np.allclose(got[35:], plain[35:] / 8, rtol=4e-16, atol=0)


def test_an_unrounded_ramp_begins_between_pairs(column):
    """The configuration of gpt-oss: its ends are 8.09 and 17.40."""
    options = {"base": 150000.0, "factor": 32.0, "trained_length": 4096}
    exact, rounded = (
        call(column, "yarn", 64, truncate=truncate, **options)[0]
        for truncate in (False, True)
    )
    assert np.array_equal(exact[:9], REFERENCE.frequencies(64, base=150000.0)[:9])
    assert round((rounded / exact).max(), 2) == 1.76
    assert np.array_equal(exact[18:], rounded[18:])


def test_with_equal_factors_llama3_blends_nothing(column):
    """Llama 4 Scout; a pair with exactly that many turns, where theirs divides 0 by 0, stays."""
    turns = 8192 / (2 * math.pi)
    equal = {"low_frequency_factor": turns, "high_frequency_factor": turns}
    assert call(column, "llama3", 2, **equal)[0] == 1
    above = dict.fromkeys(equal, math.nextafter(turns, math.inf))
    assert call(column, "llama3", 2, **above)[0] == 1 / 8


def hugging_face(name, dim, base=10000.0, factor=8.0, trained_length=8192, **o):
    """What modeling_rope_utils.py computes, written from its formulas."""
    plain = 1.0 / base ** (np.arange(0, dim, 2) / dim)
    if name == "ntk_aware":
        return 1.0 / (base * factor ** (dim / (dim - 2))) ** (
            np.arange(0, dim, 2) / dim
        ), 1.0
    if name == "dynamic_ntk":
        reached = max(o["length"], trained_length)
        stretch = factor * reached / trained_length - (factor - 1)
        return hugging_face("ntk_aware", dim, base, stretch)
    if name == "yarn":
        low, high = (
            dim * math.log(trained_length / (rounds * 2 * math.pi)) / (2 * math.log(base))
            for rounds in (o.get("beta_fast", 32), o.get("beta_slow", 1))
        )
        if o.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        high += 0.001 if low == high else 0
        ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
        sharpen = lambda weight=1: 0.1 * weight * math.log(factor) + 1.0  # noqa: E731
        attention = sharpen()
        if o.get("mscale") and o.get("mscale_all_dim"):
            attention = sharpen(o["mscale"]) / sharpen(o["mscale_all_dim"])
        return plain / factor * ramp + plain * (1 - ramp), attention
    if name == "longrope":
        which = "long_factors" if o["length"] > trained_length else "short_factors"
        attention = math.sqrt(1 + math.log(factor) / math.log(trained_length))
        return plain / np.array(o[which]), attention
    if name == "llama3":
        low, high = o.get("low_frequency_factor", 1.0), o.get("high_frequency_factor", 4.0)
        cycles = trained_length * plain / (2 * math.pi)
        smooth = np.clip((cycles - low) / (high - low), 0, 1)
        return (1 - smooth) * plain / factor + smooth * plain, 1.0
    return plain / factor, 1.0


CASES = [
    *[(name, 8, {"base": 10000.0} | options) for name, options in METHODS.items()],
    ("llama3", 128, {"base": 5e5, "factor": 3.5, "low_frequency_factor": 2.0, "high_frequency_factor": 2.5}),
    ("yarn", 128, {"base": 5e5, "factor": 3.5, "trained_length": 8192}),
    ("yarn", 64, {"factor": 16, "trained_length": 4096, "beta_fast": 20.0, "truncate": False}),
    ("yarn", 64, {"factor": 16, "trained_length": 4096, "beta_slow": 2.5}),
    ("yarn", 4, {"factor": 2, "trained_length": 30, "beta_fast": 4.9, "beta_slow": 4.7}),
    ("yarn", 8, {"base": 10.0, "factor": 4, "trained_length": 4096, "beta_fast": 250.0}),
    ("yarn", 8, {"factor": 4, "trained_length": 128, "mscale": 0.707, "mscale_all_dim": 1.0}),
    ("yarn", 8, {"factor": 4, "trained_length": 128, "mscale": 0.707}),
    ("longrope", 8, METHODS["longrope"] | {"length": 128}),
    ("longrope", 8, METHODS["longrope"] | {"length": 129}),
    ("dynamic_ntk", 8, METHODS["dynamic_ntk"] | {"length": 100}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dim", "options"), CASES)
def test_frequencies_are_those_of_hugging_face(column, name, dim, options):
    got, factor = call(column, name, dim, **options)
    wanted, wanted_factor = hugging_face(name, dim, **options)
    assert got.dtype == np.float64
    assert np.allclose(got, wanted, rtol=1e-12, atol=0)
    assert abs(factor - wanted_factor) <= BOUND["float64"]


def test_factors_may_be_arrays(column):
    options = METHODS["longrope"]
    arrays = {k: column.array(np.array(options[k])) for k in FACTORS}
    got, _ = call(column, "longrope", 8, **options | arrays)
    assert np.array_equal(got, call(column, "longrope", 8, **options)[0])


@on_methods
def test_torch_makes_frequencies_of_any_dtype_anywhere(torch_column, name, options):
    result = getattr(torch_column, name)(8, **options, dtype=torch.float32, device="meta")
    frequencies = result[0] if isinstance(result, tuple) else result
    assert frequencies.dtype == torch.float32
    assert frequencies.device.type == "meta"


def test_frequencies_are_float64_in_every_mode():
    for twin in TWINS:
        with twin.mode():
            assert np.asarray(twin.llama3(8)).dtype == np.float64
