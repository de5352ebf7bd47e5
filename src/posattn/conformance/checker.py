"""Run somebody's own function on the vectors of a scheme, and say what fails and why.

Like the vectors, this needs NumPy, the function's own framework, and any Python from 3.8; only the
causes of failures need the reference.
"""

import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from posattn.conformance import frameworks
from posattn.conformance.calls import Skip, arrays, left_out, name_of, same, signature_of
from posattn.conformance.expected import expected
from posattn.conformance.report import Report
from posattn.conformance.runner import defaults_of, differentiate, prepare, run
from posattn.conformance.steps import played
from posattn.conformance.vectors import UsageError, load

__all__ = ["assert_conforms", "check"]

FLOAT32_ANGLES, EXACT = "float32-angles", "exact"
ANGLES = {"base", "frequencies"}  # parameters of what makes angles of positions
# parameters that say where tokens stand
PLACES = {
    "coordinates",
    "key_positions",
    "length_or_positions",
    "positions",
    "query_positions",
    "relative_position",
}


class Options(NamedTuple):
    """What a user asked of a check: the keywords of `check`."""

    framework: object = None
    dtype: object = None
    settings: object = None
    only: str = ""
    skip: object = ()
    max_position: object = None
    tolerance: object = None
    gradients: bool = False
    expected_failures: object = None
    strict: bool = False


def check(
    function,
    scheme,
    *,
    framework=None,
    dtype=None,
    settings=None,
    only="",
    skip=(),
    max_position=None,
    tolerance=None,
    gradients=False,
    expected_failures=None,
    strict=False,
):
    """Run a function on the vectors of a scheme.

    It is called as the scheme's own definition is, `function(*arguments, **keywords)`, with arrays
    of its framework.
    A function or a class that takes the keywords first and returns something callable will do, too.
    Keywords that it does not know are left out where they have their default; other such cases
    are skipped.
    All cases are run in one order in one process, so that a stale cache shows.
    A case fails if a number is wrong, a shape or a dtype, if an argument is changed in place, or if
    anything is raised, `SystemExit` included; the others are run nevertheless.
    What ends the process or never ends can be checked by the command, which has a time limit.

    Args:
        function: what is checked; for the scheme `"cache"`, what makes a cache.
        scheme: one of `names()`, or vectors as `load` returns them.
        framework: `"numpy"`, `"torch"`, `"jax"`, `"mlx"` or `"tensorflow"`; if not given, what the
            module of the function imports.
        dtype: the name of the dtype of all data; positions and frequencies stay exact. If not given,
            float64 for NumPy and float32 for all others. JAX in its 32-bit mode takes float64 for
            float32.
        settings: values of keywords; only the cases that have them are run, and the function need
            not know these keywords.
        only: run only the cases that have this in their name.
        skip: leave out the cases that have this in their name; a string, or several.
        max_position: leave out the cases in which a position is farther from 0 than this.
        tolerance: how far off a result may be, in place of the tolerance of each case: a number, a
            number for each dtype by its name, or `"float32-angles"`, as exact as angles in float32
            allow: the tolerance grows by `2 ** -23` with each position. If not given, it grows so where
            something rotates, but for float64; with `"exact"` it never grows.
        gradients: check the gradients too, of the cases whose values are right: for each array of
            data, parameters included; in PyTorch and JAX.
        expected_failures: a file whose lines name the cases that you know to fail, as `rotary: decoding:
            one token`; the report then tells of the others, and of a case among these that passes.
        strict: a case that passes though it is expected to fail is a failure.

    Returns:
        A `Report`.

    Raises:
        UsageError: if the scheme, the framework or the dtype is unknown, or if no case fits the
            function.

    Examples:
        >>> from posattn.reference import sinusoidal_encoding
        >>> print(check(sinusoidal_encoding, "sinusoidal", dtype="float64"))
        sinusoidal_encoding as sinusoidal, numpy float64: all 15 pass
    """
    options = Options(
        *(framework, dtype, settings, only, skip, max_position, tolerance, gradients),
        *(expected_failures, strict),
    )
    return examine(function, scheme, options, lambda runs, name: None)


