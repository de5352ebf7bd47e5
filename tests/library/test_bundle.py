"""The vectors as ONNX models: each computes what its case expects, and nothing is left out in silence."""

import json
import sys

import numpy as np
import pytest

from posattn.__main__ import main
from posattn.conformance import UsageError, load
from posattn.conformance.bundle import SCHEMES, write_bundle


def test_every_model_computes_what_is_expected(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    made, away = write_bundle(tmp_path)
    index = json.loads((tmp_path / "cases.json").read_text("utf-8"))
    assert (made, away) == (len(index["cases"]), len(index["left_out"]))
    said = {(c["scheme"], c["case"]) for c in [*index["cases"], *index["left_out"]]}
    assert said == {(s, case["name"]) for s in SCHEMES for case in load(s)["cases"]}
    assert {*tmp_path.iterdir()} - {tmp_path / "cases.json"} == {
        tmp_path / case["folder"] for case in index["cases"]
    }
    wrong = []
    for case in index["cases"]:
        folder = tmp_path / case["folder"]
        tensors = map(onnx.load_tensor, sorted(folder.glob("test_data_set_0/*.pb")))
        *given, (_, want) = [(x.name, onnx.numpy_helper.to_array(x)) for x in tensors]
        onnx.checker.check_model(folder / "model.onnx", full_check=True)
        got = ReferenceEvaluator(str(folder / "model.onnx")).run(None, dict(given))[0]
        size = max(1, np.max(np.abs(want), initial=0))
        assert got.shape == want.shape
        assert np.isfinite(want).all()
        if np.max(np.abs(got - want), initial=0) > case["tolerance"]["float32"] * size:
            wrong.append(case["folder"])
    # a fault of this evaluator, which makes a triangle of one row
    assert wrong == ["test_attention_heads_padding_b_1_1_n_and_causal"]


def test_the_command_writes_one_scheme(tmp_path, capsys):
    pytest.importorskip("onnx")
    arguments = "vectors", "soft_cap", "--format", "onnx", "--output", str(tmp_path)
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("9 models are in ")
    assert {path.name[:14] for path in tmp_path.iterdir()} == {
        "cases.json",
        "test_soft_cap_",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "onnx"), "onnx must be installed: pip install onnx"),
        ((), "scheme must be given, unless --format is onnx"),
    ],
)
def test_what_is_missing_is_said(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["vectors", *arguments, "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_other_schemes_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"one of attention, .*, got 'yarn'"):
        write_bundle(tmp_path, ["yarn"])
