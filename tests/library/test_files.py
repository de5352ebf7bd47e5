"""Vectors and results as files: an engine in any language reads the first and writes the second."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from posattn.__main__ import main
from posattn.conformance import UsageError, load
from posattn.conformance.checker import Options
from posattn.conformance.files import check_results, export, read, write
from posattn.conformance.generate import SCHEMES
from posattn.conformance.report import as_list

# knows nothing of posattn
ENGINE = """
    import json
    import sys
    import numpy as np

    given = np.load(sys.argv[1])
    about = json.loads(given["about"].tobytes())
    results = {}
    for k, case in enumerate(about["cases"]):
        x, base = given[f"{k}/x"], float(given.get(f"{k}/base", 10000.0))
        others = {"frequencies", "rotary_dim", "attention_factor"}
        if case["texts"].get("layout") == "half" or any(f"{k}/{n}" in given for n in others):
            continue
        positions = given.get(f"{k}/positions", np.arange(x.shape[-2]))
        d = x.shape[-1]
        angles = positions[..., None] * base ** (-np.arange(0, d, 2) / d)
        cos, sin = np.cos(angles), SIGN * np.sin(angles)
        a, b = x[..., 0::2], x[..., 1::2]
        pairs = np.stack([a * cos - b * sin, a * sin + b * cos], -1)
        results[str(k)] = pairs.reshape(x.shape).astype(x.dtype)
    np.savez(sys.argv[2], **results)
"""
BOTH = pytest.mark.parametrize("suffix", [".npz", ".safetensors"])


def run(capsys, *arguments):
    """The exit code of a command, what it prints, and its errors."""
    code = main(list(map(str, arguments)))
    return code, *capsys.readouterr()


@pytest.mark.parametrize(("sign", "code"), [("1", 0), ("-1", 1)], ids=["right", "wrong"])
def test_an_engine_is_checked_by_files(sign, code, tmp_path, capsys):
    engine, vectors, results = (tmp_path / n for n in ("engine.py", "in.npz", "out.npz"))
    engine.write_text(textwrap.dedent(ENGINE).replace("SIGN", sign))
    wrote = f"{len(load('rotary')['cases'])} cases of rotary are in {vectors}\n"
    assert run(capsys, "vectors", "rotary", "--output", vectors)[:2] == (0, wrote)
    subprocess.run([sys.executable, engine, vectors, results], check=True)
    usual = "check", "--results", results, "--scheme", "rotary"
    got, out, _ = run(capsys, *usual)
    assert got == code
    assert out.startswith("out.npz as rotary, numpy float32: ")
    assert "skipped, since" in out
    assert ("pairs rotate clockwise" in out) == (code == 1)
    assert run(capsys, *usual, "--fail-on-skip")[0] == 1
    assert run(capsys, *usual, "--only", "partial")[0] == 2
    assert run(capsys, *usual, "--skip", "large", "--max-position", "50")[0] == code


@BOTH
@pytest.mark.parametrize("scheme", ["yarn", "t5_bucket", "causal_mask", "sinks"])
def test_what_is_expected_passes_as_results(scheme, suffix, tmp_path):
    vectors, path, made = load(scheme), tmp_path / f"results{suffix}", {}
    for k, case in enumerate(vectors["cases"]):
        parts = as_list(case["expected"])  # of YaRN, two
        name = f"{k}" if len(parts) == 1 else f"{k}/{{}}"
        made |= {name.format(j): np.asarray(part) for j, part in enumerate(parts)}
    write(path, made)
    report = check_results(path, scheme)
    assert not report.failures, f"{report}"
    assert len(report.runs) == len(vectors["cases"])
    last = sorted(made)[-1]
    write(path, made | {last: np.asarray(1 - made[last])})
    assert len(check_results(path, scheme).failures) == 1


@BOTH
@pytest.mark.parametrize("scheme", ["rotary", "sinks", "causal_mask"])
def test_what_is_written_is_what_the_cases_have(scheme, suffix, tmp_path):
    vectors, path = load(scheme), tmp_path / f"{scheme}{suffix}"
    export(vectors, path, "float32")
    arrays = read(path)
    about = json.loads(arrays.pop("about").tobytes())
    assert about["scheme"] == scheme
    order = [p["name"] for p in about["parameters"]]
    for k, (case, told) in enumerate(zip(vectors["cases"], about["cases"], strict=True)):
        assert told["name"] == case["name"]
        given = {n: arrays[f"{k}/{n}"] for n in order if f"{k}/{n}" in arrays}
        given = {n: x if np.ndim(x) else x.item() for n, x in given.items()} | told["texts"]
        first = [given.pop(n) for n in order[: len(case["arguments"])]]
        again = SCHEMES[scheme].function(*first, **given)
        assert np.allclose(again, case["expected"], atol=1e-5, equal_nan=True)
    data = {p["name"] for p in vectors["parameters"] if p["data"]}
    for name, array in arrays.items():
        if name.partition("/")[2] in data and array.dtype.kind == "f" and array.ndim:
            assert array.dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"99999": np.zeros(2)}, "results must be named by the numbers of cases"),
        ({"\u00b2": np.zeros(2)}, "results must be named by the numbers of cases"),
        ({"first": np.zeros(2)}, "results must be named by the numbers of cases"),
        ({}, "results must have an array for a case of rotary"),
    ],
)
def test_results_that_are_none_are_refused(arrays, message, tmp_path):
    write(tmp_path / "out.npz", arrays)
    with pytest.raises(UsageError, match=message):
        check_results(tmp_path / "out.npz", "rotary")


def test_whole_numbers_are_compared_as_they_are(tmp_path):
    case = load("t5_bucket")["cases"][0]
    write(tmp_path / "out.npz", {"0": case["expected"]})
    report = check_results(tmp_path / "out.npz", "t5_bucket", Options(only=case["name"]))
    assert report.title == "out.npz as t5_bucket, numpy float64"
    assert report.passed(fail_on_skip=True)


def test_files_that_cannot_be_used_are_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "bad.npz").write_text("no arrays")
    with pytest.raises(UsageError, match=r"bad\.npz cannot be read"):
        check_results(tmp_path / "bad.npz", "rotary")
    for work in (read, lambda path: write(path, {})):
        with pytest.raises(
            UsageError, match=r"must end in \.npz or \.safetensors, got .*x\."
        ):
            work(tmp_path / "x.bin")
    with pytest.raises(
        UsageError, match="dtype must be float64, float32 or float16, got 'b"
    ):
        export(load("rotary"), tmp_path / "x.npz", "bfloat16")
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(UsageError, match="pip install safetensors"):
        read(tmp_path / "x.safetensors")
    function, results, scheme = ("mine:rope",), ("--results", "x.npz"), ("--scheme", "t5")
    for arguments, message in (
        (("vectors", "t5", "--output", tmp_path / "no" / "x.npz"), "cannot be written"),
        (("check", *scheme), "check needs a function, or --results, and not both"),
        (("check", *function, *results, *scheme), "--results, and not both"),
        (("check", *results, "--config", "x.json"), "--results must come with --scheme"),
    ):
        code, _, err = run(capsys, *arguments)
        assert (code, message in err) == (2, True)
