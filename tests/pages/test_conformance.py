"""Check your own implementation."""

import jax.numpy as jnp
import numpy as np
import pytest

from posattn.conformance import check, gallery, load, planned
from posattn.conformance.faults import FAULTS
from posattn.reference import rotate

ROTARY = {case["name"]: case for case in load("rotary")["cases"]}


def names(runs):
    """The names of their cases."""
    return [run.case["name"] for run in runs]


def passed(report):
    """The names of the cases that pass."""
    return names(run for run in report.runs if not run.failed)


def test_eq_conformance():
    r"""$$
    \epsilon = \frac{\max_a |\hat y_a - y_a|}{\max(1, \max_a |y_a|)}
    $$
    """
    options = {"framework": "numpy", "dtype": "float32", "tolerance": "exact"}
    report = check(gallery.rotary_in_float32, "rotary", **options)
    failed = {}
    for run in report.runs:
        y_hat, y = np.float64(run.got), run.case["expected"]
        if y.size:
            for unit in (100, 1):  # the largest output is above 1, or below
                epsilon = max(abs(y_hat - y).flat) / max(unit, max(abs(y).flat))
                gap = run.gap(y_hat / unit, y / unit).max()
                assert gap == pytest.approx(epsilon, rel=1e-6)
            assert run.failed == (epsilon > run.case["tolerance"]["float32"])
            failed[run.case["name"]] = run.failed
    assert [name for name in failed if failed[name]] == ["large positions, up to 2**20"]


def test_by_hand_one_pair():
    query, position = np.array([[1.0, 0.0]]), np.array([1])
    (right,), (wrong,) = (f(query, position) for f in (rotate, gallery.rotary_clockwise))
    assert np.allclose(right, [np.cos(1), np.sin(1)])
    assert right.round(2).tolist() == [0.54, 0.84]
    assert wrong.round(2).tolist() == [0.54, -0.84]
    assert (right - wrong).max() == pytest.approx(1.68, abs=0.005)
    assert np.array_equal(gallery.rotary_by_halves(query, position)[0], right)
    case = ROTARY["positions 0 to 4"]
    far = gallery.rotary_clockwise(*case["arguments"]) - case["expected"]
    epsilon = abs(far).max() / max(1, abs(case["expected"]).max())
    assert epsilon == pytest.approx(1.32, abs=0.005)
    assert pytest.approx(3.73, abs=0.005) == 2.22 + 1.51


def test_by_hand_tolerances():
    tolerance = ROTARY["positions 0 to 4"]["tolerance"]
    assert tolerance["float32"] == 96 * np.spacing(np.float32(1)) == 192 * 2.0**-24
    assert tolerance["float16"] == 4 * np.spacing(np.float16(1))
    assert tolerance["bfloat16"] == 4 * 2.0**-7
    first = [n for n in range(2050) if int(np.float16(n)) != n]
    assert first == [2049]
    assert [n for n in range(258) if int(jnp.bfloat16(n)) != n] == [257]


def test_the_vectors_reach_far():
    arguments = [case["arguments"] for case in ROTARY.values()]
    positions = [given[1] for given in arguments if len(given) > 1]
    assert max(found.max(initial=0) for found in positions) == 2**20
    assert any((np.float16(found) != found).any() for found in positions[:-1])
    assert len({case["keywords"].get("base", 10000.0) for case in ROTARY.values()}) == 2


def test_three_kinds_of_fault_come_back():
    seen = {fault.sentence for fault in FAULTS if fault.seen}
    kinds = [sentence.partition(":")[0] for sentence in seen]
    often = {kind for kind in kinds if kinds.count(kind) >= 3}
    assert often == {"A stale cache", "Layouts are mixed", "Low-precision angles"}


def test_positions_are_never_rounded():
    given = []

    def noting(*arguments):
        given.append(arguments)
        return rotate(*arguments)

    check(noting, "rotary", framework="numpy", dtype="float16")
    assert {x.dtype for x, *_ in given} == {np.dtype("float16")}
    dtypes = {str(other.dtype) for _, *rest in given for other in rest}
    assert dtypes == {"int64", "float64"}


def test_a_base_that_was_forgotten_is_named(page):
    mine, vectors = page.torch.my_attention, planned(page.torch.config, layer=1)
    right = check(lambda *given: mine(*given, base=5e5), vectors, framework="numpy")
    assert right.runs
    assert not right.failures
    wrong = check(mine, vectors, framework="numpy")
    assert wrong.causes[0].sentence == "The base is 10000: the configuration says 500000."
    errors = {
        run.case["name"]: abs(run.got - run.case["expected"]).max() for run in wrong.runs
    }
    assert (len(wrong.failures), len(errors)) == (7, 8)  # far below zero, one key takes all
    failed = {run.case["name"]: errors[run.case["name"]] for run in wrong.failures}
    assert min(failed, key=failed.get) == "decoding: one token"
    assert max(errors, key=errors.get) == "far positions"


def test_a_partial_rotation_runs_fifteen_more_cases(page):
    def partial(x, positions, base=10000.0, rotary_dim=None):
        return page.torch.my_rope(x, positions, base)

    options = {"framework": "numpy"}
    fewer, more = (check(f, "rotary", **options) for f in (page.torch.my_rope, partial))
    assert len(more.runs) - len(fewer.runs) == 15


def test_float32_angles_may_be_allowed():
    options = {"framework": "numpy", "tolerance": "float32-angles"}
    report = check(gallery.rotary_in_float32, "rotary", **options)
    assert not report.failures
    (far,) = (run.case for run in report.runs if "large" in run.case["name"])
    plain = ROTARY[far["name"]]
    grown = far["tolerance"]["float64"] - plain["tolerance"]["float64"]
    assert grown == pytest.approx(2.0**-23 * plain["arguments"][1].max())
    half = check(gallery.rotary_in_float16, "rotary", **options)
    assert (len(half.failures), len(half.runs)) == (15, 17)


def test_a_stale_cache_needs_more_than_one_call():
    only = "positions 0 to 4"
    alone = check(gallery.CacheByWidth(), "rotary", framework="numpy", only=only)
    assert passed(alone) == names(alone.runs) != []
    row = check(gallery.CacheByWidth(), "rotary", framework="numpy")
    first, *later = (run.case for run in row.runs)
    assert (first["keywords"]["base"], first["arguments"][0].shape[-1]) == (500, 8)
    stale = [
        case["name"]
        for case in later
        if case["keywords"].get("base") != 500
        and case["arguments"][0].shape[-1] == 8
        and case["arguments"][0].size
    ]
    assert stale == names(row.failures)
    assert only in stale
    assert len(stale) == 11


def test_counting_from_0_fails_most_cases():
    report = check(gallery.rotary_from_zero, "rotary", framework="numpy")
    from_zero = [
        run.case["name"]
        for run in report.runs
        if all(
            (positions == np.arange(run.case["arguments"][0].shape[-2])).all()
            for positions in run.case["arguments"][1:]
        )
    ]
    assert from_zero == passed(report)
    assert len(from_zero) < len(report.runs) / 2
    fail = names(report.failures)
    assert {"left padding: positions per example", "decoding: one token"} <= {*fail}


def test_a_wrong_layout_fails_nearly_every_case():
    report = check(gallery.rotary_by_halves, "rotary", framework="numpy")
    assert {*passed(report)} == {"a pair alone", "no tokens"}
