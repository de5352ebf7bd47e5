"""Write the table of threads that the page on checking includes: `python -m` this."""

from pathlib import Path

from tests.library.conformance.threads import rows

WRITTEN = Path(__file__).parents[4] / "docs" / "_records" / "conformance" / "threads.txt"


def table():
    """The rows as a table of Markdown: the thread, the cases that fail, the cause that is named."""
    head = ["| Thread | The report says |", "|---|---|"]
    lines = [
        f"| {row.thread} | {row.failed} of {row.run} cases fail. {row.cause} |"
        for row in rows()
    ]
    return "\n".join([*head, *lines, ""])


if __name__ == "__main__":
    WRITTEN.write_text(table(), encoding="utf-8")
