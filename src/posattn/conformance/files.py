"""Vectors and results as files, for engines that are no functions of Python.

`export` writes the inputs of all cases, an engine writes its results, and `check_results` compares
them.
Both files are `.npz` or `.safetensors`: arrays by name.
"""

import json
from pathlib import Path

import numpy as np

from posattn.conformance.calls import arrays as named_arrays
from posattn.conformance.checker import Options, examine, select
from posattn.conformance.vectors import UsageError, load

__all__ = ["check_results", "export"]

ABOUT = "about"  # the array of bytes that tells of the cases, in JSON


def export(vectors, path, dtype="float64"):
    """Write the inputs of all cases into a file.

    The array `"k/name"` is the argument or keyword `name` of case k, counted from 0; whole numbers are
    int64, True and False are bool, and a plain number is an array without axes.
    The array `"about"` holds bytes of JSON: the scheme, the parameters in their order, and for each case
    its name, the keywords that are texts, and the methods of its steps; `"k/steps/0/key"` is an argument
    of the first.

    Args:
        vectors: what `load` returns.
        path: a file that ends in `.npz` or `.safetensors`.
        dtype: of the data, `"float64"`, `"float32"` or `"float16"`; positions and frequencies stay float64.

    Raises:
        UsageError: if the path ends otherwise, or the dtype is none of these.
    """
    if dtype not in ("float64", "float32", "float16"):
        raise UsageError(f"dtype must be float64, float32 or float16, got {dtype!r}")
    data = {p["name"] for p in vectors["parameters"] if p["data"]}
    names = [p["name"] for p in vectors["parameters"]]
    arrays, cases = {}, []
    for k, case in enumerate(vectors["cases"]):
        given = {**dict(zip(names, case["arguments"])), **case["keywords"]}
        texts = {name: x for name, x in given.items() if isinstance(x, str)}
        steps = given.pop("steps", [])
        for name, value in {**given, **dict(named_arrays(steps, "steps"))}.items():
            if value is not None and name not in texts:
                array = np.asarray(value)
                rounded = name.split("/")[0] in data and array.dtype.kind == "f"
                arrays[f"{k}/{name}"] = array.astype(dtype) if rounded else array
        plain = [
            {key: x for key, x in step.items() if key in ("do", "n")} for step in steps
        ]
        cases.append({"name": case["name"], "texts": texts, "steps": plain})
    about = {name: vectors[name] for name in ("scheme", "what", "parameters")}
    text = json.dumps({**about, "cases": cases}).encode()
    write(Path(path), {ABOUT: np.frombuffer(text, np.uint8), **arrays})


def check_results(path, scheme, options=None):
    """Check what an engine made of exported vectors.

    The array `"k"` is the result of case k; if a case has several, they are `"k/0"`, `"k/1"` and so on.
    Cases without a result are skipped.

    Args:
        path: a file that ends in `.npz` or `.safetensors`.
        scheme: one of `names()`.
        options: `checker.Options`; the dtype is that of the results.

    Returns:
        A `Report`.

    Raises:
        UsageError: if the file cannot be read, has no results, or an array that belongs to no case.
    """
    vectors, options = load(scheme), options or Options()
    cases = [{**case, "number": k} for k, case in enumerate(vectors["cases"])]
    arrays, found = read(Path(path)), {}
    for name in sorted(arrays, key=lambda name: (len(name), name)):
        k, _, _ = name.partition("/")
        if not (k.isdecimal() and int(k) < len(cases)):
            raise UsageError(
                f"results must be named by the numbers of cases, 0 to {len(cases) - 1}, got {name!r}"
            )
        found.setdefault(int(k), []).append(arrays[name])
    floating = [x.dtype.name for x in arrays.values() if x.dtype.kind == "f"]
    dtype = floating[0] if floating else "float64"
    chosen, away = select({**vectors, "cases": cases}, options)
    kept = [c for c in chosen if c["number"] in found and dtype in c["tolerance"]]
    if not kept:
        raise UsageError(
            f"results must have an array for a case of {scheme}, {path} has none"
        )
    rest = iter([found[case["number"]] for case in kept])

    def engine(*steps, **keywords):
        """The next result, whatever is given."""
        made = next(rest)
        return made if len(made) > 1 else made[0]

    engine.__name__ = Path(path).name
    run = options._replace(
        framework="numpy", dtype=dtype, settings=None, only="", skip=(), max_position=None
    )
    report = examine(engine, {**vectors, "cases": kept}, run, lambda runs, name: None)
    numbers = {case["number"] for case in kept}
    missing = [case["name"] for case in chosen if case["number"] not in numbers]
    report.skipped = dict.fromkeys(missing, f"{path} has no result of it")
    report.left_out = away
    return report


def write(path, arrays):
    """Write arrays by name."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        safetensors().save_file(arrays, path)
    else:
        raise UsageError(f"a file of arrays must end in .npz or .safetensors, got {path}")


def read(path):
    """Read arrays by name."""
    if path.suffix not in (".npz", ".safetensors"):
        raise UsageError(f"a file of arrays must end in .npz or .safetensors, got {path}")
    try:
        if path.suffix == ".npz":
            with np.load(path) as file:
                return {name: file[name] for name in file.files}
        return safetensors().load_file(path)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def safetensors():
    """The package that reads and writes these files."""
    try:
        import safetensors.numpy
    except ImportError:
        raise UsageError("safetensors must be installed: pip install safetensors") from None
    return safetensors.numpy
