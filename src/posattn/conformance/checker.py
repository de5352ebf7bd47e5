"""Run somebody's own function on the vectors of a scheme, and say what fails and why.

Like the vectors, this needs NumPy, the function's own framework, and any Python from 3.8; only the
causes of failures need the reference.
"""

from collections import Counter
from numbers import Real

import numpy as np

from posattn import contract
from posattn.conformance import frameworks
from posattn.conformance.calling import Skip, call, choose, name_of, same, signature_of
from posattn.conformance.report import Report, Run, as_list
from posattn.conformance.vectors import UsageError, load

__all__ = ["assert_conforms", "check"]


def check(
    function,
    scheme,
    *,
    framework=None,
    dtype="float32",
    settings=None,
    only="",
    gradients=False,
):
    """Run a function on the vectors of a scheme.

    It is called as the scheme's own definition is, `function(*arguments, **keywords)`, with arrays
    of its framework.
    A function or a class that takes the keywords first and returns something callable will do, too.
    Keywords that it does not know are left out where they have their default; other such cases
    are skipped.
    All cases are run in one order in one process, so that a stale cache shows.

    Args:
        function: what is checked.
        scheme: one of `names()`.
        framework: `"numpy"`, `"torch"`, `"jax"`, `"mlx"` or `"tensorflow"`; if not given, what the
            module of the function imports.
        dtype: the name of the dtype of all data; positions and frequencies stay exact. JAX in its
            32-bit mode takes float64 for float32.
        settings: values of keywords; only the cases that have them are run, and the function need
            not know these keywords.
        only: run only the cases that have this in their name.
        gradients: check the gradients too where the vectors have them, of the cases whose values
            are right; in PyTorch and JAX.

    Returns:
        A `Report`.

    Raises:
        UsageError: if the scheme, the framework or the dtype is unknown, if no case fits the
            function, or if a result has a wrong shape.

    Examples:
        >>> from posattn.reference import sinusoidal_encoding
        >>> print(check(sinusoidal_encoding, "sinusoidal", dtype="float64"))
        sinusoidal_encoding as sinusoidal, numpy float64: all 15 pass
    """
    vectors, settings = load(scheme), settings or {}
    signature_of(function)
    framework = framework or frameworks.detect(function)
    frameworks.make(framework, np.zeros(1), dtype)
    runs, slopes, skipped = [], [], {}
    for case in select(vectors, settings, only):
        try:
            prepared = prepare(function, vectors, case, settings, framework, dtype)
            runs.append(run(function, vectors, case, prepared))
            if gradients and "gradients" in case and not runs[-1].failed:
                slopes += differentiate(function, runs[-1], prepared, framework)
        except Skip as reason:
            skipped[case["name"]] = str(reason)
    if not runs:
        (reason, _), *_ = Counter(skipped.values()).most_common()
        raise UsageError(f"no case of {scheme} can be run, since {reason}")
    title = f"{name_of(function)} as {scheme}, {framework} {dtype}"
    report = Report(title, runs + slopes, skipped, [])
    if report.failures:
        from posattn.conformance.faults import explain

        report.causes = explain(scheme, runs) + explain(f"gradients of {scheme}", slopes)
    return report


def assert_conforms(function, scheme, **options):
    """Fail, with what `check` found, unless a function passes all cases of a scheme.

    Args:
        function: what is checked.
        scheme: one of `names()`.
        options: `framework`, `dtype`, `settings`, `only` and `gradients` of `check`.

    Raises:
        AssertionError: if a case fails.
        UsageError: if the check cannot be run.

    Examples:
        >>> from posattn.reference import sinusoidal_encoding
        >>> assert_conforms(sinusoidal_encoding, "sinusoidal")
    """
    __tracebackhide__ = True
    report = check(function, scheme, **options)
    if report.failures:
        raise AssertionError(f"{report}")


def defaults_of(vectors):
    """The keywords of a scheme that have a default, and the defaults."""
    return {
        p["name"]: p["default"]
        for p in vectors["parameters"]
        if p["keyword"] and "default" in p
    }


