"""How fast the library is, and how exact: claims that a new record could break."""

import json
from fractions import Fraction

import numpy as np
import pytest
import torch

from posattn.reference import t5_bucket
from posattn.torch import alibi_slopes, rotate
from tests.nightly.benchmarks import records
from tests.pages.reading import DOCS

MACHINE = next(each for each in records.machines() if each["device"] == "cpu")
CASES = MACHINE["cases"]
RECORD = json.loads((DOCS / "_records" / "numerics.json").read_text("utf-8"))["cases"]
HALF = ("bfloat16", "float16")
PAIR = 10000 ** (-2 / 64)  # the frequency of the second pair
MILLION = 1_000_000


def errors(name, dtype, who="PyTorch"):
    """The largest errors by length: ours, and those of the other code."""
    at = RECORD[name]["errors"].values()
    return np.array([known[dtype][who] for known in at], dtype=float).T


def ratio(case, other):
    """Our time, divided by theirs: the median over the rounds."""
    return CASES[case]["ratio"][other][1]


def memory(framework, scheme, whose):
    """Bytes from the shortest text to the longest, relative to inputs and output."""
    start = f"memory/{framework}, {scheme}, n = "
    lengths = sorted(int(name.removeprefix(start)) for name in CASES if start in name)
    medians = [CASES[f"{start}{n}"]["median"] for n in lengths]
    return np.array(
        [(median[whose] or np.nan) / median["inputs and output"] for median in medians]
    )


def test_eq_unit_last_place():
    r"""$$ u(s) = 2^{e - t + 1} . $$"""
    for digits, dtype in ((53, np.float64), (24, np.float32), (11, np.float16)):
        for s in (562.34, 0.018034, 1.0, 0.999):
            e = np.floor(np.log2(dtype(s)))
            assert np.spacing(dtype(s)) == 2.0 ** (e - digits + 1)
    for e in (9, 11):
        numbers = torch.linspace(2**e, 2**e + 64, 513).bfloat16().unique()
        assert set(numbers.diff().tolist()) == {2.0 ** (e - 8 + 1)}


def test_eq_far_enough():
    r"""$$ p\,\omega \leq 2^{53} \cdot 2^{-25} = 2^{28} , $$"""

    def lost(positions, omega):
        return max(abs(Fraction(float(p) * omega) - p * Fraction(omega)) for p in positions)

    omega = float(np.nextafter(1, 0))
    assert lost(range(2**28 - 64, 2**28), omega) <= 2**-25
    assert lost(range(2**30, 2**30 + 64), omega) > 2**-25
    assert np.spacing(np.float32(0.75)) / 2 == 2**-25


def test_binary_neighbors_by_hand():
    angle = np.float32(MILLION * PAIR)
    assert round(angle, -4) == 750_000
    assert np.nextafter(angle, np.float32(np.inf)) - angle == 1 / 16
    assert torch.linspace(560, 564, 101).bfloat16().unique().tolist() == [560, 564]
    assert torch.tensor([4095]).bfloat16() == 4096


def test_errors_of_angles_double_with_the_position():
    worst = []
    for k in (18, 19):
        p = np.arange(2**k, 2 ** (k + 1), dtype=np.float32)
        omega = np.float32(PAIR)
        lost = abs((p * omega).astype(float) - p.astype(float) * float(omega))
        assert np.all(lost <= p * omega * 2.0**-24)
        worst.append(lost.max())
    assert 1.9 < worst[1] / worst[0] < 2.1


def test_the_library_rotates_exactly_at_a_million():
    rotated = rotate(torch.eye(64)[2:3], torch.tensor([MILLION]))[0, 2]
    right, usual = np.cos(MILLION * PAIR), np.cos(np.float32(MILLION * PAIR))
    assert abs(rotated.item() - right) < 2**-24
    assert abs(usual - right) > 0.01


def test_float32_angles_matter_at_a_million_only(page):
    coarse, rounded = map(np.array, page.torch.typical.values())
    assert coarse[0] < coarse[1] < rounded[1] / 10
    assert coarse[2] > rounded[2]
    assert np.allclose(rounded, rounded[2], rtol=0.05)
    assert 16 < coarse[2] / coarse[1] < 64


def test_rotation_costs_half_a_unit_at_any_length():
    names = ("rotate", "rotate, YaRN", "rotate, Llama 3", "rotate, NTK-aware")
    for name in (*names, "rotate_axes, M-RoPE"):
        for who in ("PyTorch", "JAX"):
            assert np.all([errors(name, dtype, who)[0] == 0.5 for dtype in HALF])
            assert min(errors(name, "float32", who)[0]) > 1
            assert max(errors(name, "float32", who)[0]) < 5


def test_errors_of_the_usual_code_grow():
    single, half = (errors("rotate", dtype, "JAX")[1] for dtype in ("float32", "bfloat16"))
    assert np.all((single[1:] / single[:-1] > 16) & (single[1:] / single[:-1] < 64))
    assert 1.25 < half[0] < half[1] < 2
    assert half[2] == pytest.approx(single[2] / 2**16, rel=0.1)
    sines = errors("sinusoidal_encoding", "float32")[1]
    assert sines[2] == pytest.approx(errors("rotate", "float32")[1][2], rel=0.1)


