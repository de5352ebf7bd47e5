"""Where changes are judged: a copy of the project, and a process that forks for each of them.

The process has imported the frameworks, which takes longer than most tests; what it forks imports the
changed copy and runs the tests that are named, up to the first that fails. It reads questions from its
standard input, a line of JSON each, and writes a line with the verdict.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

IMPORTS = ("numpy", "torch", "jax", "hypothesis", "jaxtyping", "beartype")
IMPORTS += ("matplotlib.figure", "sphinx.application")
NOTHING_RAN = pytest.ExitCode.NO_TESTS_COLLECTED
QUIET = ["-q", "--no-header", "--no-summary"]
QUIET += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported already
QUIET += [f"-pno:{plugin}" for plugin in ("cacheprovider", "xdist", "cov")]


class Court:
    """A copy of the project with its process."""

    def __init__(self, project: Path, copy: Path, files: list[str]):
        copied(project, copy, files)
        self.copy = copy
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.court"],
            cwd=copy, env=environment(copy), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def judge(self, change, source: bytes, tests: list[str], limit: float) -> str:
        """What became of a change: the test that noticed it, "time", or "" if none did."""
        place = self.copy / change.path
        place.write_bytes(change.made(source))
        try:
            return self.ask(tests, limit)
        finally:
            place.write_bytes(source)

    def ask(self, tests: list[str], limit: float) -> str:
        """What becomes of the copy as it is."""
        print(json.dumps([tests, limit]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        """End the process."""
        self.process.communicate()


def copied(project: Path, copy: Path, files: list[str]):
    """Copy these files of the project, and lead to its environments."""
    for name in files:
        place = copy / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((project / name).read_bytes())
    (copy / ".nox").symlink_to(project / ".nox")


def environment(copy: Path) -> dict[str, str]:
    """What a process in the copy needs to import the copy, and to write no bytecode of a change."""
    path = os.pathsep.join(map(str, (copy / "src", copy)))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }


class Chosen:
    """Of all tests in their files only these, in this order; notes the first that fails."""

    def __init__(self, tests: list[str]):
        self.order = {name: k for k, name in enumerate(tests, start=1)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items):
        """Keep the chosen ones, by name or with all of their file."""
        places = {item: self.place(item.nodeid) for item in items}
        items[:] = sorted(filter(places.get, items), key=places.get)

    def place(self, name):
        """Where a test comes, from 1, or 0 if it does not."""
        return self.order.get(name) or self.order.get(name.split("::")[0], 0)

    def pytest_collectreport(self, report):
        """A file that cannot be imported notices the change too."""
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtest_logreport(self, report):
        """Note what failed."""
        if report.failed:
            self.failed = self.failed or report.nodeid


def run(tests: list[str], verdict: Path):
    """Run the tests here, up to the first that fails."""
    chosen = Chosen(tests)
    files = list(dict.fromkeys(name.split("::")[0] for name in tests))
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        code = pytest.main(["-x", *QUIET, *files], plugins=[chosen])
    failed = chosen.failed or ("" if code in (0, NOTHING_RAN) else f"exit code {code}")
    verdict.write_text(json.dumps(failed), encoding="utf-8")


def main():
    """Answer until there are no more questions."""
    for name in IMPORTS:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")  # tests print too
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    for question in sys.stdin:
        tests, limit = json.loads(question)
        print(json.dumps(verdict_in_time(tests, limit)), file=answers, flush=True)


def verdict_in_time(tests: list[str], limit: float) -> str:
    """Fork, wait, and end whatever the tests started."""
    verdict = Path("verdict.json").absolute()
    verdict.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            run(tests, verdict)
        finally:
            os._exit(0)
    end = time.monotonic() + limit
    while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < end:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.waitpid(child, 0)
        return "time"
    return json.loads(verdict.read_text()) if verdict.is_file() else "a crash"


if __name__ == "__main__":
    main()
