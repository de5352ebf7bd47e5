"""What a check found, and how it is told."""

import re
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from posattn.conformance.exceptions import said, where
from posattn.conformance.expected import belongs

__all__ = ["Report", "Run", "as_list"]

SHOWN = 3  # of the cases that are skipped for one reason


def as_list(value):
    """The results: several of them, or one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


@dataclass
class Run:
    """One case and what came of it: an array, a list of arrays, or an exception."""

    case: dict
    got: object
    tolerance: float = 0.0
    relative: bool = False
    complaints: list = field(default_factory=list)

    def agrees(self, other, slack=0.0, limit=None):
        """Whether `other` came, up to the tolerance and `slack`; or an exception about the same sizes."""
        if isinstance(self.got, BaseException) or isinstance(other, BaseException):
            return alike(self.got, other)
        if shapes(self.got) != shapes(other):
            return False
        limit = self.tolerance if limit is None else limit
        pairs = zip(as_list(self.got), as_list(other))
        return all(np.all(self.gap(*pair, slack) <= limit) for pair in pairs)

    def repeats(self, other, slack=0.0):
        """Whether `other` came, or leaves no more than a hundredth of the error."""
        if not self.wrong or not self.comparable:
            return self.agrees(other, slack)
        pairs = zip(as_list(self.got), as_list(self.case["expected"]))
        error = max(np.max(self.gap(*pair)) for pair in pairs)
        limit = max(self.tolerance, error / 100) if np.isfinite(error) else None
        return self.agrees(other, slack, limit)

    def gap(self, got, want, slack=0.0):
        """The errors, relative to each wanted number, or to the largest of them or 1."""
        got, want = 1.0 * np.asarray(got), 1.0 * np.asarray(want)
        with np.errstate(all="ignore"):
            equal = (got == want) | (np.isnan(got) & np.isnan(want))
            size = (
                np.abs(want) if self.relative else max(1.0, np.max(np.abs(want), initial=0))
            )
            gap = np.maximum(np.abs(got - want) - slack, 0) / size
        return np.where(equal, 0.0, np.nan_to_num(gap, nan=np.inf, posinf=np.inf))

    @property
    def comparable(self):
        """Whether as many arrays came as expected, of the same shapes."""
        raised = isinstance(self.got, BaseException)
        return not raised and shapes(self.got) == shapes(self.case["expected"])

    @property
    def wrong(self):
        """Whether something else came than was expected."""
        return not self.agrees(self.case["expected"])

    @property
    def failed(self):
        """Whether it is wrong, or something else is: a dtype, or an argument that was changed."""
        return self.wrong or bool(self.complaints)

    def row(self):
        """The name of the case; where its largest error stands, the error, expected and got."""
        name = self.case["name"]
        if isinstance(self.got, BaseException):
            return name, "", "", "", said(self.got)[:60]
        if not (self.wrong and self.comparable):
            return name, "", "", "", self.complaints[0]
        at, error, want, got = self.worst()
        return name, str(at), f"{error:.2g}", f"{want:.6g}", f"{got:.6g}"

    def worst(self):
        """Where the largest error stands, the error, what was expected and what came."""
        got, want = as_list(self.got), as_list(self.case["expected"])
        gaps = [self.gap(*pair) for pair in zip(got, want)]
        k = max(range(len(gaps)), key=lambda k: np.max(gaps[k], initial=0))
        at = np.unravel_index(np.argmax(gaps[k]), gaps[k].shape)
        place = [*([k] if len(gaps) > 1 else []), *map(int, at)]
        got, want = np.asarray(got[k])[at], np.asarray(want[k])[at]
        return place, abs(1.0 * got - want), want, got

    def to_dict(self):
        """The case as plain data; numbers that JSON lacks are strings."""
        data = {"name": self.case["name"], "outcome": "failed" if self.failed else "passed"}
        if isinstance(self.got, BaseException):
            data.update(raised=said(self.got), where=where(self.got))
        elif self.wrong and self.comparable:
            at, *numbers = self.worst()
            names = ("error", "expected", "got")
            data.update(at=at, **dict(zip(names, map(plain, numbers))))
        return {**data, "complaints": self.complaints} if self.complaints else data


def plain(number):
    """A number as JSON has it."""
    return float(number) if np.isfinite(number) else str(float(number))


def shapes(value):
    """The shapes of the results."""
    return [np.shape(x) for x in as_list(value)]


def alike(error, other):
    """Whether two exceptions tell of the same sizes, in whatever words."""
    if not (isinstance(error, BaseException) and isinstance(other, BaseException)):
        return False
    ours, theirs = (set(re.findall(r"\d+", said(x))) for x in (error, other))
    if said(error) == said(other):
        return True
    return min(len(ours), len(theirs)) > 1 and (ours <= theirs or theirs <= ours)


@dataclass
class Report:
    """What a check found; `str(report)` is what the command prints.

    Args:
        title: what was checked against which scheme, in which framework and dtype.
        runs: an entry for each case that was run; its `case` is that of the vectors.
        skipped: the name of each case that was not run, and the reason.
        causes: the known faults that explain nearly all failures, each with its `name`, `sentence`
            and `seen`, the `runs` that it explains, and how many there are, `of`.
        notes: sentences on what was not checked.
        left_out: the names of the cases that the user left out.
        hint: what to try where no known fault explains what is wrong.
        expected: the names of cases that are expected to fail.
        strict: whether one of these that passes is a failure.
    """

    title: str
    runs: list
    skipped: dict
    causes: list
    notes: list = field(default_factory=list)
    left_out: list = field(default_factory=list)
    hint: str = ""
    expected: frozenset = frozenset()
    strict: bool = False

    @property
    def failures(self):
        """The runs that failed, those too that were expected to."""
        return [run for run in self.runs if run.failed]

    @property
    def unexpected(self):
        """The runs that failed and were not expected to."""
        return [run for run in self.failures if not self.expects(run)]

    @property
    def passes(self):
        """The names of cases that pass, though they were expected to fail."""
        failed = [run.case["name"] for run in self.failures]
        ran = [run.case["name"] for run in self.runs if run.case["name"] in self.expected]
        return [name for name in ran if not any(belongs(part, name) for part in failed)]

    def expects(self, run):
        """Whether a run belongs to a case that was expected to fail."""
        return any(belongs(run.case["name"], name) for name in self.expected)

    def passed(self, fail_on_skip=False):
        """Whether no case failed that was not expected to, and, if `fail_on_skip`, none was skipped.

        If the check is strict, a case that passes unexpectedly has failed.
        """
        wrong = self.unexpected or (self.strict and self.passes)
        return not (wrong or (fail_on_skip and self.skipped))

    def to_dict(self):
        """The report as plain data, which JSON can hold.

        Returns:
            A dict with `title`, `notes`, `causes`, `cases`, and `left_out`, names of cases.
            Each case has its `name` and `outcome`, `"passed"`, `"failed"` or `"skipped"`, and if it was
            expected to fail, `"xfailed"` or `"xpassed"`.
            A failed one has what is wrong: `at`, `error`, `expected` and `got` of the largest error,
            `raised` and `where`, or `complaints`; a skipped one has its `reason`.
            Each cause names its `cases`.
        """
        causes = [
            {
                **{
                    name: getattr(cause, name)
                    for name in ("name", "sentence", "seen", "of")
                },
                "cases": [run.case["name"] for run in cause.runs],
            }
            for cause in self.causes
        ]
        skipped = [
            {"name": name, "outcome": "skipped", "reason": reason}
            for name, reason in self.skipped.items()
        ]
        cases, passes = [run.to_dict() for run in self.runs], self.passes
        for case, run in zip(cases, self.runs):
            if self.expects(run) and (run.failed or case["name"] in passes):
                case["outcome"] = f"x{case['outcome']}"
        cases += skipped
        told = {"title": self.title, "notes": self.notes, "left_out": self.left_out}
        return {**told, "causes": causes, "cases": cases}

    def __str__(self):
        failures, total = self.unexpected, len(self.runs)
        known = len(self.failures) - len(failures)
        found = f"all {total - known}{' others' * bool(known)} pass"
        found = f"{len(failures)} of {total} cases fail" if failures else found
        also = range(known), self.skipped, self.left_out
        skips = zip(also, ("fail as expected", "skipped", "left out"))
        parts = [found, *(f"{len(names)} {what}" for names, what in skips if names)]
        lines = [f"{self.title}: {', '.join(parts)}"]
        if failures:
            head = ("failing case", "at", "error", "expected", "got")
            lines += ["", *table([head, *(run.row() for run in failures)])]
        for problem, count in Counter(chain(*map(problems, failures))).items():
            what, *at = problem.splitlines()
            lines += ["", wrapped(f"in {count} of {total} cases it {what}"), *at]
        for cause in self.causes:
            if all(map(self.expects, cause.runs)):
                continue
            share = f"{len(cause.runs)} of {cause.of} failures"
            lines += ["", wrapped(f"likely cause ({share}): {cause.sentence}")]
            lines += [f"  seen in {cause.seen}"] if cause.seen else []
        if any(run.wrong for run in failures) and not self.causes:
            lines += ["", "no known fault explains this", *wrapped(self.hint).splitlines()]
        for name in self.passes:
            lines += ["", wrapped(f"passes, though it is expected to fail: {name}")]
        for reason in sorted(set(self.skipped.values())):
            names = [name for name, why in self.skipped.items() if why == reason]
            lines += ["", f"{len(names)} skipped, since {reason}:"]
            lines += [f"  {name}" for name in names[:SHOWN]]
            lines += [f"  and {len(names) - SHOWN} more"] * (len(names) > SHOWN)
        lines += [line for note in self.notes for line in ("", wrapped(note))]
        return "\n".join(lines)


def problems(run):
    """What a run did beside returning wrong numbers."""
    if isinstance(run.got, BaseException):
        at = where(run.got)
        return [f"raises {said(run.got)}" + (f"\n  at {at}" if at else "")]
    return run.complaints


def wrapped(text):
    """A sentence in lines of a terminal."""
    return textwrap.fill(text, 92, subsequent_indent="  ", break_on_hyphens=False)


def table(rows):
    """Lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
