"""What the command writes for a CI: JSON, JUnit and SARIF."""

import json
import os
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from posattn import __main__ as command
from posattn.conformance import check, gallery, load
from posattn.conformance.formats import as_json, as_junit, as_sarif, story
from posattn.conformance.worker import place
from posattn.reference import rotate, to_half


def data_of(function, scheme, **options):
    """A report as the command has it."""
    report = check(function, scheme, framework="numpy", **options)
    return {**report.to_dict(), **place(function)}


def wrong(x):
    """Convert, but fail in three ways."""
    if x.shape[-1] == 8:
        raise RuntimeError("boom \x00 \ufffe <&>")
    return np.full(x.shape, np.inf) if x.shape[-1] == 6 else to_half(x).astype(np.float32)


def test_json_has_every_case_and_strings_for_infinities():
    data = json.loads(as_json(data_of(wrong, "to_half")))
    cases = {case["name"]: case for case in data["cases"]}
    assert set(cases) == {case["name"] for case in load("to_half")["cases"]}
    assert data["title"] == "wrong as to_half, numpy float64"
    assert Path(data["file"]) == Path(__file__)
    assert (
        Path(__file__).read_text("utf-8").splitlines()[data["line"] - 1] == "def wrong(x):"
    )
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


def test_junit_has_a_case_for_each_and_is_xml():
    whole = ET.fromstring(as_junit(data_of(wrong, "to_half")))
    assert whole.get("failures") == whole.find("testsuite").get("failures") == "4"
    failure = whole.find(".//testcase[@name='eight columns']/failure")
    assert failure.get("message") == r"it raises RuntimeError: boom \x00 \ufffe <&>"
    assert failure.text.startswith(failure.get("message"))
    whole = ET.fromstring(
        as_junit(data_of(lambda x, positions: rotate(x, positions), "rotary"))
    )
    skipped = whole.findall(".//skipped")
    assert len(skipped) == int(whole.get("skipped")) > 0
    assert "has no parameter" in skipped[0].get("message")
    assert len(whole.findall(".//testcase")) == int(whole.get("tests"))


def rules_and_results(data):
    """The rules by name, and the results, of the only run in SARIF."""
    (run,) = json.loads(as_sarif(data))["runs"]
    assert run["tool"]["driver"]["name"] == "posattn"
    return {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}, run["results"]


def test_sarif_has_a_result_where_the_function_stands(monkeypatch):
    monkeypatch.chdir(Path(gallery.__file__).parents[1])
    data = data_of(gallery.rotary_by_halves, "rotary")
    rules, (result,) = rules_and_results(data)
    sentence = data["causes"][0]["sentence"]
    assert rules["other_layout"]["shortDescription"]["text"] == sentence
    assert "#25199" in rules["other_layout"]["help"]["text"]
    assert (result["ruleId"], result["level"]) == ("other_layout", "error")
    told = result["message"]["text"]
    assert told.startswith("rotary_by_halves as rotary, numpy float64, ")
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "conformance/gallery.py"},
        "region": {"startLine": data["line"]},
    }


def test_sarif_names_what_no_fault_explains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = data_of(wrong, "to_half")
    rules, (result,) = rules_and_results(data)
    assert [*rules] == [result["ruleId"]] == ["no_known_fault"]
    told = result["message"]["text"]
    assert "it raises RuntimeError: boom \x00 \ufffe <&> (in 'eight columns')" in told
    assert "data are float64 (in 'an odd width' and 1 more)" in told
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == Path(__file__).as_uri()  # outside of the directory
    nowhere = {name: x for name, x in data.items() if name not in ("file", "line")}
    assert "locations" not in rules_and_results(nowhere)[1][0]
    cause = {"name": "a", "sentence": "b", "seen": "", "of": 4, "cases": ["six columns"]}
    told = story({**nowhere, "causes": [cause]}, {"name": "six columns"})
    assert told == "likely cause (1 of 4 failures): b"
    rules, _ = rules_and_results({**nowhere, "causes": [cause, cause]})
    assert [*rules] == ["a", "no_known_fault"]
    assert "help" not in rules["a"]
    assert rules_and_results(data_of(to_half, "to_half")) == ({}, [])


class Layer:
    """What is called, without a line of its own."""

    def __call__(self, x):
        """Convert."""
        return to_half(x)


def test_a_function_stands_where_it_was_written():
    line = "class Layer:"
    for made in (Layer, Layer(), partial(Layer())):
        assert (
            Path(__file__).read_text("utf-8").splitlines()[place(made)["line"] - 1] == line
        )
    assert place(partial(to_half))["file"].endswith(".py")
    assert place(np.sin) == place(max) == place(eval("lambda x: x")) == {}


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
    assert ET.fromstring(run(capsys, "--format", "junit")[1]).tag == "testsuites"
    assert json.loads(run(capsys, "--format", "sarif")[1])["version"] == "2.1.0"
    assert run(capsys) == (1, "the text\n", "")


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
