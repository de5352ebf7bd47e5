"""What the command writes for a CI: JSON, JUnit and SARIF."""

import json
import os
import subprocess
import sys
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


def test_json_has_every_case_and_strings_for_what_json_lacks():
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
    nowhere = {"name": "", "raised": "E", "where": ""}
    assert story({"causes": []}, nowhere) == "it raises E"


def test_junit_has_a_case_for_each_and_is_xml_whatever_was_raised():
    data = data_of(wrong, "to_half")
    whole = ET.fromstring(as_junit(data))
    assert whole.get("failures") == whole.find("testsuite").get("failures") == "4"
    failure = whole.find(".//testcase[@name='eight columns']/failure")
    assert failure.get("message") == r"it raises RuntimeError: boom \x00 \ufffe <&>"
    assert (
        failure.text == failure.get("message") + failure.text[len(failure.get("message")) :]
    )
    skipping = data_of(lambda x, positions: rotate(x, positions), "rotary")
    whole = ET.fromstring(as_junit(skipping))
    skipped = whole.findall(".//skipped")
    assert len(skipped) == int(whole.get("skipped")) > 0
    assert "has no parameter" in skipped[0].get("message")
    assert len(whole.findall(".//testcase")) == int(whole.get("tests"))


def test_sarif_has_a_result_for_each_cause_where_the_function_stands(monkeypatch):
    monkeypatch.chdir(Path(gallery.__file__).parents[1])
    data = data_of(gallery.rotary_by_halves, "rotary")
    log = json.loads(as_sarif(data))
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "posattn"
    (rule,), (result,) = driver["rules"], run["results"]
    assert rule["id"] == result["ruleId"] == "other_layout"
    assert rule["shortDescription"]["text"] == data["causes"][0]["sentence"]
    assert "#25199" in rule["help"]["text"]
    assert result["level"] == "error"
    assert result["message"]["text"].startswith(
        "rotary_by_halves as rotary, numpy float64, "
    )
    (location,) = result["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "conformance/gallery.py"}
    assert place["region"] == {"startLine": data["line"]}


def test_sarif_names_what_no_fault_explains_and_files_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = data_of(wrong, "to_half")
    (run,) = json.loads(as_sarif(data))["runs"]
    (result,), (rule,) = run["results"], run["tool"]["driver"]["rules"]
    assert result["ruleId"] == rule["id"] == "no_known_fault"
    told = result["message"]["text"]
    assert "it raises RuntimeError: boom \x00 \ufffe <&> (in 'eight columns')" in told
    assert (
        "it returns float32, where its data are float64 (in 'an odd width' and 1 more)"
        in told
    )
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == Path(__file__).as_uri()
    nowhere = {name: value for name, value in data.items() if name not in ("file", "line")}
    (run,) = json.loads(as_sarif(nowhere))["runs"]
    assert "locations" not in run["results"][0]
    unseen = {**data["causes"][0]} if data["causes"] else {}
    cause = {
        "name": "a",
        "sentence": "b",
        "seen": "",
        "of": 4,
        "cases": ["six columns"],
        **unseen,
    }
    told = story({**nowhere, "causes": [cause]}, {"name": "six columns"})
    assert told == "likely cause (1 of 4 failures): b"
    (run,) = json.loads(as_sarif({**nowhere, "causes": [cause, cause]}))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "a",
        "no_known_fault",
    ]
    assert "help" not in run["tool"]["driver"]["rules"][0]


def test_what_passes_has_no_results():
    (run,) = json.loads(as_sarif(data_of(to_half, "to_half")))["runs"]
    assert run["results"] == run["tool"]["driver"]["rules"] == []


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


def answer(text, data, code):
    """What stands for `check_apart`."""
    return lambda request, limit: (text, data, code)


@pytest.fixture
def checked(monkeypatch):
    """A report of the gallery, which the command need not wait for."""
    data = data_of(gallery.rotary_by_halves, "rotary")
    monkeypatch.setattr("posattn.commands.check.check_apart", answer("the text", data, 1))
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


def test_what_is_no_file_is_not_written(checked, capsys, tmp_path):
    message = f"posattn: --output must be a file, got '{tmp_path}'\n"
    assert run(capsys, "--output", tmp_path) == (2, "", message)
    code, _, said = run(capsys, "--output", tmp_path / "lost" / "report.json")
    assert (code, said.startswith("posattn: --output cannot be written: ")) == (2, True)


@pytest.mark.slow
def test_the_command_writes_what_its_child_found(tmp_path):
    (tmp_path / "mine.py").write_text("import numpy\n\ndef convert(x):\n    return x\n")
    check = [
        sys.executable,
        "-m",
        "posattn",
        "check",
        "mine:convert",
        "--scheme",
        "to_half",
    ]
    done = subprocess.run(
        [*check, "--format", "sarif", "--output", "found.sarif"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("convert as to_half, numpy float64: ")
    (run,) = json.loads((tmp_path / "found.sarif").read_text("utf-8"))["runs"]
    (location,) = run["results"][0]["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "mine.py"},
        "region": {"startLine": 3},
    }
