"""Frequencies for longer contexts."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from tests.conftest import BOUND, REFERENCE, TWINS, draw, error

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


def test_the_same_weight_for_all_leaves_turned_queries_as_long_as_they_were(column):
    options = METHODS["yarn"] | {"mscale": 1.0, "mscale_all_dim": 1.0}  # of DeepSeek-V3
    assert call(column, "yarn", 8, **options)[1] == 1


def test_without_rounding_the_ramp_of_yarn_begins_between_pairs(column):
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


def hugging_face(name, dim, base=10000.0, **o):
    """What modeling_rope_utils.py computes, pair by pair, written from its formulas."""
    plain = [1.0 / base ** (i / dim) for i in range(0, dim, 2)]
    if name == "position_interpolation":
        return [w / o["factor"] for w in plain], 1.0
    if name == "ntk_aware":
        return hugging_face("plain", dim, base * o["factor"] ** (dim / (dim - 2)))
    if name == "dynamic_ntk":
        reached = max(o["length"], o["trained_length"])
        stretch = o["factor"] * reached / o["trained_length"] - (o["factor"] - 1)
        return hugging_face("plain", dim, base * stretch ** (dim / (dim - 2)))
    if name == "yarn":
        low, high = (
            dim
            * math.log(o["trained_length"] / (turns * 2 * math.pi))
            / (2 * math.log(base))
            for turns in (o.get("beta_fast", 32), o.get("beta_slow", 1))
        )
        if o.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        high += 0.001 if low == high else 0
        ramps = [min(max((i - low) / (high - low), 0), 1) for i in range(dim // 2)]
        mixed = [
            w / o["factor"] * r + w * (1 - r) for w, r in zip(plain, ramps, strict=True)
        ]
        sharpen = lambda weight=1: 0.1 * weight * math.log(o["factor"]) + 1.0  # noqa: E731
        if o.get("mscale") and o.get("mscale_all_dim"):
            return mixed, sharpen(o["mscale"]) / sharpen(o["mscale_all_dim"])
        return mixed, sharpen()
    if name == "longrope":
        factors = o[
            "long_factors" if o["length"] > o["trained_length"] else "short_factors"
        ]
        slowed = [w / f for w, f in zip(plain, factors, strict=True)]
        return slowed, math.sqrt(1 + math.log(o["factor"]) / math.log(o["trained_length"]))
    if name == "llama3":
        low, high = o.get("low_frequency_factor", 1.0), o.get("high_frequency_factor", 4.0)
        factor, out = o.get("factor", 8.0), []
        for w in plain:
            wavelength, length = 2 * math.pi / w, o.get("trained_length", 8192)
            if wavelength < length / high:
                out.append(w)
            elif wavelength > length / low:
                out.append(w / factor)
            else:
                smooth = (length / wavelength - low) / (high - low)
                out.append((1 - smooth) * w / factor + smooth * w)
        return out, 1.0
    return plain, 1.0


CASES = [
    *[(name, 8, {"base": 10000.0} | options) for name, options in METHODS.items()],
    *[(name, 128, {"base": 5e5, "factor": 3.5, "trained_length": 8192}) for name in ("yarn", "llama3")],
    ("yarn", 64, {"factor": 16, "trained_length": 4096, "beta_fast": 20.0, "beta_slow": 2.5}),
    ("yarn", 4, {"factor": 2, "trained_length": 30, "beta_fast": 4.9, "beta_slow": 4.7}),
    ("yarn", 8, {"base": 10.0, "factor": 4, "trained_length": 4096, "beta_fast": 250.0}),
    ("yarn", 64, {"base": 150000.0, "factor": 32.0, "trained_length": 4096, "truncate": False}),
    ("yarn", 8, {"factor": 4, "trained_length": 128, "mscale": 0.707, "mscale_all_dim": 1.0}),
    ("yarn", 8, {"factor": 4, "trained_length": 128, "mscale": 0.707}),
    ("yarn", 8, {"factor": 4, "trained_length": 128, "mscale": 0.707, "mscale_all_dim": 0}),
    ("yarn", 8, {"factor": 4, "trained_length": 128, "mscale_all_dim": 0.707}),
    ("llama3", 128, {"base": 5e5, "factor": 16.0, "low_frequency_factor": 1.0, "high_frequency_factor": 1.0}),
    ("dynamic_ntk", 64, {"factor": 1, "length": 5000, "trained_length": 2048}),
    ("longrope", 8, METHODS["longrope"] | {"length": 128}),
    ("longrope", 8, METHODS["longrope"] | {"length": 129}),
    ("llama3", 128, {"base": 1e4, "low_frequency_factor": 2.0, "high_frequency_factor": 2.5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dim", "options"), CASES)
def test_frequencies_are_those_of_hugging_face(column, name, dim, options):
    got, factor = call(column, name, dim, **options)
    wanted, wanted_factor = hugging_face(name, dim, **options)
    assert got.dtype == np.float64
    assert np.allclose(got, wanted, rtol=1e-12, atol=0)
    assert abs(factor - wanted_factor) <= BOUND["float64"]


@on_methods
@pytest.mark.parametrize("dim", [2, 4, 8])
def test_columns_give_the_same_numbers(column, name, options, dim):
    m = dim // 2
    short = {k: v[:m] if k in FACTORS else v for k, v in options.items()}
    got, factor = call(column, name, dim, **short)
    wanted, wanted_factor = call(REFERENCE, name, dim, **short)
    assert got.shape == (m,)
    assert np.allclose(got, wanted, rtol=1e-15, atol=0)
    assert factor == wanted_factor


@on_methods
def test_a_factor_of_one_changes_nothing(column, name, options):
    plain = REFERENCE.frequencies(8, base=500000.0 if name == "llama3" else 10000.0)
    ones = {k: [1.0] * 4 for k in FACTORS if k in options}
    still = {"length": 128} if name == "dynamic_ntk" else {}
    got, factor = call(column, name, 8, **options | {"factor": 1.0} | ones | still)
    assert np.array_equal(got, plain)
    assert factor == 1


widths = st.integers(2, 40).map(lambda m: 2 * m)
factors = st.floats(1, 100)


@given(widths, factors, st.floats(1.5, 1e7))
def test_the_larger_base_slows_the_last_pair_by_the_factor(column, dim, factor, base):
    got, _ = call(column, "ntk_aware", dim, base=base, factor=factor)
    plain = REFERENCE.frequencies(dim, base=base)
    assert got[0] == 1
    assert math.isclose(got[-1], plain[-1] / factor, rel_tol=1e-12)


@given(widths, factors, st.integers(0, 2048))
def test_within_the_trained_length_the_larger_base_is_the_base(column, dim, factor, length):
    options = {"factor": factor, "trained_length": 2048}
    call(column, "dynamic_ntk", dim, length=100_000, **options)
    got, _ = call(column, "dynamic_ntk", dim, length=length, **options)
    assert np.allclose(got, REFERENCE.frequencies(dim), rtol=4e-16, atol=0)


@given(factors, st.integers(1, 2**20), st.sampled_from(["yarn", "llama3"]), widths)
def test_blends_lie_between_plain_and_interpolated(column, factor, length, name, dim):
    got, attention = call(column, name, dim, factor=factor, trained_length=length, base=1e5)
    plain = REFERENCE.frequencies(dim, base=1e5)
    assert (plain / factor * (1 - 1e-15) <= got).all()
    assert (got <= plain * (1 + 1e-15)).all()
    assert attention >= 1


@pytest.mark.parametrize("length", [1, 6, 3_000_000])
def test_yarn_slows_all_pairs_or_none_where_training_was_very_short_or_long(column, length):
    got, _ = call(column, "yarn", 128, factor=4.0, trained_length=length)
    ratio = got / REFERENCE.frequencies(128)
    assert np.allclose(ratio[1:], 1 if length > 6 else 0.25, rtol=1e-12)


def test_interpolation_is_division_of_positions(column):
    x, positions = draw(240, 3, 8), np.array([3, 100, 1000])
    slowed = column.position_interpolation(8, factor=8.0)
    got = column.rotate(column.array(x), column.positions(positions), frequencies=slowed)
    assert error(column.numpy(got), REFERENCE.rotate(x, positions / 8)) <= BOUND["float64"]


CHANGES = {
    "position_interpolation": {"base": 9e3, "factor": 5.0},
    "ntk_aware": {"base": 9e3, "factor": 5.0},
    "dynamic_ntk": {"base": 9e3, "factor": 5.0, "length": 301, "trained_length": 129},
    "yarn": {
        "base": 2e3, "factor": 5.0, "trained_length": 900, "beta_fast": 2.0, "beta_slow": 0.01,
        "truncate": False,
    },
    "longrope": {
        "base": 9e3, "factor": 5.0, "length": 100, "trained_length": 300, "long_factors": SHORT
    },
    "llama3": {
        "base": 9e4, "factor": 5.0, "trained_length": 4000, "low_frequency_factor": 0.5,
        "high_frequency_factor": 5.0,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change"),
    [(name, {k: v}) for name, changes in CHANGES.items() for k, v in changes.items()],
)
def test_each_parameter_changes_the_output(column, name, change):
    before = call(column, name, 8, **METHODS[name])
    after = call(column, name, 8, **METHODS[name] | change)
    wider = call(column, name, 16, **{
        k: 2 * v if k in FACTORS else v for k, v in METHODS[name].items()
    })[0]  # fmt: skip
    assert not np.array_equal(after[0], before[0]) or after[1] != before[1]
    assert not np.array_equal(wider[:4], before[0])


def test_short_factors_change_short_texts(column):
    options = METHODS["longrope"] | {"length": 100}
    got, _ = call(column, "longrope", 8, **options | {"short_factors": LONG})
    assert not np.array_equal(got, call(column, "longrope", 8, **options)[0])


def test_factors_may_be_arrays(column):
    options = METHODS["longrope"]
    arrays = {k: column.array(np.array(options[k])) for k in FACTORS}
    got, _ = call(column, "longrope", 8, **options | arrays)
    assert np.array_equal(got, call(column, "longrope", 8, **options)[0])


@on_methods
def test_rotations_and_scores_take_the_result(twin, name, options):
    x = draw(241, 4, 8)
    result = getattr(twin, name)(8, **options)
    frequencies, factor = result if isinstance(result, tuple) else (result, 1.0)
    got = twin.rotate(
        twin.array(x), frequencies=frequencies, attention_factor=factor, layout="half"
    )
    wanted, factor = call(REFERENCE, name, 8, **options)
    want = REFERENCE.rotate(x, frequencies=wanted, attention_factor=factor, layout="half")
    assert error(twin.numpy(got), want) <= BOUND[twin.dtype]


@on_methods
def test_torch_makes_frequencies_of_any_dtype_anywhere(torch_column, name, options):
    result = getattr(torch_column, name)(8, **options, dtype=torch.float32, device="meta")
    frequencies = result[0] if isinstance(result, tuple) else result
    assert frequencies.dtype == torch.float32
    assert frequencies.device.type == "meta"


def test_torch_and_jax_compute_in_float64_in_every_mode():
    for twin in TWINS:
        with twin.mode():
            assert np.asarray(twin.llama3(8)).dtype == np.float64
