"""Write the table of threads that the page on checking includes: `python -m` this."""

from tests.library.conformance.threads import THREADS, WRITTEN, table

if __name__ == "__main__":
    reports = [(thread.name, thread.check()) for thread in THREADS]
    WRITTEN.write_text(table(reports), encoding="utf-8")
