"""What a check found, and how it is told."""

import textwrap
from dataclasses import dataclass

import numpy as np

__all__ = ["Report", "Run", "as_list"]


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

    def agrees(self, other, slack=0.0, limit=None):
        """Whether `other` came, up to the tolerance and `slack`; any exception is like another."""
        if isinstance(self.got, Exception) or isinstance(other, Exception):
            return isinstance(self.got, Exception) and isinstance(other, Exception)
        ours, theirs = as_list(self.got), as_list(other)
        if [np.shape(x) for x in ours] != [np.shape(x) for x in theirs]:
            return False
        limit = self.tolerance if limit is None else limit
        return all(np.all(self.gap(*pair, slack) <= limit) for pair in zip(ours, theirs))

    def repeats(self, other, slack=0.0):
        """Whether `other` came, or leaves no more than a hundredth of the error."""
        if not self.failed or isinstance(self.got, Exception):
            return self.agrees(other, slack)
        wanted = as_list(self.case["expected"])
        error = max(np.max(self.gap(*pair)) for pair in zip(as_list(self.got), wanted))
        limit = max(self.tolerance, error / 100) if np.isfinite(error) else None
        return self.agrees(other, slack, limit)

    def gap(self, got, want, slack=0.0):
        """The errors, relative to each wanted number, or to the largest of them or 1."""
        with np.errstate(all="ignore"):
            equal = (got == want) | (np.isnan(got) & np.isnan(want))
            size = (
                np.abs(want) if self.relative else max(1.0, np.max(np.abs(want), initial=0))
            )
            gap = np.maximum(np.abs(got - want) - slack, 0) / size
        return np.where(equal, 0.0, np.nan_to_num(gap, nan=np.inf))

    @property
    def failed(self):
        """Whether something else came than was expected."""
        return not self.agrees(self.case["expected"])

    def row(self):
        """The name of the case; where its largest error stands, the error, expected and got."""
        name = self.case["name"]
        if isinstance(self.got, Exception):
            said = (str(self.got).strip().splitlines() or [""])[0]
            return name, "", "", "", f"{type(self.got).__name__}: {said}"[:60]
        got, want = as_list(self.got), as_list(self.case["expected"])
        gaps = [self.gap(*pair) for pair in zip(got, want)]
        k = max(range(len(gaps)), key=lambda k: np.max(gaps[k], initial=0))
        at = np.unravel_index(np.argmax(gaps[k]), gaps[k].shape)
        place = [*([k] if len(gaps) > 1 else []), *map(int, at)]
        got, want = np.asarray(got[k])[at], np.asarray(want[k])[at]
        return name, str(place), f"{abs(got - want):.2g}", f"{want:.6g}", f"{got:.6g}"


@dataclass
class Report:
    """What a check found; `str(report)` is what the command prints.

    Args:
        title: what was checked against which scheme, in which framework and dtype.
        runs: an entry for each case that was run; its `case` is that of the vectors.
        skipped: the name of each case that was not run, and the reason.
        causes: the known faults that explain failures, the likeliest first, each with its `name`,
            `sentence`, `seen` and `runs`.
    """

    title: str
    runs: list
    skipped: dict
    causes: list

    @property
    def failures(self):
        """The runs that failed."""
        return [run for run in self.runs if run.failed]

    def __str__(self):
        failures, total = self.failures, len(self.runs)
        found = (
            f"{len(failures)} of {total} cases fail" if failures else f"all {total} pass"
        )
        lines = [f"{self.title}: {found}"]
        if failures:
            head = ("failing case", "at", "error", "expected", "got")
            lines += ["", *table([head, *(run.row() for run in failures)])]
        for cause in self.causes:
            share = f"{len(cause.runs)} of {len(failures)} failures"
            lines += ["", wrapped(f"likely cause ({share}): {cause.sentence}")]
            lines += [f"  seen in {cause.seen}"] if cause.seen else []
        if failures and not self.causes:
            lines += ["", "no known fault explains this"]
        for reason in sorted(set(self.skipped.values())):
            names = [name for name, why in self.skipped.items() if why == reason]
            lines += ["", f"{len(names)} skipped, since {reason}:"]
            lines += [f"  {name}" for name in names]
        return "\n".join(lines)


def wrapped(text):
    """A sentence in lines of a terminal."""
    return textwrap.fill(text, 92, subsequent_indent="  ", break_on_hyphens=False)


def table(rows):
    """Lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
