"""Run one case: call the function, read what it returns, and see what it did besides."""

from numbers import Real

import numpy as np

from posattn import contract
from posattn.conformance import frameworks
from posattn.conformance.calls import Skip, arrays, call, choose
from posattn.conformance.report import Run, as_list

__all__ = ["defaults_of", "differentiate", "prepare", "run"]


def defaults_of(vectors):
    """The keywords of a scheme that have a default, and the defaults."""
    return {
        p["name"]: p["default"]
        for p in vectors["parameters"]
        if p["keyword"] and "default" in p
    }


def prepare(function, vectors, case, settings, framework, dtype):
    """The arguments by name and the keywords of one case, as arrays of the framework."""
    if dtype not in case["tolerance"]:
        raise Skip(f"{dtype} cannot hold the numbers")
    data = {p["name"] for p in vectors["parameters"] if p["data"]}
    wide = {p["name"] for p in vectors["parameters"] if p.get("wide")}

    def convert(name, value):
        if isinstance(value, list):  # of steps
            return [convert(name, part) for part in value]
        if isinstance(value, dict):
            return {key: convert(name, part) for key, part in value.items()}
        if not isinstance(value, np.ndarray):
            return value
        as_data = name in data and value.dtype.kind == "f"
        own = "float32" if name in wide and dtype in ("float16", "bfloat16") else dtype
        return frameworks.make(framework, value, own if as_data else None)

    names = [p["name"] for p in vectors["parameters"]]
    named = {name: convert(name, x) for name, x in zip(names, case["arguments"])}
    keywords = choose(function, defaults_of(vectors), case["keywords"], settings)
    return named, {name: convert(name, x) for name, x in keywords.items()}


def run(function, vectors, case, prepared):
    """Call the function on one case; whatever it raises is a result, but for Ctrl-C."""
    named, keywords = prepared
    given = dict(arrays({**named, **keywords}))
    before = {name: frameworks.read(x) for name, x in given.items()}
    try:
        made = call(function, named, keywords, vectors.get("method", ""))
        complaints = [
            f"changes its argument {name} in place"
            for name, x in given.items()
            if not np.array_equal(frameworks.read(x), before[name], equal_nan=True)
        ]
        got, unfit = read(case, made, vectors.get("results"))
    except (KeyboardInterrupt, Skip):
        raise
    except BaseException as error:
        return Run(case, error)
    data = {p["name"] for p in vectors["parameters"] if p["data"]}
    data -= {p["name"] for p in vectors["parameters"] if p.get("wide")}
    dtypes = {contract.dtype(x) for name, x in given.items() if name.split("/")[0] in data}
    returned = [contract.dtype(x) for x in as_list(made) if hasattr(x, "dtype")]
    complaints += unfit or wrong_dtypes(case, dtypes & set(frameworks.DTYPES), returned)
    bounds = [case["tolerance"].get(name, 0.0) for name in (dtypes or returned)]
    return Run(
        case,
        got,
        max([case["tolerance"]["float64"], *bounds]),
        vectors["relative"],
        complaints,
    )


def read(case, made, kind=None):
    """The results as NumPy arrays of float64, none if they cannot be; and what is wrong with them.

    A result of the kind `"mask"` may be True and False, or be added to the scores.
    """
    results = as_list(made)
    other = [x for x in results if not (hasattr(x, "shape") or isinstance(x, Real))]
    if other:
        return [], [f"returns {type(other[0]).__name__}, and not arrays"]
    try:
        got = [frameworks.read(x) for x in results]
    except (TypeError, ValueError):
        return [], [f"returns {contract.dtype(results[0])}, and not numbers"]
    if kind == "mask":
        got = [
            x if str(contract.dtype(y)).endswith("bool") else seen(x)
            for x, y in zip(got, results)
        ]
    wanted, shapes = ([x.shape for x in xs] for xs in (as_list(case["expected"]), got))
    if len(shapes) == len(wanted) and shapes != wanted:  # the first wrong one says enough
        wanted, shapes = next(([x], [y]) for x, y in zip(wanted, shapes) if x != y)
    several = isinstance(case["expected"], list) or len(got) != 1
    return got if several else got[0], (
        [f"returns shape {told(shapes)}, where {told(wanted)} is expected"]
        if shapes != wanted
        else []
    )


def seen(added):
    """Where a mask that is added to scores hides nothing: 0 does not, and -10000 and less hides."""
    return np.where(added == 0, 1.0, np.where(added <= -1e4, 0.0, added))


def told(shapes):
    """Shapes in words."""
    return " and ".join(str(tuple(shape)) for shape in shapes) or "of nothing"


def wrong_dtypes(case, given, returned):
    """What is wrong with the dtypes of the results: they are those of the data, or whole numbers."""
    if as_list(case["expected"])[0].dtype.kind == "i":
        return [
            f"returns {name}, and not whole numbers"
            for name in returned
            if "int" not in name
        ]
    if len(given) != 1:
        return []
    (wanted,) = given
    wrong = sorted(set(returned) - {wanted})
    return [f"returns {name}, where its data are {wanted}" for name in wrong]


def differentiate(function, vectors, value, prepared, framework):
    """A run for each gradient of a case whose value is right."""
    case, (named, keywords) = value.case, prepared
    given = {**named, **keywords}
    moving = {name: given[name] for name in case["gradients"]}
    cotangent = frameworks.make(
        framework, case["cotangent"], contract.dtype(next(iter(moving.values())))
    )

    def moved(*values):
        new = {**given, **dict(zip(moving, values))}
        return call(
            function,
            {name: new[name] for name in named},
            {name: new[name] for name in keywords},
            vectors.get("method", ""),
        )

    try:
        slopes = frameworks.differentiate(framework, moved, [*moving.values()], cotangent)
        got = [frameworks.read(x) for x in slopes]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        got = [error] * len(moving)
    return [
        Run(
            {
                "name": f"{case['name']}: gradient of {name}",
                "arguments": [name, case["gradients"][name], *case["arguments"]],
                "keywords": case["keywords"],
                "expected": case["gradients"][name],
            },
            slope,
            value.tolerance,
        )
        for name, slope in zip(moving, got)
    ]
