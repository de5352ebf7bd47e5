"""The exercises that a reader writes: their stubs, and what `posattn grade` says of answers."""

import importlib
import inspect
import textwrap

import numpy as np
import pytest

from posattn import exercises, reference
from posattn.__main__ import main
from posattn.commands import grade
from posattn.conformance import UsageError, check, load
from posattn.exercises import EXERCISES

# the definition in our reference, and the keywords that make it the exercise
ANSWERS = {
    "masked_softmax": (reference.masked_softmax, {}),
    "attention": (reference.scaled_dot_product_attention, {}),
    "sinks": (reference.scaled_dot_product_attention, {}),
    "sinusoidal": (reference.sinusoidal_encoding, {}),
    "rotary": (reference.rotate, {}),
    "rotary_half": (reference.rotate, {"layout": "half"}),
    "weight_to_half": (reference.weight_to_half, {}),
    "alibi_slopes": (reference.alibi_slopes, {}),
    "t5_bucket": (reference.t5_bucket, {}),
    "ntk_aware": (reference.ntk_aware, {}),
}


def stub(name):
    """The function that a reader finds."""
    return getattr(importlib.import_module(f"posattn.exercises.{name}"), name)


def answer(name):
    """The reference, with the signature of the stub."""
    definition, fixed = ANSWERS[name]

    def written(*arguments, **keywords):
        return definition(*arguments, **keywords, **fixed)

    written.__signature__ = inspect.signature(stub(name))
    return written


def test_there_are_ten_and_each_has_a_stub():
    files = {path.stem for path in exercises.stub("rotary").parent.glob("[!_]*.py")}
    assert files == set(EXERCISES) == set(ANSWERS)
    assert len(EXERCISES) == 10


@pytest.mark.parametrize("name", EXERCISES)
def test_a_stub_is_numbered_in_order_and_not_written(name):
    module = importlib.import_module(f"posattn.exercises.{name}")
    number = list(EXERCISES).index(name) + 1
    assert module.__doc__.startswith(f"Exercise {number}: ")
    parameters = inspect.signature(stub(name)).parameters.values()
    with pytest.raises(NotImplementedError):
        stub(name)(
            *[None for p in parameters if p.kind is not p.KEYWORD_ONLY],
            **{p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY},
        )


@pytest.mark.parametrize("name", EXERCISES)
def test_the_reference_is_right_in_the_cases_of_an_exercise(name):
    exercise = EXERCISES[name]
    report = check(
        answer(name), exercise.scheme, settings=exercise.settings, framework="numpy"
    )
    assert not report.failures
    assert len(report.runs) > 4
    # the exercise asks for less than the scheme has: partial rotations, for example
    assert 2 * len(report.runs) > len(report.skipped)


@pytest.mark.parametrize("name", EXERCISES)
def test_a_stub_has_the_parameters_and_defaults_of_its_scheme(name):
    known = {p["name"]: p for p in load(EXERCISES[name].scheme)["parameters"]}
    for p in inspect.signature(stub(name)).parameters.values():
        assert p.name in known
        if p.default is not p.empty:
            assert p.default == known[p.name]["default"]


def test_numbers_in_the_stubs_are_right():
    weights = answer("masked_softmax")(
        np.array([[0.0, 0, 1]]), np.array([[True, True, False]])
    )
    assert weights.tolist() == [[0.5, 0.5, 0]]
    one = np.ones((1, 1, 1))
    assert answer("sinks")(0 * one, one, one, sinks=np.zeros(1)) == 0.5
    row = answer("sinusoidal")(np.array([1]), 4)[0]
    assert row.round(4).tolist() == [0.8415, 0.5403, 0.01, 1]
    rotated = answer("rotary")(np.array([[1.0, 0]]), np.array([1]))[0]
    assert rotated.round(4).tolist() == [0.5403, 0.8415]
    assert answer("weight_to_half")(np.arange(4.0), 1).tolist() == [0, 2, 1, 3]
    assert answer("alibi_slopes")(3).tolist() == [1 / 16, 1 / 256, 1 / 4]
    assert np.allclose(answer("ntk_aware")(4, factor=4.0), [1, 0.0025])


def run(capsys, *arguments):
    """What a command prints, its errors, and its exit code."""
    code = main(list(map(str, arguments)))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_exercises_are_listed(capsys):
    code, out, _ = run(capsys, "exercises")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:10]] == list(EXERCISES)
    assert "a softmax with a mask." in out.splitlines()[0]


