"""Run somebody's own function on the vectors of a scheme, and say what fails and why.

Like the vectors, this needs NumPy, the function's own framework, and any Python from 3.8; only the
causes of failures need the reference.
"""

from collections import Counter

import numpy as np

from posattn.conformance import frameworks
from posattn.conformance.calling import Skip, left_out, name_of, same, signature_of
from posattn.conformance.report import Report
from posattn.conformance.running import defaults_of, differentiate, prepare, run
from posattn.conformance.vectors import UsageError, load

__all__ = ["assert_conforms", "check"]


def check(
    function,
    scheme,
    *,
    framework=None,
    dtype=None,
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
    A case fails if a number is wrong, a shape or a dtype, if an argument is changed in place, or if
    anything is raised, `SystemExit` included; the others are run nevertheless.
    What ends the process or never ends can be checked by the command, which has a time limit.

    Args:
        function: what is checked.
        scheme: one of `names()`.
        framework: `"numpy"`, `"torch"`, `"jax"`, `"mlx"` or `"tensorflow"`; if not given, what the
            module of the function imports.
        dtype: the name of the dtype of all data; positions and frequencies stay exact. If not given,
            float64 for NumPy and float32 for all others. JAX in its 32-bit mode takes float64 for
            float32.
        settings: values of keywords; only the cases that have them are run, and the function need
            not know these keywords.
        only: run only the cases that have this in their name.
        gradients: check the gradients too, of the cases whose values are right: for each array of
            data, parameters included; in PyTorch and JAX.

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
    options = framework, dtype, settings or {}, only, gradients
    return examine(function, scheme, *options, lambda runs, name: None)


def examine(function, scheme, framework, dtype, settings, only, gradients, begin):
    """What `check` does; it calls `begin(runs, name)` before each case, and once at the end."""
    vectors, framework, dtype = fitting(function, scheme, framework, dtype)
    cases = select(vectors, settings, only)
    if gradients and any("gradients" in case for case in cases):
        frameworks.differentiable(framework)
    runs, slopes, skipped = [], [], {}
    for case in cases:
        begin(runs + slopes, case["name"])
        try:
            prepared = prepare(function, vectors, case, settings, framework, dtype)
            runs.append(run(function, vectors, case, prepared))
            if gradients and "gradients" in case and not runs[-1].failed:
                slopes += differentiate(function, vectors, runs[-1], prepared, framework)
        except Skip as reason:
            skipped[case["name"]] = str(reason)
    begin(runs + slopes, None)
    if not runs:
        (reason, _), *_ = Counter(skipped.values()).most_common()
        raise UsageError(f"no case of {scheme} can be run, since {reason}")
    title = f"{name_of(function)} as {scheme}, {framework} {dtype}"
    report = Report(title, runs + slopes, skipped, [])
    if report.failures:
        from posattn.conformance.faults import explain

        report.causes = explain(scheme, runs) + explain(f"gradients of {scheme}", slopes)
    if gradients:
        report.notes.append(on_gradients(scheme, runs, slopes))
    varied = {name for case in vectors["cases"] for name in case["keywords"]}
    told = " ".join(skipped.values()).split()
    lost = left_out(function, defaults_of(vectors), settings)
    lost = [name for name in lost if name in varied and name not in told]
    if lost:
        took = f"{name_of(function)} has no parameter {' and '.join(lost)}"
        report.notes.append(f"{took}: only cases with the default were run")
    return report


def fitting(function, scheme, framework=None, dtype=None):
    """The vectors, the framework and the dtype for a function."""
    vectors = load(scheme)
    signature_of(function)
    framework = framework or frameworks.detect(function)
    dtype = dtype or ("float64" if framework == "numpy" else "float32")
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
    __tracebackhide__ = True  # pytest shows the caller
    report = check(function, scheme, **options)
    if report.failures:
        raise AssertionError(f"{report}")


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
