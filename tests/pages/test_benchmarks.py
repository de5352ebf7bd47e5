"""The benchmarks: claims that a new record could break."""

import json

import numpy as np

from tests.nightly.benchmarks import records
from tests.pages.reading import DOCS

FILES = sorted((DOCS / "_records" / "benchmarks").glob("*.json"))
MACHINE = json.loads(FILES[0].read_text("utf-8"))
CASES = MACHINE["cases"]


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


def test_a_compiler_helps_halves_only():
    case = "rotate/PyTorch, {}"
    for layout in ("half", "interleaved"):
        plain = ratio(case.format(layout), "a copy")
        compiled = ratio(case.format(f"{layout}, compiled"), "a copy")
        assert min(plain, compiled) > 1.5
        assert max(plain, compiled) < 4
        assert compiled < plain if layout == "half" else compiled > plain
    assert ratio(case.format("half"), "transformers") < 1


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
    assert ratio("layer/JAX, no position", "ours in PyTorch") > 1
    for other in ("Flax NNX", "Equinox"):
        assert ratio("layer/JAX, no position", other) < 1
    for cache in ("DynamicCache", "StaticCache"):
        assert ratio("decoding/PyTorch", f"transformers, {cache}") > 1
    assert ratio("decoding/PyTorch", "reading all again") < 1 / 10
    assert ratio("decoding/JAX", "reading all again") < 1


def test_one_machine_without_a_gpu_was_measured():
    assert [path.stem.count("2-cores") for path in FILES] == [1]
    assert "+cpu" in MACHINE["machine"]["versions"]["torch"]
    assert np.mean([records.is_stale(case) for case in CASES.values()]) > 0.5
