"""What a user asks of a check: cases to leave out, tolerances, and that nothing is skipped."""

import numpy as np
import pytest

from posattn.conformance import UsageError, assert_conforms, check, gallery, load, names
from posattn.conformance.checker import Options, select
from posattn.conformance.generate import TOLERANCE
from posattn.conformance.vectors import ALSO
from posattn.reference import rotate, sinusoidal_encoding, t5_bucket

NAMES = [case["name"] for case in load("rotary")["cases"]]
FLOAT32_ANGLES, EXACT = "float32-angles", "exact"


def half(x, positions=None, *, base=10000.0, layout="half"):
    """A function without partial rotation."""
    return rotate(x, positions, base=base, layout=layout)


def single(x, positions=None, *, base=10000.0):
    """A function whose angles are float32, as everybody's."""
    where = np.arange(x.shape[-2]) if positions is None else positions
    return gallery.rotary_in_float32(x, where, base=base)


@pytest.mark.parametrize("skip", ["layout", ("layout", "partial")])
def test_cases_are_left_out_by_their_names(skip):
    report = check(half, "rotary", framework="numpy", skip=skip, settings={})
    words = [skip] if isinstance(skip, str) else skip
    away = [name for name in NAMES if any(word in name for word in words)]
    assert report.left_out == report.to_dict()["left_out"] == away
    told = f"{len(report.skipped)} skipped, {len(away)} left out"
    assert f"all {len(report.runs)} pass, {told}" in str(report)


