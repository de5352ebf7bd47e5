"""What a user asks of a check: cases to leave out, tolerances, and that nothing is skipped."""

import numpy as np
import pytest

from posattn.__main__ import main
from posattn.conformance import UsageError, assert_conforms, check, gallery, load, names
from posattn.conformance.checker import FLOAT32_ANGLES, place_of
from posattn.conformance.frameworks import read
from posattn.conformance.generate import TOLERANCE
from posattn.conformance.report import SHOWN
from posattn.conformance.vectors import ALSO
from posattn.conformance.worker import options_of
from posattn.reference import rotate

VECTORS = load("rotary")
NAMES = [case["name"] for case in VECTORS["cases"]]


def half(x, positions=None, *, base=10000.0, layout="half"):
    """A function without partial rotation."""
    return rotate(x, positions, base=base, layout=layout)


def single(x, positions=None, *, base=10000.0):
    """A function whose angles are float32, as everybody's."""
    where = np.arange(x.shape[-2]) if positions is None else positions
    return gallery.rotary_in_float32(x, where, base=base)


def test_vectors_may_be_given_themselves():
    ours = {**VECTORS, "scheme": "rotary", "cases": VECTORS["cases"][:3]}
    report = check(half, ours, framework="numpy")
    assert [run.case["name"] for run in report.runs] == NAMES[:3]
    assert report.title == "half as rotary, numpy float64"


@pytest.mark.parametrize("skip", ["layout", ("layout", "partial")])
def test_cases_are_left_out_by_their_names(skip):
    report = check(half, "rotary", framework="numpy", skip=skip, settings={})
    words = [skip] if isinstance(skip, str) else skip
    away = [name for name in NAMES if any(word in name for word in words)]
    assert report.left_out == away
    assert report.to_dict()["left_out"] == away
    told = (
        f"all {len(report.runs)} pass, {len(report.skipped)} skipped, {len(away)} left out"
    )
    assert told in str(report)


def test_cases_are_left_out_by_their_positions():
    report = check(half, "rotary", framework="numpy", max_position=41)
    far = {
        case["name"]
        for case in VECTORS["cases"]
        if np.max(np.abs(place_of(VECTORS, case))) > 41
    }
    assert set(report.left_out) == far
    assert "large positions, up to 2**20" in far
    assert "decoding: one token" not in far
    for options, message in (
        ({"skip": ""}, "skip and max_position must leave a case"),
        ({"skip": 5}, "skip must be a string or several, got 5"),
        ({"skip": [5]}, "skip must be a string or several"),
        ({"max_position": -1}, "max_position must be a number of at least 0, got -1"),
        ({"max_position": "8"}, "max_position must be a number of at least 0, got '8'"),
        ({"max_position": np.nan}, "max_position must be a number of at least 0, got nan"),
    ):
        with pytest.raises(UsageError, match=message):
            check(half, "rotary", framework="numpy", **options)


def test_a_length_and_a_distance_are_positions():
    for scheme, name in (("sinusoidal", "width 1"), ("t5_bucket", "a table of six tokens")):
        vectors = load(scheme)
        (case,) = [case for case in vectors["cases"] if case["name"] == name]
        assert place_of(vectors, case) in (3, 5)


def test_skipped_cases_are_told_and_can_be_failures():
    options = {"framework": "numpy", "settings": {"layout": "half"}}
    report = check(half, "rotary", **options)
    skips = len(report.skipped)
    assert str(report).startswith(
        f"half as rotary, numpy float64: all {len(report.runs)} pass, {skips} skipped\n"
    )
    partial = sum("rotary_dim" in reason for reason in report.skipped.values())
    assert f"{partial} skipped, since half has no parameter rotary_dim:" in str(report)
    assert f"\n  and {partial - SHOWN} more" in str(report)
    assert report.passed()
    assert not report.passed(fail_on_skip=True)
    assert_conforms(half, "rotary", **options)
    with pytest.raises(AssertionError, match=r"all \d+ pass, \d+ skipped"):
        assert_conforms(half, "rotary", fail_on_skip=True, **options)
    assert_conforms(
        rotate, "rotary", fail_on_skip=True, skip="partial, ", framework="numpy"
    )


def test_angles_in_float32_pass_within_their_own_tolerance():
    exact = check(single, "rotary", framework="numpy", dtype="float32")
    assert [c.name for c in exact.causes] == ["float32_angles"]
    report = check(
        single, "rotary", framework="numpy", dtype="float32", tolerance=FLOAT32_ANGLES
    )
    assert not report.failures
    assert report.title.endswith("float32, tolerance float32-angles")
    for wrong in (
        gallery.rotary_in_bfloat16,
        gallery.rotary_by_halves,
        gallery.rotary_from_zero,
    ):
        assert check(wrong, "rotary", framework="numpy", tolerance=FLOAT32_ANGLES).failures


