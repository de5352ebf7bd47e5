"""What measures our speed: it checks first, takes turns, keeps what it has, and says what it does."""

import json
from functools import partial

import jax
import pytest

from tests.nightly.benchmarks import __main__ as command
from tests.nightly.benchmarks import (
    attention,
    layer,
    machine,
    measuring,
    records,
    tables,
)
from tests.nightly.benchmarks.measuring import Case, Contender

FILES = sorted(records.FOLDER.glob("*.json"))
ABOUT = {"name": "A machine", "cores": 2, "memory": 8, "system": "some", "versions": {}}
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


def measured(cases, path, **options):
    """What a run over the cases returns, and what it says."""
    said = []
    code = command.measure_all(cases, path, ABOUT, say=said.append, **options)
    return code, said


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


def test_a_wrong_result_of_ours_is_not_measured_but_tried_again(path):
    log = []
    case = fake(log=log, errors=(float("nan"), 0.0))
    code, (_, said) = measured([case], path)
    assert code == 1
    assert "WRONG" in said
    assert log == ["ours", "theirs"]
    assert "ratio" not in recorded(path)["rotate/PyTorch"]
    measured([case], path)
    assert len(log) == 4


def test_a_case_is_measured_again_when_the_library_has_changed(path, monkeypatch):
    log = []
    for again, calls in ((False, 10), (False, 10), (True, 20)):
        measured([fake(log=log)], path, again=again)
        assert len(log) == calls
    monkeypatch.setattr(records, "fingerprint", lambda _: "changed")
    measured([fake(log=log)], path)
    assert len(log) == 30


# what is right


@pytest.mark.parametrize("scheme", attention.SCHEMES)
@pytest.mark.parametrize(
    ("make", "slopes"), [(attention.in_torch, True), (attention.in_jax, False)]
)
def test_the_check_of_attention_knows_right_from_wrong(make, slopes, scheme, monkeypatch):
    # which takes a compiler
    monkeypatch.setattr(attention, "flex", lambda *_: lambda q, k, v: q)
    contenders = make(scheme, SMALL, slopes)
    flex = [contenders.pop("FlexAttention")] if "FlexAttention" in contenders else []
    results = {name: c.call() for name, c in contenders.items()}
    bound = attention.GRADIENT if slopes else attention.BOUND
    for name, contender in contenders.items():
        assert contender.error(results[name]) < bound, name
    for contender in (*contenders.values(), *flex):
        nearly = jax.tree.map(lambda x: 1.01 * x, contender.call())
        assert contender.error(nearly) > bound
    others = [contender.limit for name, contender in contenders.items() if name != "ours"]
    assert others == [scheme != attention.PLAIN]


@pytest.mark.parametrize("scheme", layer.SCHEMES)
@pytest.mark.parametrize("slopes", [False, True])
def test_the_check_of_a_layer_knows_right_from_wrong(slopes, scheme, monkeypatch):
    monkeypatch.setattr(layer, "SHAPE", (2, 96, 64))
    for held in (layer.drawn, layer.weights, layer.right):
        monkeypatch.setattr(layer, held.__name__, partial(held.__wrapped__))
    ours = layer.torch_layer(scheme)
    contender = layer.of_torch(scheme, slopes, ours, partial(ours, causal=True))
    bound = layer.BACKWARD if slopes else layer.FORWARD
    assert contender.error(contender.call()) < bound
    wrong = layer.of_torch(scheme, slopes, ours, ours)  # not causal
    assert wrong.error(wrong.call()) > bound


# what is recorded, and how the page shows it


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_recorded_file_has_what_the_page_needs(file, monkeypatch):
    record = json.loads(file.read_text(encoding="utf-8"))
    assert file.stem == machine.kind(record["machine"])
    monkeypatch.setattr(machine, "device", lambda: record["device"])
    every = command.cases_of(records.PARTS)
    cases = {f"{case.part}/{case.name}": case for case in every}
    for name, entry in record["cases"].items():
        case = cases[name]
        facts = (case.part, case.name, case.setting, case.unit, case.bound)
        keys = ("part", "name", "setting", "unit", "bound")
        assert tuple(entry[key] for key in keys) == facts
        assert tuple(entry["code"]) == case.code
        right = {k: e for k, e in entry["error"].items() if k not in entry["wrong"]}
        assert all(e is None or e <= entry["bound"] for e in right.values())
        assert len(entry["error"]) > 1, f"{name} is measured beside nobody"
        assert list(entry["median"]) == ["ours", *entry["ratio"]] == list(right)


@pytest.mark.parametrize("name", tables.VIEWS)
def test_the_tables_of_the_page_are_those_of_the_records_and_mark_what_is_stale(name):
    written = (records.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert "\n".join(tables.view(name)) in written, (
        "python -m tests.nightly.benchmarks.tables"
    )


def test_words_change_no_fingerprint_and_code_does(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "SOURCE", tmp_path)
    (tmp_path / "one.py").write_text('"""Said."""\nfrom two import f\n\nx = f(1)\n')
    two = 'def f(x):\n    """Said."""\n    if x:\n        raise ValueError("bad")\n    return x\n'
    (tmp_path / "two.py").write_text(two)
    (tmp_path / "three.py").write_text("x = 1\n")
    assert [path.stem for path in records.closure(["one"])] == ["one", "two"]
    before = records.fingerprint(["one"])
    two = two.replace("Said.", "Said\n\n    otherwise.\n").replace("if x:", "if x:  # why")
    two = "# why\n" + two.replace('"bad"', '"worse"')
    (tmp_path / "two.py").write_text(two)
    (tmp_path / "three.py").write_text("x = 2\n")
    assert records.fingerprint(["one"]) == before
    (tmp_path / "two.py").write_text(two.replace("return x", "return -x"))
    assert records.fingerprint(["one"]) != before


def test_the_page_shows_ratios_and_names_what_is_wrong_or_old(path, monkeypatch):
    monkeypatch.setattr(measuring, "ratio", lambda ours, theirs: [1.5, 2.0, 2.5])
    measured([fake("good", tokens=32), fake("bad", errors=(0.0, 1.0))], path)
    monkeypatch.setattr(records, "machines", lambda: [json.loads(path.read_text())])
    table = "\n".join(tables.view("rotate"))
    assert "| good | theirs |" in table
    assert "| **2.00** | 1.50\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}2.50 |" in table
    assert "tokens/s" in table
    assert "- bad, theirs: wrong by 1e+00, more than 1e-3, and so not measured." in table
    assert tables.view("layer") == ["Nothing is recorded."]
    monkeypatch.setattr(records, "fingerprint", lambda _: "changed")
    assert "| good\\* | theirs |" in "\n".join(tables.view("rotate"))
    old = "- rotate, good: 2.00 times the time of theirs (A machine)\\*."
    assert tables.view("slower") == [old]
