"""`posattn check`: run somebody's own function on the vectors of a scheme."""

import contextlib
import json
import os
import threading
from pathlib import Path

from posattn.conformance import UsageError
from posattn.conformance.files import check_results
from posattn.conformance.isolation import TIME_LIMIT, check_apart
from posattn.conformance.sarif import as_sarif
from posattn.conformance.worker import options_of


def add(commands):
    """Say what the command understands."""
    one = commands.add_parser("check", help="run a function on the vectors of a scheme")
    one.add_argument(
        "function", nargs="?", help="module:function, or path/to/file.py:function"
    )
    one.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="check these instead: what an engine made of `posattn vectors`",
    )
    what = one.add_mutually_exclusive_group(required=True)
    what.add_argument("--scheme", help="what it should be: see `schemes`")
    what.add_argument(
        "--config", help="whose layer it should be: a config.json, or a .gguf"
    )
    one.add_argument(
        "--layer", type=int, default=0, help="of the model, from 0 on; 0 if not given"
    )
    one.add_argument("--framework", help="of its arrays, if its module imports several")
    one.add_argument(
        "--dtype", help="of its data; float32 if not given, and float64 for numpy"
    )
    one.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEYWORD=VALUE",
        help="run only the cases that have this; the function need not know the keyword",
    )
    one.add_argument("--only", default="", help="run only cases with this in their name")
    one.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="TEXT",
        help="leave out cases with this in their name",
    )
    one.add_argument(
        "--max-position",
        type=float,
        metavar="POSITION",
        help="leave out cases with a position farther from 0",
    )
    one.add_argument(
        "--tolerance",
        metavar="NUMBER",
        help="how far off a result may be, float32-angles or exact",
    )
    one.add_argument(
        "--fail-on-skip",
        action="store_true",
        help="exit with 1 if a case is skipped, since the function lacks a parameter",
    )
    one.add_argument(
        "--expected-failures",
        metavar="FILE",
        help="cases that you know to fail, a line for each: `rotary: decoding: one token`",
    )
    one.add_argument(
        "--strict", action="store_true", help="exit with 1 if one of these passes"
    )
    one.add_argument(
        "--gradients", action="store_true", help="check them, too (torch and jax)"
    )
    one.add_argument(
        "--time-limit",
        type=seconds,
        default=TIME_LIMIT,
        metavar="SECONDS",
        help=f"the most that a case may take; {TIME_LIMIT:g} if not given",
    )
    one.add_argument(
        "--format",
        choices=["text", "json", "sarif"],
        default="text",
        help="of the report; text if not given",
    )
    one.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="a file for the report in this format; then text is printed",
    )
    one.set_defaults(run=check_function)


def seconds(text):
    """A time limit."""
    if not 0 < float(text) <= threading.TIMEOUT_MAX:
        raise ValueError
    return float(text)


def check_function(chosen):
    """Check a function in a process of its own, and tell of it as was asked."""
    request = {name: value for name, value in vars(chosen).items() if name != "run"}
    form, output, limit = (request.pop(name) for name in ("format", "output", "time_limit"))
    results = request.pop("results")
    if (results is None) == (request["function"] is None):
        raise UsageError("check needs a function, or --results, and not both")
    if results is not None and request["scheme"] is None:
        raise UsageError("--results must come with --scheme")
    if results is None:
        text, data, code = check_apart(request, limit)
    else:
        text, data, code = compared(results, request)
    if form == "sarif":
        data = as_sarif(data)
    made = text if form == "text" else json.dumps(data, indent=2, allow_nan=False)
    if output:
        write(output, made)
    return text if output else made, code


def compared(results, request):
    """The report on a file of results, as text and as data, and the exit code."""
    report = check_results(results, request["scheme"], options_of(request))
    return f"{report}", report.to_dict(), int(not report.passed(request["fail_on_skip"]))


def write(path, text):
    """Write a file whole or not at all."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise UsageError(f"--output must be a file, got {str(path)!r}")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(f"{text}\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise UsageError(f"--output cannot be written: {error}") from None