def test_float64_loses_nearly_a_million_units():
    ours = errors("rotate", "float64", "NumPy")[0][-1]
    assert 750_000 < ours < MILLION
    assert round(-np.log10(ours * 2.0**-53)) == 10


def test_errors_of_biases_hardly_grow():
    for name in ("ALiBi", "T5Bias", "KerpleLog", "KerplePower", "FIRE"):
        for who in ("PyTorch", "JAX"):
            for dtype in ("float32", *HALF):
                ours = errors(name, dtype, who)[0]
                known = ours[np.isfinite(ours)]
                assert known[-1] <= max(0.5 if dtype in HALF else 0, 2 * known[0])
                assert dtype not in HALF or max(known) <= 0.5
    assert np.isnan(errors("ALiBi", "float16")[0][2])  # an overflow
    assert np.array_equal(alibi_slopes(8), 0.5 ** np.arange(1, 9))


def test_a_logarithm_finds_the_usual_buckets_too():
    distance = torch.arange(2**20)
    by_log = 16 + (torch.log(distance.float() / 16) / np.log(8) * 16).clamp(0, 15).int()
    by_log = torch.where(distance < 16, distance, by_log).numpy()
    assert np.array_equal(by_log, t5_bucket(-np.arange(2**20), bidirectional=False))


def test_softmax_and_attention_lose_with_the_length():
    ours, theirs = errors("masked_softmax", "float32")
    assert max(ours) < 2 < 200 < theirs[2]
    assert theirs[2] > 10 * theirs[1] > 100 * theirs[0]
    for who in ("PyTorch", "JAX"):
        ours, theirs = errors("scaled_dot_product_attention", "float32", who)
        assert ours[2] > ours[0]
        assert who == "JAX" or np.array_equal(ours, theirs)
        causal, _ = errors("scaled_dot_product_attention, causal, ALiBi", "float32", who)
        assert causal[-1] < 1.5 * causal[0]
    ours, theirs = errors("scaled_dot_product_attention", "float64", "JAX")
    assert min(theirs) > 2**28


def test_our_memory_grows_no_faster_than_the_length():
    for framework in ("PyTorch", "JAX"):
        for scheme in ("no position", "ALiBi"):
            ours = memory(framework, scheme, "ours")
            assert len(ours) > 2
            assert min(ours) > 0.99
            assert ours[-1] <= ours[0]


def test_written_scores_double_the_ratio():
    theirs = memory("JAX", "no position", "jax.nn, no position")
    known = theirs[np.isfinite(theirs)]
    assert 2 < len(known) < len(theirs)  # until it needs too much
    assert np.allclose(known[1:] / known[:-1], 2, atol=0.2)


def test_positions_are_nearly_free():
    schemes = ("rotary", "ALiBi", "T5")
    costs = [ratio(f"attention/PyTorch, {s}", "SDPA, no position") for s in schemes]
    assert costs == sorted(costs)
    assert max(costs) < 1.3
    for scheme in schemes:
        assert str(8192) in CASES[f"attention/PyTorch, {scheme}"]["setting"]


def test_a_compiler_surely_helps_halves_only():
    cases = [f"rotate/PyTorch, {layout}" for layout in ("half", "interleaved")]
    for case, apart in zip(cases, (True, False), strict=True):
        low, middle, _ = CASES[case]["ratio"]["a copy"]
        _, compiled, high = CASES[f"{case}, compiled"]["ratio"]["a copy"]
        assert 1.5 < min(middle, compiled) < max(middle, compiled) < 4
        assert (high < low) == apart
    assert ratio(cases[0], "transformers") < 1


def test_errors_of_transformers_are_those_of_float32_angles():
    omega, positions = 10000.0 ** (-np.arange(0, 64, 2) / 64), np.arange(2048)[:, None]
    angles = positions.astype("float32") * omega.astype("float32")
    lost = abs(np.cos(angles.astype(float)) - np.cos(positions * omega)).max()
    errors = CASES["rotate/PyTorch, half"]["error"]
    assert 0.5 < errors["transformers"] / lost < 2
    assert errors["ours"] < lost / 100


def test_layers_keep_up_and_decoding_loses():
    plain = "layer/PyTorch, no position"
    assert ratio(plain, "PyTorch's layer") < 1.1
    assert ratio(f"{plain}, with gradients", "PyTorch's layer") < 1.1
    assert ratio("layer/PyTorch, rotary", "PyTorch's layer, no position") < 1.05
    for other in ("Flax NNX", "Equinox"):
        assert ratio("layer/JAX, no position", other) < 1
    for cache in ("DynamicCache", "StaticCache"):
        assert ratio("decoding/PyTorch", f"transformers, {cache}") > 1
    assert ratio("decoding/PyTorch", "reading all again") < 1 / 10
    assert ratio("decoding/JAX", "reading all again") < 1


def test_one_machine_without_a_gpu_was_measured():
    found = [(each["device"], each["machine"]["cores"]) for each in records.machines()]
    assert found == [("cpu", 2)]
    assert "+cpu" in MACHINE["machine"]["versions"]["torch"]
