"""What measures our speed: it checks first, takes turns, keeps what it has, and says what it does."""

import datetime
import json
import math
import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch

import posattn.jax
import posattn.torch
from tests.benchmarks import __main__ as command
from tests.benchmarks import (
    attention,
    layer,
    machine,
    measuring,
    memory,
    records,
    rotate,
    tables,
)
from tests.benchmarks.measuring import Case, Contender

ROOT = Path(__file__).parents[2]


FILES = sorted(records.FOLDER.glob("*.json"))
ABOUT = {
    "name": "A machine",
    "cores": 2,
    "memory": 8,
    "system": "some",
    "versions": {"a": "1"},
}
CODE = ("posattn.torch.position.alibi",)
SMALL = (1, 4, 96, 16)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Three rounds for each case, and no more."""
    monkeypatch.setattr(measuring, "BUDGET", 0.0)
    monkeypatch.setattr(measuring, "LEAST", 3)
    # collecting takes long beside two frameworks
    monkeypatch.setattr(command.gc, "collect", lambda: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some" / "machine.json"


def fake(name="PyTorch", log=None, errors=(0.0, 0.0), **options):
    """A case of two contenders that write down their calls."""
    log = [] if log is None else log

    def make():
        return {
            who: Contender(partial(log.append, who), lambda _, error=error: error)
            for who, error in zip(("ours", "theirs"), errors, strict=True)
        }

    return Case("rotate", name, "small", CODE, make, 1e-3, **options)


def breaking(failure):
    """A case that raises when it is made."""

    def make():
        raise failure

    return Case("rotate", "breaking", "small", CODE, make, 1e-3)


def measured(cases, path, **options):
    """What a run over the cases returns, and what it says."""
    said = []
    good = command.measure_all(
        cases, path, ABOUT, say=lambda *w: said.append(" ".join(map(str, w))), **options
    )
    return good, said


def recorded(path):
    return json.loads(path.read_text(encoding="utf-8"))["cases"]


def test_all_take_turns_and_the_first_round_does_not_count():
    log = []
    found = measuring.run(fake(log=log))
    # one to be checked, one to warm up, three that count
    assert log[:2] == ["ours", "theirs"]
    rounds = [tuple(log[i : i + 2]) for i in range(0, 10, 2)]
    assert set(rounds) == {("ours", "theirs"), ("theirs", "ours")}
    assert found["rounds"] == 3
    assert list(found["median"]) == ["ours", "theirs"]


def test_a_budget_gives_more_rounds(monkeypatch):
    monkeypatch.setattr(measuring, "BUDGET", 60.0)
    monkeypatch.setattr(measuring, "MOST", 10)
    assert measuring.run(fake())["rounds"] == 10


def test_memory_is_kept_where_the_c_library_can_be_told(monkeypatch):
    told = []
    library = SimpleNamespace(mallopt=lambda *option: told.append(option))
    monkeypatch.setattr(measuring.ctypes, "CDLL", lambda _: library)
    measuring.keep_memory()
    most = 16 * 2**20  # what a call of these cases returns
    assert {option for option, value in told if value >= most} == {-1, -3}
    assert (-8, 1) in told
    del library.mallopt
    measuring.keep_memory()
    assert len(told) == 3


def test_what_prepares_a_call_is_not_measured():
    call = Contender(lambda x: x, lambda _: 0.0, prepare=lambda: (time.sleep(0.05),))
    taken = measuring.interleaved({"ours": call}, None)["ours"]
    assert max(taken) < 0.04


def test_a_ratio_is_taken_round_by_round():
    assert measuring.ratio([1, 2, 40], [2, 4, 80]) == [0.5, 0.5, 0.5]
    assert measuring.ratio([1, 2, 3], [1, 1, 1]) == [1.5, 2, 2.5]
    assert measuring.ratio([3], [2]) == [1.5] * 3
    assert measuring.ratio([None], [2]) is None


@pytest.mark.parametrize("error", [2e-3, float("nan")])
def test_a_wrong_result_of_ours_is_not_measured(error, path):
    log = []
    case = fake(log=log, errors=(error, 0.0))
    good, (said,) = measured([case], path)
    assert not good
    assert "WRONG" in said
    assert log == ["ours", "theirs"]
    assert "ratio" not in recorded(path)["rotate/PyTorch"]
    measured([case], path)
    assert len(log) == 4  # it is tried again


def test_a_wrong_result_of_another_is_left_out():
    found = measuring.run(fake(errors=(0.0, 1.0)))
    assert found["wrong"] == {"theirs": 1.0}
    assert found["ratio"] == {}
    assert list(found["median"]) == ["ours"]


def test_what_is_recorded_is_not_measured_again(path, monkeypatch):
    log = []
    cases = [fake("one", log), fake("two", log)]
    assert measured(cases, path)[0]
    assert len(log) == 20
    _, said = measured(cases, path)
    assert len(log) == 20
    assert all("recorded before" in line for line in said)
    measured(cases[:1], path, again=True)
    assert len(log) == 30
    monkeypatch.setattr(records, "fingerprint", lambda _: "changed")
    measured(cases[:1], path)
    assert len(log) == 40
    monkeypatch.setitem(ABOUT, "cores", 3)
    measured(cases[:1], path)
    assert len(log) == 50


def test_a_run_that_was_stopped_goes_on(path, monkeypatch, capsys):
    log = []
    cases = [fake("one", log), breaking(KeyboardInterrupt())]
    monkeypatch.setattr(command, "cases_of", lambda parts: cases)
    monkeypatch.setattr(records, "FOLDER", path.parent)
    assert command.main([]) == 130
    said = capsys.readouterr().out.strip().splitlines()
    assert said[-1] == (
        "stopped; what was measured is kept, and the same command goes on from here"
    )
    (kept,) = path.parent.glob("*.json")
    assert list(recorded(kept)) == ["rotate/one"]
    cases[1] = fake("two", log)
    assert command.main(["rotate"]) == 0
    assert len(log) == 20
    assert list(recorded(kept)) == ["rotate/one", "rotate/two"]


def test_a_file_is_replaced_as_a_whole(path, monkeypatch):
    measured([fake("one")], path)
    before = path.read_text()

    def stop(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        measured([fake("two")], path)
    assert path.read_text() == before


def test_two_runs_at_once_lose_nothing(path):
    class Slow(list):
        def append(self, who):
            if not self:
                measured([fake("other")], path)
            super().append(who)

    measured([fake("one", Slow())], path)
    assert set(recorded(path)) == {"rotate/one", "rotate/other"}


def test_a_case_that_fails_stops_no_other(path):
    good, said = measured([breaking(ValueError("too\nlong")), fake()], path)
    assert not good
    assert said[0] == "[ 1/2] rotate/breaking: FAILED, ValueError: too"
    assert list(recorded(path)) == ["rotate/PyTorch"]


@pytest.mark.parametrize(
    "reason", [ImportError("No module named 'x'"), measuring.NotHere("no")]
)
def test_a_case_that_has_no_place_here_is_left_out(path, reason):
    good, (said,) = measured([breaking(reason)], path)
    assert good
    assert said == f"[ 1/1] rotate/breaking: left out, {reason}"


def test_an_unknown_part_is_named_with_those_that_exist(capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["rotate", "rotation"])
    said = capsys.readouterr().err
    assert (
        "no part is called 'rotation'; there are rotate, attention, layer, memory" in said
    )


def test_a_line_tells_the_ratio_and_its_spread(path):
    _, (said,) = measured([fake()], path)
    assert said.startswith("[ 1/1] rotate/PyTorch: ")
    assert re.search(r"[\d.]+ \[[\d.]+, [\d.]+\] of theirs; 3 rounds \(\d+ s\)$", said)


# what is right


@pytest.mark.parametrize("scheme", attention.SCHEMES)
@pytest.mark.parametrize("slopes", [False, True])
@pytest.mark.parametrize("make", [attention.in_torch, attention.in_jax])
def test_the_check_of_attention_knows_right_from_wrong(make, slopes, scheme, monkeypatch):
    # which takes a compiler
    monkeypatch.setattr(attention, "flex", lambda *_: lambda q, k, v: q)
    contenders = make(scheme, SMALL, "float32", slopes)
    flex = [contenders.pop("FlexAttention")] if "FlexAttention" in contenders else []
    results = {name: c.call() for name, c in contenders.items()}
    bound = attention.GRADIENT if slopes else attention.BOUNDS["float32"]
    for name, contender in contenders.items():
        assert contender.error(results[name]) < bound, name
    for contender in (*contenders.values(), *flex):
        nearly = jax.tree.map(lambda x: 1.01 * x, contender.call())
        assert contender.error(nearly) > bound
    others = [contender.limit for name, contender in contenders.items() if name != "ours"]
    assert others == [scheme != attention.PLAIN]


def test_the_schemes_give_different_results():
    right = [attention.right(scheme, SMALL, "float32") for scheme in attention.SCHEMES]
    for i, one in enumerate(right):
        assert all(measuring.error(one, other) > 0.01 for other in right[:i])


@pytest.mark.parametrize("scheme", layer.SCHEMES)
@pytest.mark.parametrize("slopes", [False, True])
def test_the_check_of_a_layer_knows_right_from_wrong(slopes, scheme, monkeypatch):
    monkeypatch.setattr(layer, "SHAPE", (2, 96, 64))
    for held in (layer.drawn, layer.weights, layer.right, layer.change):
        monkeypatch.setattr(layer, held.__name__, partial(held.__wrapped__))
    ours = layer.torch_layer(scheme)
    contender = layer.of_torch(scheme, slopes, ours, partial(ours, causal=True))
    bound = layer.BACKWARD if slopes else layer.FORWARD
    assert contender.error(contender.call()) < bound
    wrong = layer.of_torch(scheme, slopes, ours, ours)  # not causal
    assert wrong.error(wrong.call()) > bound


def test_an_error_is_relative_to_the_largest_number_or_to_one():
    assert measuring.error([1.0, 4.5], np.array([1.0, 4.0])) == 0.125
    assert measuring.error([0.5], np.array([0.25])) == 0.25


def test_the_error_of_a_gradient_is_that_of_one_derivative():
    call = attention.in_torch(attention.PLAIN, SMALL, "float32", True)["ours"]
    right = np.stack([measuring.plain(x) for x in call.call()])
    direction = np.random.default_rng(2).normal(size=right.shape)
    want = abs((right * direction).sum()) / np.linalg.norm(2 * right)
    assert call.error(2 * right) == pytest.approx(want, rel=1e-3)


def test_rows_of_long_results_are_evenly_spread():
    rows = measuring.rows(8192)
    assert (rows[0], rows[-1], len(rows)) == (0, 8191, 64)
    assert np.ptp(np.diff(rows)) <= 1


@pytest.mark.parametrize(
    ("column", "array"), [(posattn.torch, torch.tensor), (posattn.jax, jax.numpy.asarray)]
)
def test_checks_are_measured_on_one_token(column, array, monkeypatch):
    monkeypatch.setattr(rotate, "CALLS", 2)
    for name, contender in rotate.checked(column, array).items():
        assert contender.call().shape == (1, 8, 1, 64)
        assert contender.error(contender.call()) < rotate.BOUND
        assert contender.limit == (name != "ours")
    calls = []
    looks, bare = (lambda *_, who=who: calls.append(who) for who in ("looks", "bare"))
    looks.__wrapped__ = bare
    for contender in rotate.checked(SimpleNamespace(rotate=looks), array).values():
        contender.call()
    assert calls == ["looks"] * 2 + ["bare"] * 2


def test_each_call_has_its_memory_measured_in_a_process_of_its_own(monkeypatch):
    started = []

    def run(command, **_):
        started.append(command)
        return subprocess.CompletedProcess(command, 0, "[1024, 0.0]", "")

    monkeypatch.setattr(memory.subprocess, "run", run)
    contenders = memory.make("torch", attention.PLAIN, 128)
    assert contenders["ours"].call() == [1024, 0.0]
    contenders["SDPA, no position"].call()
    assert [command[0] for command in started] == [sys.executable] * 2


def test_a_gpu_gets_larger_cases_of_attention_in_bfloat16(monkeypatch):
    sizes = {}
    for device in ("cpu", "cuda"):
        cases = every_case(device, monkeypatch).values()
        said = [case.setting for case in cases if case.part == "attention"]
        assert all(("bfloat16" in x) == (device == "cuda") for x in said)
        sizes[device] = [math.prod(map(int, re.findall(r"\d+(?=[,)])", x))) for x in said]
    assert max(sizes["cpu"]) < min(sizes["cuda"])


@pytest.mark.parametrize(
    ("given", "parts"), [([], records.PARTS), (["rotate", "attention"],) * 2]
)
def test_the_command_measures_all_parts_or_those_that_are_named(
    given, parts, path, monkeypatch
):
    asked = []
    monkeypatch.setattr(command, "cases_of", lambda parts: asked.extend(parts) or [])
    monkeypatch.setattr(records, "FOLDER", path.parent)
    assert command.main(given) == 0
    assert asked == list(parts)


# what is recorded, and how the page shows it


def every_case(device, monkeypatch):
    monkeypatch.setattr(machine, "device", lambda: device)
    return {f"{case.part}/{case.name}": case for case in command.cases_of(records.PARTS)}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cases_have_names_of_their_own_and_code_that_exists(device, monkeypatch):
    cases = every_case(device, monkeypatch)
    assert len(cases) == len(command.cases_of(records.PARTS)) > 40
    for case in cases.values():
        assert case.part in records.PARTS
        assert len(records.closure(case.code)) > len(case.code)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_recorded_file_has_what_the_page_needs(file, monkeypatch):
    record = json.loads(file.read_text(encoding="utf-8"))
    assert set(record) == {"device", "machine", "cases"}
    assert set(record["machine"]) == {"name", "cores", "memory", "system", "versions"}
    assert file.stem == machine.kind(record["machine"])
    cases = every_case(record["device"], monkeypatch)
    for name, entry in record["cases"].items():
        case = cases[name]
        facts = (case.part, case.name, case.setting, case.unit, case.bound)
        keys = ("part", "name", "setting", "unit", "bound")
        assert tuple(entry[key] for key in keys) == facts
        assert tuple(entry["code"]) == case.code
        datetime.date.fromisoformat(entry["date"])
        right = {k: e for k, e in entry["error"].items() if k not in entry["wrong"]}
        assert all(e is None or e <= entry["bound"] for e in right.values())
        assert len(entry["error"]) > 1, f"{name} is measured beside nobody"
        assert list(entry["median"]) == list(right)
        assert ["ours", *entry["ratio"]] == list(right)
        for ratio in entry["ratio"].values():
            assert ratio is None or 0 < ratio[0] <= ratio[1] <= ratio[2]


def test_every_part_is_recorded():
    assert FILES
    parts = {e["part"] for m in records.machines() for e in m["cases"].values()}
    assert parts == set(records.PARTS)


@pytest.mark.parametrize("name", tables.VIEWS)
def test_the_tables_of_the_page_are_those_of_the_records_and_mark_what_is_stale(name):
    written = (records.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert "\n".join(tables.view(name)) in written, "python -m tests.benchmarks.tables"


def test_comments_change_no_fingerprint_and_code_does(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "SOURCE", tmp_path)
    (tmp_path / "one.py").write_text('"""Said."""\nfrom two import f\n\nx = f(1)\n')
    (tmp_path / "two.py").write_text('def f(x):\n    """Said."""\n    return x\n')
    (tmp_path / "three.py").write_text("x = 1\n")
    assert [path.stem for path in records.closure(["one"])] == ["one", "two"]
    before = records.fingerprint(["one"])
    two = '# why\ndef f(x):\n    """Said\n\n    otherwise.\n    """\n\n    return x\n'
    (tmp_path / "two.py").write_text(two)
    (tmp_path / "three.py").write_text("x = 2\n")
    assert records.fingerprint(["one"]) == before
    (tmp_path / "two.py").write_text(two.replace("return x", "return -x"))
    assert records.fingerprint(["one"]) != before


@pytest.fixture
def shown(path, monkeypatch):
    """What the page shows of two cases, of which one has a wrong peer."""
    monkeypatch.setattr(measuring, "ratio", lambda ours, theirs: [1.5, 2.0, 2.5])
    measured([fake("good", tokens=32), fake("bad", errors=(0.0, 1.0))], path)
    monkeypatch.setattr(records, "machines", lambda: [json.loads(path.read_text())])
    return lambda name: "\n".join(tables.view(name))


def test_the_page_shows_ratios_and_names_what_is_wrong(shown):
    table = shown("rotate")
    assert "| good | theirs |" in table
    assert "| **2.00** | 1.50\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}2.50 |" in table
    assert "tokens/s" in table
    assert "- bad, theirs: wrong by 1e+00, more than 1e-3, and so not measured." in table
    assert shown("layer") == "Nothing is recorded."


def test_a_column_that_says_nothing_is_left_out(shown, path):
    assert "| Middle half |" in shown("rotate")
    kept = json.loads(path.read_text())
    for entry in kept["cases"].values():
        entry["rounds"] = 1
    path.write_text(json.dumps(kept))
    assert "| Theirs | Ratio |\n" in shown("rotate")


def test_the_page_marks_old_times_and_lists_who_is_faster(shown, monkeypatch):
    assert shown("slower") == "- rotate, good: 2.00 times the time of theirs (A machine)."
    monkeypatch.setattr(records, "fingerprint", lambda _: "changed")
    assert "| good\\* | theirs |" in shown("rotate")
    assert shown("slower").endswith("(A machine)\\*.")


@pytest.mark.parametrize(("quartile", "limits"), [(1.01, []), (0.99, []), (1.01, ["b"])])
def test_who_is_faster_is_so_in_three_of_four_rounds_and_does_the_same(quartile, limits):
    entry = {"ratio": {"b": [quartile, 1.1, 1.2]}, "limits": limits}
    listed = list(tables.slower({"cases": {"a": entry}}))
    assert bool(listed) == (quartile > 1 and not limits)


def test_the_page_describes_the_machine(shown):
    today = datetime.date.today().isoformat()
    assert shown("machines") == (
        f"- **A machine**: 2 cores, 8 GiB of memory, some, a 1. Measured on {today}."
    )


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (12.34, "seconds", "12.3 s"),
        (0.0123, "seconds", "12.3 ms"),
        (4.56e-7, "seconds", "0.456 µs"),
        (3 * 2**29, "bytes", "1.50 GiB"),
        (None, "bytes", "too much"),
    ],
)
def test_amounts_have_three_digits(value, unit, said):
    shown = tables.amount(value, {"unit": unit, "tokens": None})
    assert shown.replace("\N{NO-BREAK SPACE}", " ") == said


def test_this_machine_has_a_name_and_a_file():
    about = machine.describe()
    assert about["cores"] >= 1
    assert about["versions"]["torch"]
    assert machine.kind(ABOUT | {"name": "Some(R) CPU @ 2.5"}).startswith("some-r-cpu-2-5-")