def select(vectors, settings, only):
    """The cases with `only` in their names, in which each keyword is as it was set."""
    defaults = defaults_of(vectors)
    cases = [case for case in vectors["cases"] if only in case["name"]]
    if not cases:
        raise UsageError(f"only must be part of a case's name, got {only!r}")
    for name, value in settings.items():
        known = [p["name"] for p in vectors["parameters"] if p["keyword"]]
        if name not in known:
            raise UsageError(f"settings must name one of {', '.join(known)}, got {name!r}")
        values = [case["keywords"].get(name, defaults.get(name)) for case in cases]
        cases = [case for case, has in zip(cases, values) if same(has, value)]
        if not cases:
            seen = sorted({repr(has) for has in values if not hasattr(has, "shape")})
            raise UsageError(f"{name} must be one of {', '.join(seen)}, got {value!r}")
    return cases


def prepare(function, vectors, case, settings, framework, dtype):
    """The arguments by name and the keywords of one case, as arrays of the framework."""
    if dtype not in case["tolerance"]:
        raise Skip(f"{dtype} cannot hold the numbers")
    data = {p["name"] for p in vectors["parameters"] if p["data"]}

    def convert(name, value):
        if not isinstance(value, np.ndarray):
            return value
        as_data = name in data and value.dtype.kind == "f"
        return frameworks.make(framework, value, dtype if as_data else None)

    names = [p["name"] for p in vectors["parameters"]]
    named = {name: convert(name, x) for name, x in zip(names, case["arguments"])}
    keywords = choose(function, defaults_of(vectors), case["keywords"], settings)
    return named, {name: convert(name, x) for name, x in keywords.items()}


def run(function, vectors, case, prepared):
    """Call the function on one case."""
    named, keywords = prepared
    try:
        made = call(function, named, keywords, vectors.get("method", ""))
    except Skip:
        raise
    except Exception as error:
        return Run(case, error)
    got = read(function, case, made)
    data = {p["name"] for p in vectors["parameters"] if p["data"]}
    given = [x for name, x in {**named, **keywords}.items() if name in data]
    dtypes = [contract.dtype(x) for x in given if hasattr(x, "dtype")] or [
        contract.dtype(x) for x in as_list(made) if hasattr(x, "dtype")
    ]
    tolerance = max(case["tolerance"].get(name, 0.0) for name in [*dtypes, "float64"])
    return Run(case, got, tolerance, vectors["relative"])


def differentiate(function, value, prepared, framework):
    """A run for each gradient of a case whose value is right."""
    case, (named, keywords) = value.case, prepared
    names = list(named)[: len(case["gradients"])]
    moving = [named[name] for name in names]
    cotangent = frameworks.make(framework, case["cotangent"], contract.dtype(moving[0]))

    def moved(*values):
        return call(function, {**named, **dict(zip(names, values))}, keywords)

    try:
        slopes = frameworks.differentiate(framework, moved, moving, cotangent)
        got = [frameworks.read(x) for x in slopes]
    except UsageError:
        raise
    except Exception as error:
        got = [error] * len(names)
    return [
        Run(
            {
                "name": f"{case['name']}: gradient of {name}",
                "arguments": [name, wanted, *case["arguments"]],
                "keywords": case["keywords"],
                "expected": wanted,
            },
            slope,
            value.tolerance,
        )
        for name, wanted, slope in zip(names, case["gradients"], got)
    ]


def read(function, case, made):
    """The results as NumPy arrays of float64, as many and of the shapes that are expected."""
    where = f"in the case {case['name']!r}"
    wanted, results = as_list(case["expected"]), as_list(made)
    if not all(hasattr(x, "shape") or isinstance(x, Real) for x in results):
        kind = type(made).__name__
        raise UsageError(f"{name_of(function)} must return arrays, got {kind}, {where}")
    expected, shapes = ([tuple(np.shape(x)) for x in xs] for xs in (wanted, results))
    if shapes != expected:
        ours, theirs = (" and ".join(map(str, xs)) for xs in (expected, shapes))
        raise UsageError(
            f"{name_of(function)} must return shape {ours}, got {theirs}, {where}"
        )
    try:
        got = [frameworks.read(x) for x in results]
    except (TypeError, ValueError):
        kind = contract.dtype(results[0])
        raise UsageError(
            f"{name_of(function)} must return numbers, got {kind}, {where}"
        ) from None
    return got if isinstance(case["expected"], list) else got[0]
