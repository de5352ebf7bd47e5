"""Public threads as functions: which of them the checker catches, and which cause it names."""

from typing import NamedTuple

from tests.library.conformance.threads import attention, biases, masks, rotations, scaling
from tests.library.conformance.threads.entered import THREADS

__all__ = ["THREADS", "Row", "attention", "biases", "masks", "rotations", "rows", "scaling"]


class Row(NamedTuple):
    """What the checker says of one thread.

    Args:
        thread: the repository and the number.
        what: what the function does, in the words of whoever re-created it.
        scheme: the scheme that it should be.
        failed: how many cases fail.
        run: how many cases were run.
        cause: the sentence of the report, or nothing if it knows none.
    """

    thread: str
    what: str
    scheme: str
    failed: int
    run: int
    cause: str


def rows():
    """A row for each thread, by checking it."""
    for name, example in sorted(THREADS, key=lambda entry: entry.name.lower()):
        report = example.check()
        cause = report.causes[0].sentence if report.causes else ""
        what = example.make.__doc__.splitlines()[0]
        yield Row(name, what, example.scheme, len(report.failures), len(report.runs), cause)
