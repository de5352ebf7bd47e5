"""The command `python -m posattn`: check a function of your own, and list what can be checked."""

import argparse
import ast
import importlib
import importlib.util
import operator
import os
import sys
import textwrap
from pathlib import Path

from posattn.conformance import UsageError, check, load, names

PASSED, FAILED, UNUSABLE = 0, 1, 2


def main(arguments=None):
    """Run the command and return its exit code: 0 all cases pass, 1 some fail, 2 it cannot be run."""
    chosen = parser().parse_args(arguments)
    try:
        return chosen.run(chosen)
    except UsageError as error:
        print(f"posattn: {error}", file=sys.stderr)
        return UNUSABLE


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
    one.add_argument("--dtype", default="float32", help="of its data; float32 if not given")
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
    one.set_defaults(run=check_function)
    listing = commands.add_parser("schemes", help="list what can be checked")
    listing.add_argument("scheme", nargs="?", help="show how this one is called")
    listing.set_defaults(run=list_schemes)
    return whole


def check_function(chosen):
    """Check a function and print what was found."""
    function = find(chosen.function)
    settings = dict(map(setting, chosen.set))
    report = check(
        function,
        chosen.scheme,
        framework=chosen.framework,
        dtype=chosen.dtype,
        settings=settings,
        only=chosen.only,
        gradients=chosen.gradients,
    )
    print(report)
    return FAILED if report.failures else PASSED


def find(path):
    """Import the function that the user named."""
    place, _, name = path.rpartition(":")
    if not (place and name):
        raise UsageError(f"function must be given as module:function, got {path!r}")
    try:
        module = import_file(Path(place)) if place.endswith(".py") else import_module(place)
    except (Exception, SystemExit) as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise UsageError(
            f"{place} cannot be imported: {type(error).__name__}: {said}"
        ) from None
    try:
        return operator.attrgetter(name)(module)
    except AttributeError:
        raise UsageError(f"{place} has no function {name!r}") from None


def import_module(name):
    """Import a module, also from the current directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(name)


def import_file(path):
    """Import a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def setting(text):
    """A keyword and its value, a string if it is nothing else."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set must be given as keyword=value, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def list_schemes(chosen):
    """Print all schemes, or how one is called and what its cases are."""
    if chosen.scheme is None:
        width = max(map(len, names()))
        for name in names():
            print(f"{name.ljust(width)}  {load(name)['what']}")
        return PASSED
    vectors = load(chosen.scheme)
    print(textwrap.fill(vectors["what"], 100))
    print(f"\nfunction({signature(vectors['parameters'])})")
    print(f"\nposattn: {vectors['function']}; source: {vectors['source']}")
    print(f"\n{len(vectors['cases'])} cases:")
    for case in vectors["cases"]:
        print(f"  {case['name']}")
    return PASSED


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
