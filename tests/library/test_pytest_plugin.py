"""The plugin for pytest: what it collects, what it says of a failure, and that it costs nothing."""

import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import posattn
from posattn import pytest_plugin
from posattn.conformance import check, conforms
from posattn.reference import to_half

pytest_plugins = ["pytester"]

MODEL = """
    import numpy as np

    calls = []

    def rope(x, positions, base=10000.0):
        calls.append(x.shape)
        half = x.shape[-1] // 2
        angles = positions[..., None] * base ** (-np.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def crash(x):
        raise RuntimeError("boom")
"""
TESTS = """
    import pytest
    from posattn.conformance import conforms
    from model import calls, crash, rope

    test_rope = conforms(rope, "rotary", only="positions")
"""
made = {}
exec(textwrap.dedent(MODEL), made)
FOUND = check(made["rope"], "rotary", framework="numpy", only="positions")
FAILED = len(FOUND.failures)  # as many as the vectors have by now
BESIDE = ("-p", "no:posattn", "-p", "no:cacheprovider", "-p", "no:randomly")


@pytest.fixture
def project(pytester, unchecked):
    """Write a model and tests of it, and run them here with the plugin."""
    pytester.makepyfile(model=MODEL)

    def run(tests, *options, without=BESIDE):
        pytester.makepyfile(test_model=tests)
        return pytester.runpytest_inprocess(*without, *options, plugins=[pytest_plugin])

    return run


def test_each_case_is_a_test_that_tells_what_is_wrong_and_why(project):
    done = project(TESTS, "-k", "0 and not layout", "-rf")
    done.stdout.fnmatch_lines(
        [
            "*_ test_rope?positions 0 to 4? _*",
            "error 1.5 at ?1, 1, 4?: expected -0.00687489, got 1.52517",
            "likely cause (*): The other layout: *",
            "  seen in huggingface/transformers #25199, *",
            "FAILED test_model.py::test_rope?positions 0 to 4? - *",
        ]
    )
    assert "Traceback" not in done.stdout.str()
    assert "full-trace" not in done.stdout.str()


def test_cases_that_do_not_fit_are_skipped_at_the_line_of_the_test(project):
    done = project(TESTS, "-rs", "-v")
    done.stdout.fnmatch_lines(["SKIPPED ?*? test_model.py:5: rope has no parameter layout"])
    assert "<-" not in done.stdout.str()
    outcomes = done.parseoutcomes()
    assert outcomes["skipped"]
    assert outcomes["failed"] == FAILED


def test_all_cases_run_once_whichever_is_selected(project):
    counted = TESTS + f"\n    def test_calls(): assert len(calls) == {FAILED}\n"
    outcomes = project(counted).parseoutcomes()
    assert (outcomes["failed"], outcomes["passed"]) == (FAILED, 1)
    one = "test_model.py::test_rope[positions 0 to 4]"
    done = project(counted, one, "test_model.py::test_calls")
    done.assert_outcomes(failed=1, passed=1)


def test_collecting_runs_nothing(project, pytester):
    loud = """
        from posattn.conformance import conforms

        def convert(x):
            open("called", "w").close()
            return x

        test_convert = conforms(convert, "to_half", framework="numpy")
    """
    called = pytester.path / "called"
    done = project(loud, "--collect-only", "-q")
    done.stdout.fnmatch_lines(["test_model.py::test_convert?two columns?"])
    assert (done.ret, called.exists()) == (0, False)
    project(loud, "-k", "two")
    assert called.exists()


def test_a_check_that_two_files_have_is_collected_in_both(project, pytester):
    pytester.makepyfile(test_again="from test_model import test_rope")
    done = project(TESTS, "-k", "test_rope and 4 and not layout and not partial")
    done.assert_outcomes(failed=2)


