"""Make the vectors from the reference: `python -m posattn.conformance.generate`.

The reference computes each expected output, and the gradients by complex step.
"""

import inspect
import json
import sys
from dataclasses import replace

import numpy as np

from posattn.conformance.cases import attention, cache, latent, masks, selection, states
from posattn.conformance.report import as_list
from posattn.conformance.vectors import FOLDER
from posattn.reference.cases import draw
from posattn.reference.position import collect

VERSION = 1
STEP = 1e-30  # of complex differentiation, which subtracts nothing
COTANGENT = 9  # a seed
OWN = {**attention.CASES, **cache.CASES, **latent.CASES, **masks.CASES}
OWN |= {**selection.CASES, **states.CASES}
COLLECTED = {**collect("CASES"), **OWN}

# arguments whose arrays must not be rounded to the dtype of the data
EXACT = {
    "coordinates",
    "frequencies",
    "key_positions",
    "length_or_positions",
    "long_factors",
    "positions",
    "query_positions",
    "relative_position",
    "short_factors",
}
# Units in the last place of the largest number of a result, for each dtype. A rounding costs at most
# half of one: in float32, 96 units are a chain of 192 roundings that all go the same way. Half
# precisions are summed in float32 and rounded between steps: 4 units are 8 of these roundings.
# In float64, the reference itself is only so exact.
UNIT = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
UNITS = {"float32": 96, "float16": 4, "bfloat16": 4}
TOLERANCE = {"float64": 1e-12, **{name: UNITS[name] * UNIT[name] for name in UNITS}}
LARGEST = {name: float(np.finfo(name).max) for name in ("float64", "float32", "float16")}
LARGEST["bfloat16"] = (2 - UNIT["bfloat16"]) * 2.0**127


def as_imported(cases):
    """The cases of the function as users import it, with its checks: the column adds them at its end."""
    home = sys.modules[cases.function.__module__]
    return replace(cases, function=getattr(home, cases.function.__name__, cases.function))


SCHEMES = {name: as_imported(cases) for name, cases in COLLECTED.items()}


def make(name):
    """Return the vectors of one scheme, with NumPy arrays."""
    scheme = SCHEMES[name]
    return {
        "version": VERSION,
        "scheme": name,
        "function": scheme.name or scheme.function.__name__,
        **({"method": scheme.method} if scheme.method else {}),
        "what": scheme.cases.__doc__.strip(),
        "source": scheme.source,
        "parameters": parameters(scheme),
        "relative": scheme.relative,
        **({"results": scheme.results} if scheme.results else {}),
        "cases": [finish(scheme, *case) for case in scheme.cases()],
    }


def parameters(scheme):
    """The names of the parameters in order, whether they hold data, and the defaults."""
    declared = inspect.signature(scheme.function).parameters.values()
    return [
        {
            "name": p.name,
            "data": p.name not in EXACT,
            "keyword": p.kind is p.KEYWORD_ONLY,
            **({} if p.default is p.empty else {"default": p.default}),
            **({"wide": True} if p.name in scheme.kept else {}),
        }
        for p in declared
        if p.name not in ("dropout_rate", "rng")
    ]


def finish(scheme, name, arguments, keywords):
    """Add what is expected, how exactly, and the gradients."""
    expected = scheme.function(*arguments, **keywords)
    several = isinstance(expected, tuple)
    case = {
        "name": name,
        "arguments": list(arguments),
        "keywords": keywords,
        "expected": [np.asarray(x) for x in expected] if several else expected,
        "tolerance": tolerance(scheme, arguments, keywords, expected),
    }
    moving = differentiable(scheme, arguments, keywords)
    if moving and np.asarray(expected).dtype.kind != "i":  # what is chosen has no slope
        case["cotangent"] = draw(COTANGENT, *expected.shape)
        case["gradients"] = gradients(
            scheme, arguments, keywords, moving, case["cotangent"]
        )
    return case


def differentiable(scheme, arguments, keywords):
    """The arrays that have gradients, by name: the data, and what is learned."""
    names = list(inspect.signature(scheme.function).parameters)
    given = {**dict(zip(names, arguments, strict=False)), **keywords}
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        if name not in EXACT or name in scheme.learned
    }


def tolerance(scheme, arguments, keywords, expected):
    """How far each dtype that holds the numbers may be off.

    A float64 angle is only as exact as its position is small. Half precisions are left out where
    they will not do.
    """
    names = inspect.signature(scheme.function).parameters
    where = [
        np.max(np.abs(value), initial=0)
        for name, value in zip(names, arguments, strict=False)
        if name in EXACT and isinstance(value, np.ndarray)
    ]
    farthest = float(max(where, default=0))
    data = differentiable(scheme, arguments, keywords).values()
    sizes = (
        np.abs(x[np.isfinite(x)]) for x in map(np.asarray, (*as_list(expected), *data))
    )
    largest = max(np.max(x, initial=0) for x in sizes)
    holding = {name for name in TOLERANCE if largest <= LARGEST[name]}
    holding -= {"float16", "bfloat16"} if scheme.exact else set()
    return {
        **{name: bound for name, bound in TOLERANCE.items() if name in holding},
        "float64": max(TOLERANCE["float64"], 1e-15 * farthest),
    }


def gradients(scheme, arguments, keywords, moving, cotangent):
    """The gradients of `sum(cotangent * function(*arguments, **keywords))`, by name, entry by entry."""
    names = list(inspect.signature(scheme.function).parameters)[: len(arguments)]

    def slope(name, at):
        """How the sum changes with one entry."""
        moved = {name: x.astype(complex) for name, x in moving.items()}
        moved[name][at] += 1j * STEP
        given = {**dict(zip(names, arguments, strict=True)), **keywords, **moved}
        first = [given.pop(name) for name in names]
        return np.sum(cotangent * scheme.function(*first, **given).imag) / STEP

    return {
        name: np.array([slope(name, at) for at in np.ndindex(x.shape)]).reshape(x.shape)
        for name, x in moving.items()
    }


def encode(value):
    """The JSON form of an array."""
    if isinstance(value, np.ndarray):
        data = [x if np.isfinite(x) else str(x) for x in value.ravel().tolist()]
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    raise TypeError(f"value must be an array, got {type(value).__name__}")


def to_json(vectors):
    """The text of one scheme's vectors, a case per line."""
    head = json.dumps({**vectors, "cases": []}).removesuffix("]}")
    cases = (
        json.dumps(case, default=encode, allow_nan=False, separators=(",", ":"))
        for case in vectors["cases"]
    )
    return head + "\n" + ",\n".join(cases) + "\n]}\n"


def main():
    """Write all files."""
    for name in SCHEMES:
        (FOLDER / f"{name}.json").write_text(to_json(make(name)), encoding="utf-8")


if __name__ == "__main__":
    main()
