"""Run sessions of nox one after another, and print what each took at the end: `.ci/run` names them.

Memory is what all processes of a session hold together, shared pages once, looked at every two seconds.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

LONG = (
    45  # minutes, from which on the summary warns; time on a shared machine fails nothing
)


def children(parent):
    """A process and all that it has started."""
    waiting, found = [parent], []
    while waiting:
        process = waiting.pop()
        found.append(process)
        for listed in Path("/proc", str(process), "task").glob("*/children"):
            try:
                waiting += map(int, listed.read_text("utf-8").split())
            except OSError:  # it has ended
                continue
    return found


def held(process):
    """The KiB that a process holds, its share of what it shares."""
    try:
        for line in (
            Path("/proc", str(process), "smaps_rollup").read_text("utf-8").splitlines()
        ):
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def watched(command):
    """Run a command; return its exit code, its seconds, and the most GiB that it held."""
    start, most = time.monotonic(), 0
    running = subprocess.Popen(command)
    ended = threading.Event()

    def look():
        nonlocal most
        while not ended.wait(2):
            most = max(most, sum(map(held, children(running.pid))))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    code = running.wait()
    ended.set()
    watcher.join()
    return code, time.monotonic() - start, most / 2**20


def main(parts):
    """Run the parts, each a session and its options; stop at the first that fails, and sum up."""
    rows, code = [], 0
    for part in parts:
        session, *options = part.split()
        command = [sys.executable, "-m", "nox", "--session", session]
        code, seconds, memory = watched(command + ["--", *options] * bool(options))
        rows.append((part, seconds, memory))
        if code:
            break
    print(f"\n{'part':24} {'minutes':>8} {'GiB':>6}")
    for part, seconds, memory in rows:
        print(f"{part:24} {seconds / 60:8.1f} {memory:6.1f}")
    total = sum(seconds for _, seconds, _ in rows) / 60
    print(f"{'all':24} {total:8.1f} {max(memory for *_, memory in rows):6.1f}", flush=True)
    if total > LONG:
        print(f"warning: this took {total:.0f} minutes, more than {LONG}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