def test_a_tolerance_is_for_all_dtypes_or_for_one():
    def nearly(x, positions=None, *, base=10000.0):
        return rotate(x, positions, base=base) + 1e-6

    options = {"framework": "numpy", "skip": "partial"}
    assert check(nearly, "rotary", **options).failures
    assert not check(nearly, "rotary", tolerance=1e-5, **options).failures
    assert not check(nearly, "rotary", tolerance={"float64": 1e-5}, **options).failures
    assert check(nearly, "rotary", tolerance={"float32": 1e-5}, **options).failures


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        (-1.0, "tolerance must be a number of at least 0 or 'float32-angles', got -1.0"),
        (np.inf, "tolerance must be a number of at least 0 or 'float32-angles', got inf"),
        (np.nan, "tolerance must be a number of at least 0 or 'float32-angles', got nan"),
        (True, "tolerance must be a number of at least 0 or 'float32-angles', got True"),
        (
            "loose",
            "tolerance must be a number of at least 0 or 'float32-angles', got 'loose'",
        ),
        ({"float8": 1.0}, "tolerance must be for one of float64, .* got 'float8'"),
    ],
)
def test_a_tolerance_is_a_number_or_the_name_of_one(tolerance, message):
    with pytest.raises(UsageError, match=message):
        check(half, "rotary", framework="numpy", tolerance=tolerance)


def test_tolerances_are_whole_units_in_the_last_place():
    for dtype in ("float32", "float16"):
        units = TOLERANCE[dtype] / np.finfo(dtype).eps
        assert units == round(units)
    assert TOLERANCE["bfloat16"] == 4 * 2.0**-7


@pytest.mark.parametrize("name", ALSO)
def test_what_others_call_a_scheme_suggests_it(name):
    with pytest.raises(UsageError, match=f"such as {ALSO[name]}, got {name!r}"):
        load(name)


def test_what_others_call_a_scheme_is_none():
    assert not set(ALSO) & set(names())


def test_a_case_that_raises_does_not_hide_the_cause_of_the_others():
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

    report = check(without_base, "rotary", framework="numpy", dtype="float32")
    first, second = report.causes
    assert (first.name, second.name) == ("base_ignored", "float32_angles")
    assert first.of == second.of == len(report.failures)
    assert all("another base" in run.case["name"] for run in first.runs)
    assert all("2**20" in run.case["name"] for run in second.runs)


def test_what_is_left_beyond_a_limit_is_not_named_without_evidence():
    def also(x, positions=None, *, base=10000.0):
        made = single(x, positions, base=base)
        return made if base == 10000.0 else made + 1

    report = check(also, "rotary", framework="numpy", dtype="float32")
    assert report.causes == []
    assert "no known fault explains this" in str(report)


MASK = {
    "version": 1,
    "scheme": "some_mask",
    "results": "mask",
    "relative": False,
    "parameters": [{"name": "n", "data": False, "keyword": False}],
    "cases": [
        {
            "name": "three tokens",
            "arguments": [3],
            "keywords": {},
            "expected": np.tri(3, dtype=bool),
            "tolerance": TOLERANCE,
        }
    ],
}
SEEN = np.tri(3, dtype=bool)
MASKS = {
    "True and False": (SEEN, True),
    "minus infinity": (np.where(SEEN, 0, -np.inf), True),
    "the lowest float32": (np.where(SEEN, 0, np.finfo(np.float32).min), True),
    "a large number": (np.where(SEEN, 0.0, -1e4), True),
    "True hides": (~SEEN, False),
    "added with the other sign": (np.where(SEEN, 0, np.inf), False),
    "zeros and ones": (np.where(SEEN, 1.0, 0.0), False),
}


@pytest.mark.parametrize(("mask", "right"), MASKS.values(), ids=MASKS)
def test_a_mask_is_true_and_false_or_is_added(mask, right):
    report = check(lambda n: mask, MASK, framework="numpy")
    assert bool(report.failures) != right
    assert right or "expected" in str(report)


def test_an_array_of_another_device_is_read_from_its_list():
    class Elsewhere:
        shape = (2, 1)

        def __array__(self, *_):
            raise TypeError("implicit conversion is not allowed")

        def tolist(self):
            return [[1.5], [2.5]]

    assert read(Elsewhere()).tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize(
    ("text", "value"), [(None, None), ("0.5", 0.5), ("float32-angles", "float32-angles")]
)
def test_a_tolerance_of_the_command_is_a_number_or_else_a_name(text, value):
    assert options_of({"tolerance": text}).tolerance == value


@pytest.mark.slow
def test_the_command_takes_them_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom posattn.conformance.gallery import rotary_in_float32\n"
        "def rope(x, positions, *, base=10000.0): return rotary_in_float32(x, positions, base=base)\n"
    )
    usual = "check", "mine.py:rope", "--scheme", "rotary", "--dtype", "float32"
    for options, code, told in (
        ([], 1, "cases fail"),
        (["--max-position", "5000"], 0, "left out"),
        (["--skip", "2**20", "--skip", "65537"], 0, "left out"),
        (["--tolerance", "float32-angles"], 0, "tolerance float32-angles: all"),
        (["--tolerance", "0.01"], 0, "tolerance 0.01: all"),
        (["--tolerance", "float32-angles", "--fail-on-skip"], 1, "skipped"),
    ):
        assert main([*usual, *options]) == code
        assert told in capsys.readouterr().out
    assert main([*usual, "--tolerance", "tight"]) == 2
    assert "tolerance must be a number" in capsys.readouterr().err