def examine(function, scheme, options, begin):
    """What `check` does; it calls `begin(runs, name)` before each case, and once at the end."""
    vectors, framework, dtype = fitting(function, scheme, options)
    function = played(function) if vectors["parameters"][0]["name"] == "steps" else function
    scheme, settings = vectors["scheme"], options.settings or {}
    known = expected(options.expected_failures, vectors), options.strict
    cases, away = select(vectors, options)
    if options.gradients and any("gradients" in case for case in cases):
        frameworks.differentiable(framework)
    runs, slopes, skipped = [], [], {}
    for case in cases:
        begin(runs + slopes, case["name"])
        try:
            prepared = prepare(function, vectors, case, settings, framework, dtype)
            runs.append(run(function, vectors, case, prepared))
            if options.gradients and "gradients" in case and not runs[-1].failed:
                slopes += differentiate(function, vectors, runs[-1], prepared, framework)
        except Skip as reason:
            skipped[case["name"]] = str(reason)
    begin(runs + slopes, None)
    if not runs:
        (reason, _), *_ = Counter(skipped.values()).most_common()
        positional = (p["name"] for p in vectors["parameters"] if not p["keyword"])
        called = f"; it is called with {', '.join(positional)}" * ("not fit" in reason)
        called = called.replace("steps", "the options of a case")
        raise UsageError(f"no case of {scheme} can be run, since {reason}{called}")
    title = f"{name_of(function)} as {scheme}, {framework} {dtype}"
    if options.tolerance is not None:
        title += f", tolerance {options.tolerance}"
    hint = vectors["hint"](runs) if "hint" in vectors else ""
    report = Report(title, runs + slopes, skipped, [], [], away, hint, *known)
    if report.failures:
        from posattn.conformance.faults import explain

        report.causes = explain(scheme, runs, vectors.get("faults"))
        report.causes += explain(f"gradients of {scheme}", slopes)
    if options.gradients:
        report.notes.append(on_gradients(scheme, runs, slopes))
    varied = {name for case in vectors["cases"] for name in case["keywords"]}
    told = " ".join(skipped.values()).split()
    lost = left_out(function, defaults_of(vectors), settings)
    lost = [name for name in lost if name in varied and name not in told]
    if lost:
        took = f"{name_of(function)} has no parameter {' and '.join(lost)}"
        report.notes.append(f"{took}: only cases with the default were run")
    return report


def fitting(function, scheme, options):
    """The vectors, the framework and the dtype for a function."""
    vectors = scheme if isinstance(scheme, dict) else load(scheme)
    signature_of(function)
    framework = options.framework or frameworks.detect(function)
    dtype = options.dtype or ("float64" if framework == "numpy" else "float32")
    frameworks.make(framework, np.zeros(1), dtype)
    return vectors, framework, dtype


def on_gradients(scheme, runs, slopes):
    """What was differentiated, in a sentence."""
    able = [run for run in runs if "gradients" in run.case]
    if not able:
        return f"no gradients: {scheme} has no data that they could be of"
    right = sum(not run.failed for run in able)
    return (
        f"{len(slopes)} gradients were checked, in {right} of {len(able)} cases: "
        "those whose values are right"
    )


def assert_conforms(function, scheme, *, fail_on_skip=False, **options):
    """Fail, with what `check` found, unless a function passes all cases of a scheme.

    Args:
        function: what is checked.
        scheme: what `check` takes.
        fail_on_skip: fail too if a case cannot be run, since the function lacks a parameter.
        options: those of `check`.

    Raises:
        AssertionError: if a case fails.
        UsageError: if the check cannot be run.

    Examples:
        >>> from posattn.reference import sinusoidal_encoding
        >>> assert_conforms(sinusoidal_encoding, "sinusoidal")
    """
    __tracebackhide__ = True  # pytest shows the caller
    report = check(function, scheme, **options)
    if not report.passed(fail_on_skip):
        raise AssertionError(f"{report}")


