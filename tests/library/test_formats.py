"""What the command writes for a CI: all that a report holds, as JSON."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from posattn import __main__ as command
from posattn.conformance import check, gallery, load
from posattn.conformance.testing import story
from posattn.reference import to_half


def data_of(function, scheme, **options):
    """A report as the command has it."""
    return check(function, scheme, framework="numpy", **options).to_dict()


def wrong(x):
    """Convert, but fail in three ways."""
    if x.shape[-1] == 8:
        raise RuntimeError("boom \x00 \ufffe <&>")
    return np.full(x.shape, np.inf) if x.shape[-1] == 6 else to_half(x).astype(np.float32)


def test_json_has_every_case_and_strings_for_infinities():
    data = json.loads(json.dumps(data_of(wrong, "to_half"), allow_nan=False))
    cases = {case["name"]: case for case in data["cases"]}
    assert set(cases) == {case["name"] for case in load("to_half")["cases"]}
    assert data["title"] == "wrong as to_half, numpy float64"
    assert cases["eight columns"]["raised"].startswith("RuntimeError: boom")
    assert "in wrong: raise" in cases["eight columns"]["where"]
    assert (cases["six columns"]["got"], cases["six columns"]["error"]) == ("inf", "inf")
    assert cases["two columns"]["complaints"] == [
        "returns float32, where its data are float64"
    ]


def test_a_case_is_told_in_lines():
    data = data_of(wrong, "to_half")
    told = {case["name"]: story(data, case) for case in data["cases"]}
    assert told["six columns"].splitlines()[0].endswith(", got inf")
    assert told["six columns"].endswith("\nno known fault explains this")
    assert told["eight columns"].splitlines()[0].startswith("it raises RuntimeError: boom")
    assert told["two columns"] == "it returns float32, where its data are float64"


@pytest.fixture
def checked(monkeypatch):
    """A report of the gallery, which the command need not wait for."""
    data = data_of(gallery.rotary_by_halves, "rotary")
    answer = "the text", data, 1
    monkeypatch.setattr("posattn.commands.check.check_apart", lambda *_: answer)
    return data


def run(capsys, *options):
    """The exit code of a check, what it printed, and what it complained about."""
    code = command.main(["check", "mine:rope", "--scheme", "rotary", *map(str, options)])
    return code, *capsys.readouterr()


def test_the_command_prints_the_format(checked, capsys):
    code, out, _ = run(capsys, "--format", "json")
    assert (code, json.loads(out)) == (1, checked)
    assert run(capsys) == (1, "the text\n", "")


def test_sarif_tells_each_cause_once_where_the_function_stands(checked, capsys):
    code, out, _ = run(capsys, "--format", "sarif")
    (ran,) = json.loads(out)["runs"]
    (found,), (rule,) = ran["results"], ran["tool"]["driver"]["rules"]
    assert (code, found["ruleId"], rule["id"]) == (1, *2 * ("other_layout",))
    assert "locations" not in found
    checked["cases"] = [
        {"name": "known", "outcome": "xfailed"},
        {"name": "mended", "outcome": "xpassed"},
        {"name": "new", "outcome": "failed", "complaints": ["ends"]},
    ]
    checked["causes"][0]["cases"] = ["known"]
    checked |= {"file": __file__, "line": 7}
    out = run(capsys, "--format", "sarif")[1]
    results = json.loads(out)["runs"][0]["results"]
    assert {x["ruleId"] for x in results} == {"no_known_fault", "passes_unexpectedly"}
    assert {x["level"] for x in results} == {"error", "note"}
    assert "new: it ends" in str(results)
    where = results[0]["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "tests/library/test_formats.py"
    assert where["region"] == {"startLine": 7}


def test_a_file_is_written_and_the_text_printed(checked, capsys, tmp_path):
    file = tmp_path / "report.json"
    assert run(capsys, "--format", "json", "--output", file) == (1, "the text\n", "")
    assert json.loads(file.read_text("utf-8")) == checked
    assert run(capsys, "--output", file) == (1, "the text\n", "")
    assert file.read_text("utf-8") == "the text\n"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_file_is_written_whole_or_not_at_all(checked, capsys, tmp_path, monkeypatch):
    file = tmp_path / "report.json"
    file.write_text("old")

    def full(self, text, **options):
        self.touch()
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    message = "posattn: --output cannot be written: No space left on device\n"
    assert run(capsys, "--output", file) == (2, "", message)
    assert file.read_text("utf-8") == "old"
    assert os.listdir(tmp_path) == ["report.json"]
