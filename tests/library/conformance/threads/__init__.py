"""Public threads as functions: which of them the checker catches, and which cause it names.

`python -m tests.library.conformance.threads` writes the table that the page on checking includes.
"""

from pathlib import Path

from tests.library.conformance.examples import THREADS
from tests.library.conformance.threads import (
    attention,
    biases,
    caches,
    rotations,
    scaling,
    selection,
    states,
)

__all__ = ["THREADS", "WRITTEN", "attention", "biases", "caches", "rotations"]
__all__ += ["scaling", "selection", "states", "table"]

WRITTEN = Path(__file__).parents[4] / "docs" / "_records" / "conformance" / "threads.txt"


def table(reports):
    """A row of Markdown for each thread, from its report: the cases that fail, and the cause."""
    rows = [
        f"| {name} | {len(report.failures)} of {len(report.runs)} cases fail. "
        f"{report.causes[0].sentence if report.causes else ''} |"
        for name, report in sorted(reports, key=lambda pair: pair[0].lower())
    ]
    return "\n".join(["| Thread | The report says |", "|---|---|", *rows, ""])
