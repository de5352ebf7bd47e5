"""A check as tests: pytest collects one for each case, by the plugin `posattn.pytest_plugin`."""

import functools
import inspect
import sys
import types
from pathlib import Path

from posattn.conformance.checker import Options, assert_conforms, check, fitting, select
from posattn.conformance.expected import belongs, expected
from posattn.conformance.report import wrapped
from posattn.conformance.vectors import UsageError

__all__ = ["conforms"]


def conforms(function, scheme, **options):
    """Make a test of each case of a scheme, for pytest to collect.

    It stands where a test function would: `test_rope = conforms(rope, "rotary")`.
    All cases are run in their order when the first test is, however many are selected, so that a
    stale cache shows; each test tells of one case.
    One that the function has no parameter for is skipped.
    One that is expected to fail is marked `xfail`.
    Where the plugin `posattn` is switched off, the result is one test, of all cases.

    Args:
        function: what is checked.
        scheme: what `check` takes.
        options: those of `check`; the file `expected_failures` is looked for beside the caller's.

    Returns:
        A function without arguments, which fails as `assert_conforms` does.

    Raises:
        TypeError: if `check` has no such option.

    Examples:
        >>> from posattn.reference import rotate
        >>> test_rotate = conforms(rotate, "rotary", settings={"layout": "half"})
        >>> test_rotate()
    """
    inspect.signature(check).bind(function, scheme, **options)
    caller = sys._getframe(1)
    if options.get("expected_failures") is not None:
        beside = Path(caller.f_code.co_filename).parent
        options["expected_failures"] = beside / options["expected_failures"]
    cases = Cases(function, scheme, options)

    def test(*_, case=None):
        __tracebackhide__ = True  # pytest shows the caller
        if case is None:
            assert_conforms(function, scheme, **options)
        else:
            cases.tell(case)

    test.posattn = cases
    # pytest looks here for the line
    test.place_as = placed(caller.f_code, caller.f_lineno)
    return test


def placed(code, line):
    """A function that stands in a line, and is never called."""
    return types.FunctionType(code.replace(co_firstlineno=line), {})


class Cases:
    """The cases of one check, which is made once in a process.

    Args:
        function: what is checked.
        scheme: what `check` takes.
        options: those of `check`, by name.
    """

    def __init__(self, function, scheme, options):
        self.function, self.scheme, self.options = function, scheme, options

    def names(self):
        """The names of the cases that will be run, or skipped, and whether each is expected to fail."""
        options = Options(**self.options)
        vectors, *_ = fitting(self.function, self.scheme, options)
        cases, _ = select(vectors, options)
        known = expected(options.expected_failures, vectors)
        return [(case["name"], case["name"] in known) for case in cases]

    @functools.cached_property
    def report(self):
        """The report of all cases, as plain data."""
        # of a failure that is expected, pytest's mark knows
        options = {**self.options, "expected_failures": None}
        return check(self.function, self.scheme, **options).to_dict()

    def tell(self, name):
        """Skip or fail a test, or let it pass, by its case; gradients belong to their case."""
        import pytest

        try:
            report = self.report
        except UsageError as error:
            pytest.fail(str(error), pytrace=False)
        parts = [case for case in report["cases"] if belongs(case["name"], name)]
        failed = [story(report, case) for case in parts if case["outcome"] == "failed"]
        if failed:
            pytest.fail("\n\n".join(failed), pytrace=False)
        if parts[0]["outcome"] == "skipped":
            skipped = pytest.skip.Exception(parts[0]["reason"])
            skipped._use_item_location = True  # as pytest's own marks do
            raise skipped


def story(report, case):
    """What there is to say of a case that failed: what is wrong, and the likely cause."""
    lines = []
    if "at" in case:
        error, want, got = (float(case[name]) for name in ("error", "expected", "got"))
        lines += [f"error {error:.2g} at {case['at']}: expected {want:.6g}, got {got:.6g}"]
    if "raised" in case:
        lines += [f"it raises {case['raised']}"]
        lines += [f"  at {case['where']}"] if case["where"] else []
    lines += [f"it {complaint}" for complaint in case.get("complaints", ())]
    causes = [cause for cause in report["causes"] if case["name"] in cause["cases"]]
    for cause in causes:
        share = f"{len(cause['cases'])} of {cause['of']} failures"
        lines += [wrapped(f"likely cause ({share}): {cause['sentence']}")]
        lines += [f"  seen in {cause['seen']}"] if cause["seen"] else []
    if "at" in case and not causes:
        lines += ["no known fault explains this"]
    return "\n".join(lines)
