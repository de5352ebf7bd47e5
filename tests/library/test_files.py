"""Vectors and results as files: an engine in any language reads the first and writes the second."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from posattn.__main__ import main
from posattn.conformance import UsageError, load, names
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
        def argument(name, default=None):
            return given[f"{k}/{name}"] if f"{k}/{name}" in given else default

        x, base = argument("x"), float(argument("base", 10000.0))
        half = case["texts"].get("layout") == "half"
        if half or argument("rotary_dim") is not None or argument("frequencies") is not None:
            continue
        n, d = x.shape[-2:]
        positions = argument("positions", np.arange(n))
        angles = positions[..., None] * base ** (-np.arange(0, d, 2) / d)
        cos, sin = np.cos(angles), SIGN * np.sin(angles)
        cos, sin = (float(argument("attention_factor", 1.0)) * t for t in (cos, sin))
        a, b = x[..., 0::2], x[..., 1::2]
        pairs = np.stack([a * cos - b * sin, a * sin + b * cos], -1)
        results[str(k)] = pairs.reshape(x.shape).astype(x.dtype)
    np.savez(sys.argv[2], **results)
"""


def run(capsys, *arguments):
    """What a command prints, its errors, and its exit code."""
    code = main(list(map(str, arguments)))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize(("sign", "code"), [("1", 0), ("-1", 1)], ids=["right", "wrong"])
def test_an_engine_is_checked_by_files(sign, code, tmp_path, capsys):
    engine, vectors, results = (
        tmp_path / name for name in ("engine.py", "in.npz", "out.npz")
    )
    engine.write_text(textwrap.dedent(ENGINE).replace("SIGN", sign))
    assert run(capsys, "vectors", "rotary", "--output", vectors)[:2] == (
        0,
        f"{len(load('rotary')['cases'])} cases of rotary are in {vectors}\n",
    )
    subprocess.run([sys.executable, engine, vectors, results], check=True)
    usual = "check", "--results", results, "--scheme", "rotary"
    got, out, _ = run(capsys, *usual)
    assert got == code
    assert out.startswith("out.npz as rotary, numpy float32: ")
    assert "skipped, since" in out
    assert ("pairs turn clockwise" in out) == (code == 1)
    assert run(capsys, *usual, "--fail-on-skip")[0] == 1
    got, out, _ = run(capsys, *usual, "--only", "partial")
    assert got == 2
    assert run(capsys, *usual, "--skip", "large", "--max-position", "50")[0] == code


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("scheme", names())
def test_what_is_expected_passes_as_results(scheme, suffix, tmp_path):
    vectors, path = load(scheme), tmp_path / f"results{suffix}"
    made = {}
    for k, case in enumerate(vectors["cases"]):
        parts = as_list(case["expected"])
        name = f"{k}" if len(parts) == 1 else f"{k}/{{}}"
        made |= {name.format(j): np.asarray(part) for j, part in enumerate(parts)}
    write(path, made)
    report = check_results(path, scheme)
    assert not report.failures, f"{report}"
    assert len({run.case["name"] for run in report.runs}) == len(
        {case["name"] for case in vectors["cases"]}
    )


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_is_written_is_what_the_cases_have(suffix, tmp_path):
    for scheme in ("rotary", "sinks", "causal_mask"):
        vectors, path = load(scheme), tmp_path / f"{scheme}{suffix}"
        export(vectors, path, "float32")
        arrays = read(path)
        about = json.loads(arrays.pop("about").tobytes())
        assert about["scheme"] == scheme
        assert [case["name"] for case in about["cases"]] == [
            case["name"] for case in vectors["cases"]
        ]
        order = [p["name"] for p in about["parameters"]]
        for k, (case, told) in enumerate(
            zip(vectors["cases"], about["cases"], strict=True)
        ):
            given = {n: arrays[f"{k}/{n}"] for n in order if f"{k}/{n}" in arrays}
            given |= told["texts"]
            plain = {
                n: x.item() if np.ndim(x) == 0 else x
                for n, x in given.items()
                if n not in told["texts"]
            }
            plain |= told["texts"]
            first = [plain.pop(n) for n in order[: len(case["arguments"])]]
            again = SCHEMES[scheme].function(*first, **plain)
            assert np.allclose(
                again, case["expected"], atol=1e-5 + 1e-9 * 2**20, equal_nan=True
            )
        data = {p["name"] for p in vectors["parameters"] if p["data"]}
        for name, array in arrays.items():
            if name.partition("/")[2] in data and array.dtype.kind == "f" and array.ndim:
                assert array.dtype == np.float32


BAD = {
    "another case": (
        {"99999": np.zeros(2)},
        "results must be named by the numbers of cases",
    ),
    "a number above the line": (
        {"\u00b2": np.zeros(2)},
        "results must be named by the numbers of cases",
    ),
    "no number": ({"first": np.zeros(2)}, "results must be named by the numbers of cases"),
    "none": ({}, "results must have an array for a case of rotary"),
}


@pytest.mark.parametrize(("arrays", "message"), BAD.values(), ids=BAD)
def test_results_that_are_none_are_refused(arrays, message, tmp_path):
    write(tmp_path / "out.npz", arrays)
    with pytest.raises(UsageError, match=message):
        check_results(tmp_path / "out.npz", "rotary")


def test_whole_numbers_are_compared_as_they_are(tmp_path):
    case = load("t5_bucket")["cases"][0]
    write(tmp_path / "out.npz", {"0": case["expected"]})
    report = check_results(tmp_path / "out.npz", "t5_bucket", Options(only=case["name"]))
    assert report.title == "out.npz as t5_bucket, numpy float64"
    assert not report.failures
    assert not report.skipped


def test_files_that_cannot_be_used_are_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "bad.npz").write_text("no arrays")
    with pytest.raises(UsageError, match=r"bad\.npz cannot be read"):
        check_results(tmp_path / "bad.npz", "rotary")
    for work in (lambda path: read(path), lambda path: write(path, {})):
        with pytest.raises(
            UsageError, match=r"must end in \.npz or \.safetensors, got .*x\.bin"
        ):
            work(tmp_path / "x.bin")
    with pytest.raises(
        UsageError, match="dtype must be float64, float32 or float16, got 'bfloat16'"
    ):
        export(load("rotary"), tmp_path / "x.npz", "bfloat16")
    code, _, err = run(capsys, "vectors", "rotary", "--output", tmp_path / "no" / "x.npz")
    assert (code, "--output cannot be written" in err) == (2, True)
    for arguments in ((), ("mine:rope", "--results", "x.npz")):
        code, _, err = run(capsys, "check", *arguments, "--scheme", "rotary")
        assert (code, "check needs a function, or --results, and not both" in err) == (
            2,
            True,
        )
    code, _, err = run(capsys, "check", "--results", "x.npz", "--config", "config.json")
    assert (code, "--results must come with --scheme" in err) == (2, True)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(UsageError, match="pip install safetensors"):
        read(tmp_path / "x.safetensors")