def test_cases_are_left_out_by_their_positions():
    options = {"framework": "numpy", "max_position": 5}
    assert check(sinusoidal_encoding, "sinusoidal", **options).left_out == [
        "columns 6 to 9 of 60 positions",
        "another base",
        "the first base again",
        "large positions, up to 2**20",
        "positions that bfloat16 and float16 cannot hold",
        "positions per example",
        "fractions and negative positions",
        "beyond a table of 1000",
        "large positions and an odd width",
    ]
    options["max_position"] = 128  # which distances in the past reach
    assert check(t5_bucket, "t5_bucket", **options).left_out == [
        "large distances, up to 2**20",
        "causal, large distances, up to 2**20",
        "a maximal distance of 1024",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skip": ""}, "skip and max_position must leave a case"),
        ({"skip": 5}, "skip must be a string or several, got 5"),
        ({"skip": [5]}, "skip must be a string or several"),
        ({"max_position": -1}, "max_position must be a number of at least 0, got -1"),
        ({"max_position": "8"}, "max_position must be a number of at least 0, got '8'"),
        (
            {"tolerance": -1.0},
            "tolerance must be a number of at least 0, 'float32-angles' or 'exact'",
        ),
        ({"tolerance": np.inf}, "tolerance must be a number of at least 0"),
        ({"tolerance": True}, "tolerance must be a number of at least 0"),
        ({"tolerance": "loose"}, "tolerance must be a number of at least 0"),
        (
            {"tolerance": {"float8": 1.0}},
            "tolerance must be for one of float64, .* 'float8'",
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        check(half, "rotary", framework="numpy", **options)


def test_skipped_cases_are_told_and_can_be_failures():
    options = {"framework": "numpy", "settings": {"layout": "half"}}
    report = check(half, "rotary", **options)
    title = "half as rotary, numpy float64"
    assert str(report).startswith(
        f"{title}: all {len(report.runs)} pass, {len(report.skipped)} skipped\n"
    )
    partial = sum("rotary_dim" in reason for reason in report.skipped.values())
    assert f"{partial} skipped, since half has no parameter rotary_dim:" in str(report)
    assert f"\n  and {partial - 3} more" in str(report)
    assert report.passed()
    assert not report.passed(fail_on_skip=True)
    assert_conforms(half, "rotary", **options)
    with pytest.raises(AssertionError, match=r"all \d+ pass, \d+ skipped"):
        assert_conforms(half, "rotary", fail_on_skip=True, **options)


def test_failures_that_are_expected_are_no_failures(tmp_path):
    known = tmp_path / "known.txt"
    bad = check(gallery.rotary_by_halves, "rotary", framework="numpy")
    wrong = [run.case["name"] for run in bad.failures]
    right = next(run.case["name"] for run in bad.runs if not run.failed)

    def told(*lines, **options):
        known.write_text("".join(f"{line}\n" for line in lines))
        options |= {"framework": "numpy", "expected_failures": known}
        return check(gallery.rotary_by_halves, "rope", **options)

    all_but_one = [f"RoPE: {name}  # ours" for name in wrong[1:]]
    report = told("# of others", "alibi: any", "layer 3 of llama: a prompt", *all_but_one)
    assert [run.case["name"] for run in report.unexpected] == wrong[:1]
    assert not report.passed()
    assert str(report).count("\n" + wrong[0]) == 1
    assert f": 1 of {len(report.runs)} cases fail, {len(wrong) - 1} fail as " in str(report)
    assert "likely cause" in str(report)
    every = [f"rotary: {name}" for name in (*wrong, right)]
    report = told(*every)
    assert (report.passes, report.passed()) == ([right], True)
    assert f"passes, though it is expected to fail: {right}" in str(report)
    assert "likely cause" not in str(report)
    outcomes = {case["name"]: case["outcome"] for case in report.to_dict()["cases"]}
    assert [outcomes[name] for name in (wrong[0], right)] == ["xfailed", "xpassed"]
    assert not told(*every, strict=True).passed()
    assert told(*every[:-1], strict=True).passed()
    for line, said in (("rotary: lost", "a case"), ("rotry: lost", "a scheme.*'rotary'")):
        with pytest.raises(UsageError, match=f"known.txt, line 2: {said}"):
            told(every[0], line)
    with pytest.raises(UsageError, match="expected_failures cannot be read"):
        check(half, "rotary", expected_failures=tmp_path / "lost.txt")


def test_float32_angles_pass_within_their_own_tolerance():
    options = {"framework": "numpy", "dtype": "float32"}
    exact = check(single, "rotary", tolerance=EXACT, **options)
    assert [cause.name for cause in exact.causes] == ["float32_angles"]
    assert not check(single, "rotary", **options).failures
    assert check(single, "rotary", framework="numpy").failures  # in float64
    unturned = load("shaw")
    assert [c["tolerance"] for c in select(unturned, Options())[0]] == [
        c["tolerance"] for c in unturned["cases"]
    ]
    report = check(single, "rotary", tolerance=FLOAT32_ANGLES, **options)
    assert not report.failures
    assert report.title.endswith("float32, tolerance float32-angles")
    for wrong in (gallery.rotary_in_bfloat16, gallery.rotary_by_halves):
        assert check(wrong, "rotary", **options).failures


def test_a_tolerance_is_for_all_dtypes_or_for_one():
    def nearly(x, positions=None, *, base=10000.0):
        return rotate(x, positions, base=base) + 1e-6

    options = {"framework": "numpy", "only": "0 to 4"}
    for tolerance, passes in (
        (None, False),
        (1e-5, True),
        ({"float64": 1e-5}, True),
        ({"float32": 1e-5}, False),
    ):
        report = check(nearly, "rotary", tolerance=tolerance, **options)
        assert report.passed() == passes


def test_what_others_call_a_scheme_is_that_scheme():
    assert not set(ALSO) & set(names())
    assert set(ALSO.values()) <= set(names())
    assert load("RoPE")["scheme"] == "rotary"
    report = check(gallery.rotary_by_halves, "rope", framework="numpy")
    assert report.causes[0].name == "other_layout"
    for lost, near in (("rotry", "; did you mean rotary?"), (3, "$")):
        with pytest.raises(UsageError, match=rf"got {lost!r}{near}".replace("?", r"\?")):
            load(lost)


def test_a_case_that_raises_hides_no_cause():
    def sometimes(x, positions, *, base=10000.0):
        if x.ndim > 3 or np.max(positions, initial=0) > 7:
            raise IndexError("too many heads")
        return gallery.rotary_by_halves(x, positions, base=base)

    report = check(sometimes, "rotary", framework="numpy")
    (cause,) = report.causes
    assert cause.name == "other_layout"
    raised = [run for run in report.failures if isinstance(run.got, IndexError)]
    assert len(raised) > len(cause.runs) / 3
    assert cause.of == len(cause.runs) == len(report.failures) - len(raised)
    assert "it raises IndexError: too many heads" in str(report)


def test_a_known_limit_does_not_drown_the_rest():
    def without_base(x, positions=None, *, base=10000.0):
        return single(x, positions)

    options = {"framework": "numpy", "dtype": "float32", "tolerance": EXACT}
    report = check(without_base, "rotary", **options)
    first, second = report.causes
    assert (first.name, second.name) == ("base_ignored", "float32_angles")
    assert first.of == second.of == len(report.failures)
    assert all("another base" in run.case["name"] for run in first.runs)
    assert all("2**20" in run.case["name"] for run in second.runs)


def test_what_is_left_beyond_a_limit_needs_evidence():
    def also(x, positions=None, *, base=10000.0):
        made = single(x, positions, base=base)
        return made if base == 10000.0 else made + 1

    report = check(also, "rotary", framework="numpy", dtype="float32")
    assert report.causes == []
    assert "no known fault explains this" in str(report)


SEEN = np.tri(3, dtype=bool)
MASK = {
    "version": 1,
    "scheme": "some_mask",
    "results": "mask",
    "relative": False,
    "parameters": [{"name": "n", "data": False, "keyword": False}],
    "cases": [
        {"name": "three tokens", "arguments": [3], "keywords": {}, "expected": SEEN}
        | {"tolerance": TOLERANCE}
    ],
}


@pytest.mark.parametrize(
    ("mask", "right"),
    [
        (SEEN, True),
        (np.where(SEEN, 0, -np.inf), True),
        (np.where(SEEN, 0.0, -1e4), True),
        (~SEEN, False),
        (np.where(SEEN, 0, np.inf), False),
        (np.where(SEEN, 1.0, 0.0), False),
    ],
)
def test_a_mask_is_true_and_false_or_is_added(mask, right):
    report = check(lambda n: mask, MASK, framework="numpy")
    assert bool(report.failures) != right