def test_stubs_are_written_once(tmp_path, capsys):
    folder = tmp_path / "mine"
    assert run(capsys, "exercises", folder)[0] == 0
    assert {path.stem for path in folder.iterdir()} == set(EXERCISES)
    (folder / "rotary.py").write_text("mine")
    for name in set(EXERCISES) - {"rotary"}:
        (folder / f"{name}.py").unlink()
    code, out, err = run(capsys, "exercises", folder)
    assert (code, out) == (2, "")
    assert "rotary.py is there already" in err
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]


def written(folder, name, body):
    """A file of a reader's."""
    folder.joinpath(name).write_text("import numpy as np\n" + textwrap.dedent(body))
    return folder / name


RIGHT = """
    def alibi_slopes(n):
        power = 2 ** int(np.log2(n))
        slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
        more = 2.0 ** (-8 * np.arange(1, 2 * power + 1) / (2 * power))
        return np.concatenate([slopes, more[::2][: n - power]])
"""
OF_POWERS = """
    def alibi_slopes(n):
        return 2.0 ** (-8 * np.arange(1, n + 1) / n)
"""


@pytest.mark.slow
def test_answers_are_graded_from_a_file(tmp_path, capsys):
    path = written(tmp_path, "mine.py", RIGHT)
    code, out, _ = run(capsys, "grade", path)
    assert (code, out) == (0, "alibi_slopes: right in all 11 cases\n")


@pytest.mark.slow
def test_a_wrong_answer_gets_its_first_wrong_case_and_a_hint(tmp_path, capsys):
    path = written(tmp_path, "mine.py", OF_POWERS)
    code, out, _ = run(capsys, "grade", path)
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "alibi_slopes: right in 5 of 11 cases"
    assert lines[1] == "  first wrong case: 3 heads"
    assert lines[2] == "  most wrong is entry [1]: 0.024803 instead of 0.0039062"
    assert lines[3].startswith("  hint: ")


@pytest.mark.slow
def test_stubs_are_not_written_yet(tmp_path, capsys):
    run(capsys, "exercises", tmp_path)
    for path in tmp_path.iterdir():
        if path.stem not in ("rotary", "sinks"):
            path.unlink()
    code, out, _ = run(capsys, "grade", tmp_path)
    assert code == 1
    assert out.splitlines() == [
        "rotary: not written yet",
        "sinks: not written yet",
        "",
        "0 of 2 exercises are right",
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def other(x): pass", "files must have a function named as an exercise, one of "),
        ("def (", "must be a Python file: "),
    ],
    ids=["no exercise", "no Python"],
)
def test_what_cannot_be_graded_is_one_line_and_exit_code_2(body, told, tmp_path, capsys):
    code, out, err = run(capsys, "grade", written(tmp_path, "mine.py", body))
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there_is_named(capsys):
    assert (
        "files must be Python files or folders, got lost.py"
        in run(capsys, "grade", "lost.py")[2]
    )


CASES = {
    "raises": (
        {"raised": "IndexError: list", "where": "mine.py:3, in f"},
        "  at mine.py:3",
    ),
    "raises nowhere": (
        {"raised": "IndexError: list", "where": ""},
        "  it raises IndexError",
    ),
    "complains": ({"complaints": ["returns shape (3,)"]}, "  it returns shape (3,)"),
    "infinite": (
        {"at": [0, 1], "expected": 1.0, "got": "inf", "error": "inf"},
        "entry [0, 1]: inf instead of 1",
    ),
}


@pytest.mark.parametrize(("wrong", "told"), CASES.values(), ids=CASES)
def test_what_is_wrong_is_told(wrong, told):
    passed = {"name": "a", "outcome": "passed"}
    failed = {"name": "b", "outcome": "failed", **wrong}
    report = {"cases": [passed, failed, {"name": "c", "outcome": "skipped"}], "causes": []}
    text, right = grade.judged("rotary", report)
    assert not right
    assert text.startswith("rotary: right in 1 of 2 cases\n  first wrong case: b\n")
    assert told in text


def test_what_cannot_be_imported_is_told(monkeypatch, tmp_path):
    def refuse(*_):
        raise UsageError("x cannot be imported")

    monkeypatch.setattr(grading, "check_apart", refuse)
    told = "rotary: cannot be graded, x cannot be imported"
    assert grade.graded(tmp_path, "rotary") == (told, False)


def test_a_report_is_asked_for_with_the_settings_of_the_exercise(monkeypatch, tmp_path):
    asked = []

    def answered(request, time_limit):
        asked.append(request)
        return "", {"cases": [{"name": "a", "outcome": "passed"}], "causes": []}, 0

    monkeypatch.setattr(grading, "check_apart", answered)
    assert grade.graded(tmp_path / "x.py", "rotary_half") == (
        "rotary_half: right in all 1 cases",
        True,
    )
    assert asked[0]["set"] == ["layout='half'"]
    assert asked[0]["function"] == f"{tmp_path / 'x.py'}:rotary_half"
