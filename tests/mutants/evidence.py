"""Which tests run which line: one run of the suite, with each line's tests noted by coverage."""

import difflib
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import coverage

from tests.mutants.court import copied, environment

CONFIG = """[run]
source =
    src/posattn
    docs/_ext
patch = subprocess
parallel = true
"""
# who looks at whole modules and at their tables, and runs no line of them
LOOKING = [
    ("", "tests/test_columns.py"),
    ("src/posattn/conformance/", "tests/test_check.py"),
]
PHASE = re.compile(r"\|(setup|run|teardown)$")


class Evidence:
    """The tests of each line, and what each test took, as one run of the suite has seen it.

    Lines that have moved since are followed. A test file that has changed since is asked about everything,
    as a whole.
    """

    def __init__(self, folder: Path, project: Path):
        self.copy, self.project = folder / "copy", project
        self.seconds = json.loads((folder / "seconds.json").read_text(encoding="utf-8"))
        self.lines = coverage.CoverageData(str(folder / "lines"))
        self.lines.read()
        self.of_file = defaultdict(list)
        for name in self.seconds:
            self.of_file[name.split("::")[0]].append(name)
        self.changed = [name for name in self.test_files() if self.is_changed(name)]
        for name in self.changed:
            self.of_file[name] = [name]
            self.seconds[name] = 60
        self.keeping = {
            n
            for n in self.test_files()
            if "functools.cache" in (self.project / n).read_text("utf-8")
        }
        self.known = {}

    def quickest(self):
        """A test that takes no time."""
        return min(self.seconds, key=self.seconds.get)

    def test_files(self):
        """Where there are tests now."""
        found = {
            str(f.relative_to(self.project)) for f in self.project.glob("tests/test_*.py")
        }
        return sorted(found | {n for n in self.of_file if (self.project / n).is_file()})

    def is_changed(self, name):
        """Whether a file is not what it was."""
        was, now = self.copy / name, self.project / name
        return not was.is_file() or was.read_bytes() != now.read_bytes()

    def of(self, path):
        """The contexts of each line of a file, with the numbers that lines have now."""
        if path not in self.known:
            (place,) = [
                f for f in self.lines.measured_files() if f.endswith(f"/{path}")
            ] or [""]
            then = self.lines.contexts_by_lineno(place) if place else {}
            if self.is_changed(path):
                then = {now: then[was] for now, was in self.moved(path) if was in then}
            self.known[path] = then
        return self.known[path]

    def moved(self, path):
        """Each line's number now and then; a new line has that of the last old one above it."""
        if not (self.copy / path).is_file():
            return
        was, now = (
            (f / path).read_text("utf-8").splitlines() for f in (self.copy, self.project)
        )
        for _, a, b, c, d in difflib.SequenceMatcher(
            None, was, now, autojunk=False
        ).get_opcodes():
            for line in range(c, d):
                yield line + 1, max(1, min(a + line - c, b - 1) + 1)

    def tests(self, change) -> list[str]:
        """The tests that run a change: first those of the file named after its own, then the quick ones."""
        lines = self.of(change.path)
        reached = lines if change.whole else range(change.statement, change.last + 1)
        contexts = {context for line in reached for context in lines.get(line, ())}
        early = contexts <= {""}  # while modules are imported, in another process, or never
        if early:
            contexts = {context for some in lines.values() for context in some}
        found = {name for context in contexts for name in self.named(context)}
        found.update(self.changed)
        if change.whole or early:
            looking = (file for start, file in LOOKING if change.path.startswith(start))
            found.update(name for file in looking for name in self.of_file.get(file, []))
        if not contexts - {""} or change.path.startswith("docs/"):  # builds are processes
            word = re.compile(rf"\b({Path(change.path).stem}|tests\.books)\b")
            naming = (
                n for n in self.test_files() if word.search((self.project / n).read_text())
            )
            found.update(name for file in naming for name in self.of_file[file])
        # whole files, one after the other: they share what they build
        in_file = defaultdict(float)
        for name in found:
            in_file[name.split("::")[0]] += self.seconds[name]
        likely = [f"tests/test_{Path(change.path).stem}.py", "tests/test_noted.py"]

        def order(name):
            file = name.split("::")[0]
            place = likely.index(file) if file in likely else len(likely)
            return place, in_file[file], file, self.seconds[name], name

        return sorted(found, key=order)

    def named(self, context: str) -> list[str]:
        """The tests of a context: what a fixture or a cache keeps is for all tests of the file."""
        phase, name = PHASE.search(context), PHASE.sub("", context)
        file = name.split("::")[0]
        alone = phase and phase[1] == "run" and file not in self.keeping
        if alone and file not in self.changed:
            return [name] if name in self.seconds else []
        return self.of_file.get(file, [])


def record(project: Path, folder: Path, files: list[str]):
    """Run the suite in a copy; keep what was noted only when it is whole."""
    copied(project, folder / "copy", files)
    (folder / "coverage.ini").write_text(CONFIG, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "tests.mutants.evidence", str(folder)],
        cwd=folder / "copy", env=environment(folder / "copy"), check=True,
    )  # fmt: skip


class Clock:
    """What each test that passes takes."""

    def __init__(self):
        self.seconds = defaultdict(float)
        self.failed = set()

    def pytest_runtest_logreport(self, report):
        """Add the time of a phase."""
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)


def main(folder: Path):
    """Run the suite here."""
    import pytest

    clock = Clock()
    options = ["-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
    options += ["-m", "slow or not slow"]
    options += [
        "--cov",
        f"--cov-config={folder / 'coverage.ini'}",
        "--cov-context=test",
        "--cov-report=",
    ]
    pytest.main(options, plugins=[clock])
    Path(".coverage").rename(folder / "lines")
    passed = {n: round(s, 3) for n, s in clock.seconds.items() if n not in clock.failed}
    (folder / "seconds.json").write_text(json.dumps(passed), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
