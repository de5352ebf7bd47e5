"""Change one thing of the code, run the tests that run it, and count the changes that none notices.

    nox -s mutants                                    all of `src` and `docs/_ext`, which takes a day
    nox -s mutants -- --minutes 30                    as many as that allows, by lot, others each day
    nox -s mutants -- src/posattn/torch/position/rotary.py     one file
    nox -s mutants -- --since main                    the lines that have changed since a commit

The first run notes which tests run which line in build/mutants/evidence, which takes half an hour; it
serves until somebody removes it. A change that was noticed is not tried again while its file stays as it
is, so an interrupted run goes on. What no test notices fails the command, unless
tests/mutants/equivalent.txt says why it need not.
"""

import argparse
import hashlib
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from tests.mutants.changes import changes
from tests.mutants.court import Court
from tests.mutants.evidence import Evidence, record

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
OUTSIDE = "src/posattn/ports/"  # `nox -s ports` tests them, elsewhere
WORKERS = min(4, os.cpu_count() or 1)
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def git(*words):
    """What git answers, or an end with what it refuses."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr.strip().splitlines()[0])
    return done.stdout


def tracked(*paths):
    """The files that git knows, or would know."""
    names = git(
        "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths
    )
    return [name for name in sorted(set(names.split("\0"))) if (ROOT / name).is_file()]


def touched(name, commit):
    """The lines of a file that are new since a commit."""
    diff = git("diff", "--unified=0", commit, "--", name)
    hunks = ((int(first), int(count or 1)) for first, count in HUNK.findall(diff))
    return {line for first, count in hunks for line in range(first, first + count)}


def listed():
    """The digits of the changes that change nothing, each with its reason."""
    lines = EQUIVALENT.read_text(encoding="utf-8").splitlines()
    entries = (line.split(" | ") for line in lines if line and not line.startswith("#"))
    return {digits: why for digits, _, why in entries}


def wanted(options):
    """The changes that are asked for, by lot, with the source of each."""
    if options.since:
        git("diff", "--shortstat", options.since, "--")  # which refuses what is no commit
    names = tracked(*(options.paths or ["src", "docs/_ext"]))
    names = [n for n in names if n.endswith(".py") and not n.startswith(OUTSIDE)]
    found = []
    for name in names:
        source = (ROOT / name).read_bytes()
        lines = touched(name, options.since) if options.since else None
        found += [
            (change, source)
            for change in changes(name, source)
            if lines is None or change.line in lines
        ]
    random.Random(date.today().toordinal()).shuffle(found)
    return found


def kept(now):
    """The verdicts of earlier runs, by change and source; "not noticed" holds for these tests only."""
    file = WORK / "verdicts.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    entries = map(json.loads, lines)
    return {
        (digits, of): verdict
        for digits, of, verdict, then in entries
        if verdict or then == now
    }


def evidence(files):
    """What runs which line, noted once."""
    folder, unfinished = WORK / "evidence", WORK / "unfinished"
    if not folder.is_dir():
        print("noting which tests run which line", flush=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        record(ROOT, unfinished, files)
        unfinished.rename(folder)
    noted = Evidence(folder, ROOT)
    if noted.changed:
        print(
            f"{len(noted.changed)} test files have changed since build/mutants/evidence was noted"
        )
    return noted


def state(files):
    """A fingerprint of all code and tests."""
    parts = (
        name.encode() + (ROOT / name).read_bytes() for name in files if name.endswith(".py")
    )
    return hashlib.sha256(b"".join(parts)).hexdigest()[:10]


class Session:
    """A run: the courts, what they have said, and when to stop."""

    def __init__(self, found, minutes):
        files = tracked()
        self.state = state(files)
        self.found, self.known, self.because = found, kept(self.state), listed()
        self.end = time.monotonic() + 60 * minutes if minutes else float("inf")
        self.evidence = evidence(files)
        self.courts = queue.SimpleQueue()
        quickest = self.evidence.quickest()
        for k in range(WORKERS):
            place = WORK / f"court-{k}"
            shutil.rmtree(place, ignore_errors=True)
            court = Court(ROOT, place, files)
            if failed := court.ask([quickest, *self.evidence.changed], 3600):
                sys.exit(
                    f"{failed} fails in a copy of the project, where nothing is changed"
                )
            self.courts.put(court)
        self.survivors, self.done, self.noticed = [], 0, 0

    def judge(self, pair):
        """One change, unless time is up."""
        change, source = pair
        key = (change.digits, hashlib.sha256(source).hexdigest()[:10])
        if change.digits in self.because or time.monotonic() >= self.end:
            return
        start = time.monotonic()
        if key not in self.known:
            tests = self.evidence.tests(change)
            limit = 60 + 4 * sum(self.evidence.seconds[name] for name in tests)
            court = self.courts.get()
            try:
                verdict = court.judge(change, source, tests, limit) if tests else ""
            finally:
                self.courts.put(court)
            with (WORK / "verdicts.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps([*key, verdict, self.state]) + "\n")
            self.known[key] = verdict
        verdict = self.known[key]
        self.done += 1
        self.noticed += bool(verdict)
        if not verdict:
            self.survivors.append(change)
        taken = f"{time.monotonic() - start:.0f} s"
        says = f"noticed by {verdict}" if verdict else "NOT NOTICED"
        print(f"{self.done}/{len(self.found)} {change}: {says} ({taken})", flush=True)


def main():
    """The command."""
    parser = argparse.ArgumentParser(
        prog="nox -s mutants --", description="Plant small faults."
    )
    parser.add_argument(
        "paths", nargs="*", help="files or folders (all of src and docs/_ext)"
    )
    parser.add_argument(
        "--since", metavar="COMMIT", help="only lines that are new since then"
    )
    parser.add_argument("--minutes", type=float, help="draw no more after this time")
    options = parser.parse_args()
    found = wanted(options)
    if not found:
        sys.exit("nothing to change: no such file below src or docs/_ext, or no such line")
    WORK.mkdir(parents=True, exist_ok=True)
    session = Session(found, options.minutes)
    with ThreadPoolExecutor(WORKERS) as pool:
        try:
            list(pool.map(session.judge, found))
        except KeyboardInterrupt:  # the verdicts stay, and those under way are waited for
            session.end = 0
    while not session.courts.empty():
        session.courts.get().close()
    for change in sorted(session.survivors, key=str):
        print(f"{change.digits} | {change} | why?")
    share = 100 * session.noticed / max(1, session.done)
    print(f"{session.noticed} of {session.done} changes were noticed, {share:.1f} %")
    if session.survivors:
        sys.exit(
            "each of the above needs a test, or its line with a reason in tests/mutants/equivalent.txt"
        )


if __name__ == "__main__":
    main()