def test_marks_and_names_hold_for_every_case(project):
    done = project(
        TESTS
        + """
    test_marked = pytest.mark.xfail(conforms(crash, "to_half"))
    not_a_test = conforms(crash, "lost")
    test_right = conforms(lambda x: x, "to_half", framework="numpy", only="two")

    class TestModel:
        test_crash = conforms(crash, "to_half", only="six columns")
    """,
        "-k",
        "not test_rope",
    )
    done.assert_outcomes(xfailed=4, failed=1, passed=1)
    done.stdout.fnmatch_lines(
        [
            "* TestModel.test_crash?six columns? *",
            "it raises RuntimeError: boom",
            '  at model.py:*, in crash: raise RuntimeError("boom")',
        ]
    )


def test_a_case_that_is_expected_to_fail_is_marked(project, pytester):
    line = """
    from posattn.conformance import conforms
    from model import rope
    test_it = conforms(rope, "rotary", expected_failures="known.txt", STRICT)
    """
    known = "rotary: positions 0 to 4\nrotary: layout half, decoding: one token\n"
    pytester.path.joinpath("known.txt").write_text(known)
    only = "settings={'layout': 'half'}, only='decoding: one token'"
    test = line.replace("STRICT", only)
    project(test).assert_outcomes(passed=1, xpassed=1, skipped=2)
    done = project(test.replace("only=", "strict=True, only="))
    done.assert_outcomes(passed=1, failed=1, skipped=2)
    done = project(line.replace("STRICT", "only='ns 0 to 4', settings={}"), "-rx")
    done.assert_outcomes(xfailed=1, skipped=3)
    done.stdout.fnmatch_lines(["XFAIL *positions 0 to 4? - named in *known.txt"])


def test_gradients_belong_to_their_case(project):
    done = project(
        """
        import torch
        from posattn.conformance import conforms
        from posattn.torch import masked_softmax

        def softmax(scores, mask=None):
            made = masked_softmax(scores, mask)
            return made.detach() + 0 * made

        test_softmax = conforms(
            softmax, "masked_softmax", only="no mask", framework="torch", gradients=True
        )
        """
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["error *: expected *, got 0"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'rotry'", "test_it: scheme must be one of * got 'rotry'; did you mean rotary?"),
        ("'rotary', only='lost'", "test_it: only must be part of a * got 'lost'"),
    ],
)
def test_what_cannot_be_checked_is_one_line(arguments, message, project):
    done = project(
        f"""
        from posattn.conformance import conforms
        from model import rope
        test_it = conforms(rope, {arguments})
        """
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(
        ["*_ ERROR collecting test_model.py _*", message, "=*"], consecutive=True
    )


def test_no_case_that_fits_is_a_failure_and_not_all_skipped(project):
    done = project(
        """
        from posattn.conformance import conforms
        from model import rope
        test_yarn = conforms(rope, "yarn")
        """
    )
    assert set(done.parseoutcomes()) <= {"failed"}
    done.stdout.fnmatch_lines(["no case of yarn can be run, since rope has no parameter *"])


def test_without_the_plugin_it_is_one_test_of_all(pytester):
    pytester.makepyfile(model=MODEL)
    pytester.makepyfile(test_model=TESTS)
    done = pytester.runpytest_inprocess(*BESIDE)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [f"*rope as rotary, numpy float64: {FAILED} of {FAILED} cases fail*"]
    )
    conforms(to_half, "to_half")()
    with pytest.raises(TypeError, match="unexpected keyword argument 'setting'"):
        conforms(to_half, "to_half", setting={})


def test_the_entry_point_is_the_plugin():
    data = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))
    (entry,) = data["project"]["entry-points"]["pytest11"].items()
    assert entry == ("posattn", pytest_plugin.__name__)
    assert "no:posattn" in data["tool"]["pytest"]["ini_options"]["addopts"]


def test_the_plugin_imports_nothing_that_pytest_has_not():
    code = "import pytest, sys; had = set(sys.modules); import posattn.pytest_plugin; "
    code += "print(*(set(sys.modules) - had))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {posattn.__name__, pytest_plugin.__name__}
