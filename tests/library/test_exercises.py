"""The exercises that a reader writes: their stubs, and what `posattn grade` says of answers."""

import importlib
import inspect
import textwrap

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


def test_each_exercise_has_a_stub():
    files = {path.stem for path in exercises.stub("rotary").parent.glob("[!_]*.py")}
    assert files == set(EXERCISES) == set(ANSWERS)


@pytest.mark.parametrize("number", range(len(EXERCISES)))
def test_a_stub_asks_for_what_is_checked(number):
    name = list(EXERCISES)[number]
    module = importlib.import_module(f"posattn.exercises.{name}")
    assert module.__doc__.startswith(f"Exercise {number + 1}: ")
    known = {p["name"]: p for p in load(EXERCISES[name].scheme)["parameters"]}
    given = {}
    for p in inspect.signature(stub(name)).parameters.values():
        given[p.name] = None
        if p.default is not p.empty:
            assert p.default == known[p.name]["default"]
    with pytest.raises(NotImplementedError):
        stub(name)(**given)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_reference_is_right_in_the_cases_of_an_exercise(name):
    scheme, settings = EXERCISES[name].scheme, EXERCISES[name].settings
    report = check(answer(name), scheme, settings=settings, framework="numpy")
    assert not report.failures
    # the exercise asks for less than the scheme has: partial rotations, for example
    assert 2 * len(report.runs) > len(report.skipped)


def run(capsys, *arguments):
    """What a command prints, its errors, and its exit code."""
    code = main(list(map(str, arguments)))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


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


SLOPES = """
    def rotary(x, positions):
        raise NotImplementedError

    def alibi_slopes(n):
        return 2.0 ** (-8 * np.arange(1, n + 1) / n)

    def weight_to_half(weight, num_heads):
        pairs = weight.reshape(*weight.shape[:-1], num_heads, -1, 2)
        return pairs.swapaxes(-1, -2).reshape(weight.shape)
"""


def test_answers_are_graded_from_a_file(tmp_path, capsys):
    code, out, _ = run(capsys, "grade", written(tmp_path, "mine.py", SLOPES))
    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "rotary: not written yet"
    assert lines[1] == "alibi_slopes: right in 5 of 11 cases"
    assert lines[2] == "  first wrong case: 3 heads"
    assert lines[3] == "  most wrong is entry [1]: 0.024803 instead of 0.0039062"
    assert lines[4].startswith("  hint: ")
    assert lines[5].startswith("weight_to_half: right in all ")
    assert lines[6:] == ["", "1 of 3 exercises are right"]


@pytest.mark.parametrize(
    ("right", "code"),
    [((), 1), (("sinks",), 1), (("rotary_half",), 1), (("sinks", "rotary_half"), 0)],
)
def test_the_exit_code_is_0_when_all_are_right(right, code, monkeypatch, tmp_path, capsys):
    asked = []

    def answered(request, time_limit):
        asked.append(request)
        passed = request["function"].endswith(right) if right else False
        case = {"name": "a", "outcome": "passed" if passed else "failed"}
        wrong = {} if passed else {"complaints": ["returns shape (3,)"]}
        return "", {"cases": [case | wrong], "causes": []}, 0

    monkeypatch.setattr(grade, "check_apart", answered)
    written(tmp_path, "first.py", "def sinks(): pass")
    path = written(tmp_path, "second.py", "def rotary_half(): pass")
    got, out, _ = run(capsys, "grade", tmp_path)
    assert got == code
    assert out.splitlines()[-1] == f"{len(right)} of 2 exercises are right"
    assert asked[1]["set"] == ["layout='half'"]
    assert asked[1]["function"] == f"{path}:rotary_half"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"raised": "IndexError: list", "where": "mine.py:3, in f"}, "  at mine.py:3"),
        ({"raised": "IndexError: list", "where": ""}, "  it raises IndexError"),
        ({"complaints": ["returns shape (3,)"]}, "  it returns shape (3,)"),
        ({"at": [0, 1], "expected": 1.0, "got": "inf"}, "entry [0, 1]: inf instead of 1"),
    ],
)
def test_what_is_wrong_is_told(wrong, told):
    cases = [
        {"name": "a", "outcome": "passed"},
        {"name": "b", "outcome": "failed", **wrong},
        {"name": "c", "outcome": "skipped"},
    ]
    text, right = grade.judged("rotary", {"cases": cases, "causes": []})
    assert not right
    assert text.startswith("rotary: right in 1 of 2 cases\n  first wrong case: b\n")
    assert told in text


def test_what_cannot_be_imported_is_told(monkeypatch, tmp_path):
    def refuse(*_):
        raise UsageError("x cannot be imported")

    monkeypatch.setattr(grade, "check_apart", refuse)
    told = "rotary: cannot be graded, x cannot be imported"
    assert grade.graded(tmp_path, "rotary") == (told, False)


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