def select(vectors, options):
    """The cases that were asked for, with the tolerance that was, and the names of those left out.

    They have `only` in their names, and each keyword is as it was set.
    """
    defaults = defaults_of(vectors)
    cases = [case for case in vectors["cases"] if options.only in case["name"]]
    if not cases:
        raise UsageError(f"only must be part of a case's name, got {options.only!r}")
    for name, value in (options.settings or {}).items():
        known = [p["name"] for p in vectors["parameters"] if p["keyword"]]
        if name not in known:
            some = f"name one of {', '.join(known)}" if known else "be left out here"
            raise UsageError(f"settings must {some}, got {name!r}")
        values = [case["keywords"].get(name, defaults.get(name)) for case in cases]
        cases = [case for case, has in zip(cases, values) if same(has, value)]
        if not cases:
            seen = sorted({repr(has) for has in values if not hasattr(has, "shape")})
            raise UsageError(f"{name} must be one of {', '.join(seen)}, got {value!r}")
    farthest = options.max_position
    if not (farthest is None or (is_number(farthest) and farthest >= 0)):
        raise UsageError(f"max_position must be a number of at least 0, got {farthest!r}")
    words = [options.skip] if isinstance(options.skip, str) else options.skip
    if not (isinstance(words, (list, tuple)) and all(isinstance(x, str) for x in words)):
        raise UsageError(f"skip must be a string or several, got {options.skip!r}")
    kept = [case for case in cases if not unwanted(vectors, case, words, farthest)]
    if not kept:
        raise UsageError("skip and max_position must leave a case, and leave none")
    bounded = [{**case, "tolerance": bounds(vectors, case, options)} for case in kept]
    names = {case["name"] for case in kept}
    return bounded, [case["name"] for case in cases if case["name"] not in names]


def is_number(value):
    """Whether a value is a plain number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def unwanted(vectors, case, words, farthest):
    """Whether a case is to be left out."""
    if any(word in case["name"] for word in words):
        return True
    return farthest is not None and place_of(vectors, case) > farthest


def place_of(vectors, case):
    """The position of a case that is farthest from 0."""
    names = [p["name"] for p in vectors["parameters"]]
    given = {**dict(zip(names, case["arguments"])), **case["keywords"]}
    lengths = {name: x for name, x in given.items() if is_number(x)}
    found = {**lengths, **dict(arrays(given))}.items()
    places = [np.abs(x) for name, x in found if name.rpartition("/")[2] in PLACES]
    return max((np.max(place, initial=0) for place in places), default=0)


def bounds(vectors, case, options):
    """The tolerance of each dtype, in a case."""
    usual, asked = case["tolerance"], options.tolerance
    turns = asked is None and ANGLES & {p["name"] for p in vectors["parameters"]}
    if turns or asked == FLOAT32_ANGLES:
        angle = 2.0**-23 * float(place_of(vectors, case))
        grows = {dtype: angle for dtype in usual if asked or dtype != "float64"}
        return {dtype: bound + grows.get(dtype, 0.0) for dtype, bound in usual.items()}
    if asked in (None, EXACT):
        return usual
    given = asked if isinstance(asked, dict) else dict.fromkeys(usual, asked)
    for dtype, bound in given.items():
        if dtype not in frameworks.DTYPES:
            names = ", ".join(frameworks.DTYPES)
            raise UsageError(f"tolerance must be for one of {names}, got {dtype!r}")
        if not (is_number(bound) and 0 <= bound < math.inf):
            raise UsageError(
                f"tolerance must be a number of at least 0, {FLOAT32_ANGLES!r} or {EXACT!r}, got {bound!r}"
            )
    return {dtype: given.get(dtype, bound) for dtype, bound in usual.items()}
