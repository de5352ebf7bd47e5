"""Run a check in a process of its own, so that a function may hang, leave or crash without harm."""

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from posattn.conformance.vectors import UsageError

__all__ = ["TIME_LIMIT", "check_apart"]

TIME_LIMIT = 60.0  # seconds for a case, in which some frameworks compile
IMPORT_LIMIT = 300.0  # seconds until the first case, in which some frameworks are imported
# unbuffered: who reads the report ends the process, and what a function printed would be lost
COMMAND = (sys.executable, "-u", "-m", "posattn.conformance.worker")
FAILED = 1


def check_apart(request, time_limit):
    """Have `worker` check a function, and return the report as text and as data, and the exit code.

    The request has the function and what `worker.USUAL` has otherwise, by name, and a case may take
    `time_limit` seconds. A UsageError tells why the check cannot be run.
    """
    child = subprocess.Popen(
        [*COMMAND, json.dumps(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    heard = queue.SimpleQueue()
    threading.Thread(target=listen, args=(child.stdout, heard), daemon=True).start()
    try:
        return follow(request, child, heard, time_limit)
    finally:
        child.kill()
        child.wait()


def listen(output, heard):
    """Pass on what the worker says, and None when it has ended."""
    with output:
        for line in output:
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)  # a line may be cut off, or be the function's
                if understood(event):
                    heard.put(event)
    heard.put(None)


def understood(event):
    """Whether the worker speaks so; the function may write where it does."""
    kinds = {
        "case": (str, type(None)),
        "before": int,
        "failed": int,
        "unusable": str,
        "report": str,
        "data": dict,
        "code": int,
        "interrupted": bool,
    }
    ways = (
        {"case", "before", "failed"},
        {"unusable"},
        {"report", "data", "code"},
        {"interrupted"},
    )
    return (
        isinstance(event, dict)
        and set(event) in ways
        and all(isinstance(value, kinds[name]) for name, value in event.items())
    )


def follow(request, child, heard, time_limit):
    """What the worker found, or how it came to nothing."""
    last, limit = {}, IMPORT_LIMIT
    while True:
        try:
            event = heard.get(timeout=limit)
        except queue.Empty:
            return ended(request, last, f"takes longer than {limit:g} seconds")
        if event is None:
            return ended(request, last, end_of(child.wait()))
        if "interrupted" in event:
            return ended(request, last, "raises KeyboardInterrupt")
        if "unusable" in event:
            raise UsageError(event["unusable"])
        if "report" in event:
            return event["report"], event["data"], event["code"]
        last, limit = event, None if event["case"] is None else time_limit


def end_of(code):
    """How a process ended."""
    if code < 0:
        return f"is killed by {signal.Signals(-code).name}"
    return f"ends its process with exit code {code}"


def ended(request, last, how):
    """What there is to say of a check that did not come to its end."""
    place, _, name = request["function"].rpartition(":")
    if not last:
        raise UsageError(f"{place} cannot be imported: it {how}")
    when = f"in the case {last['case']!r}" if last["case"] else "before the report"
    others = f"{last['failed']} of {last['before']} cases before it fail"
    what = request.get("scheme") or f"layer {request['layer']} of {request['config']}"
    title = f"{name} as {what}"
    case = {"name": last["case"] or when, "outcome": "failed", "complaints": [how]}
    data = {"title": title, "notes": [others], "causes": [], "cases": [case]}
    file = Path(place if place.endswith(".py") else f"{place.replace('.', '/')}.py")
    data |= {"file": str(file)} if file.is_file() else {}
    return f"{title}: it {how} {when}; {others}", data, FAILED
