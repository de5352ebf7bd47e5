"""The command `python -m posattn`: check a function of your own, or see what a model does with positions."""

import argparse
import os
import sys
import textwrap
import threading

from posattn import configs
from posattn.conformance import UsageError, load, names
from posattn.conformance.apart import TIME_LIMIT, check_apart

PASSED, UNUSABLE = 0, 2


def main(arguments=None):
    """Run the command and return its exit code: 0 all cases pass, 1 some fail, 2 it cannot be run."""
    chosen = parser().parse_args(arguments)
    try:
        text, code = chosen.run(chosen)
    except UsageError as error:
        print(f"posattn: {error}", file=sys.stderr)
        return UNUSABLE
    try:
        print(text, flush=True)
    except BrokenPipeError:  # as with `| head`; the rest, flushed at the end, goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message):
        """Say what is wrong and leave."""
        self.exit(UNUSABLE, f"{self.prog}: {message}\n")


def parser():
    """What the command understands."""
    whole = Parser(prog="posattn", description=__doc__)
    commands = whole.add_subparsers(required=True, metavar="command")
    one = commands.add_parser("check", help="run a function on the vectors of a scheme")
    one.add_argument("function", help="module:function, or path/to/file.py:function")
    one.add_argument("--scheme", required=True, help="what it should be: see `schemes`")
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
        "--gradients", action="store_true", help="check them, too (torch and jax)"
    )
    one.add_argument(
        "--time-limit",
        type=seconds,
        default=TIME_LIMIT,
        metavar="SECONDS",
        help=f"the most that a case may take; {TIME_LIMIT:g} if not given",
    )
    one.set_defaults(run=check_function)
    listing = commands.add_parser("schemes", help="list what can be checked")
    listing.add_argument("scheme", nargs="?", help="show how this one is called")
    listing.set_defaults(run=list_schemes)
    planning = commands.add_parser("plan", help="say what each layer of a model does")
    planning.add_argument("config", help="path/to/config.json, or the folder that has one")
    planning.add_argument(
        "--length",
        type=int,
        metavar="TOKENS",
        help="of a text, which LongRoPE and dynamic scaling look at",
    )
    planning.set_defaults(run=show_plan)
    return whole


def seconds(text):
    """A time limit."""
    if not 0 < float(text) <= threading.TIMEOUT_MAX:
        raise ValueError
    return float(text)


def check_function(chosen):
    """Check a function in a process of its own."""
    request = {name: value for name, value in vars(chosen).items() if name != "run"}
    return check_apart(request, request.pop("time_limit"))


def list_schemes(chosen):
    """All schemes, or how one is called and what its cases are."""
    if chosen.scheme is None:
        width = max(map(len, names()))
        lines = [f"{name.ljust(width)}  {load(name)['what']}" for name in names()]
        return "\n".join(lines), PASSED
    vectors = load(chosen.scheme)
    lines = [textwrap.fill(vectors["what"], 100)]
    lines += [f"\nfunction({signature(vectors['parameters'])})"]
    lines += [f"\nposattn: {vectors['function']}; source: {vectors['source']}"]
    lines += [f"\n{len(vectors['cases'])} cases:"]
    lines += [f"  {case['name']}" for case in vectors["cases"]]
    return "\n".join(lines), PASSED


def show_plan(chosen):
    """What a configuration says of each layer."""
    try:
        return str(configs.plan(chosen.config, length=chosen.length)), PASSED
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def signature(parameters):
    """The parameters, as Python writes them."""
    written = [
        f"{p['name']}={p['default']!r}" if "default" in p else p["name"] for p in parameters
    ]
    first = next((k for k, p in enumerate(parameters) if p["keyword"]), None)
    return ", ".join(
        written if first is None else [*written[:first], "*", *written[first:]]
    )


if __name__ == "__main__":
    sys.exit(main())
