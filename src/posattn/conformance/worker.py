"""The process that runs somebody's function for the command; `apart` starts it and listens.

What it has to say goes line by line, in JSON, where its standard output was; what the function
prints goes to standard error.
"""

import ast
import contextlib
import difflib
import importlib
import importlib.util
import inspect
import json
import operator
import os
import sys
from pathlib import Path

from posattn.conformance.calls import inner
from posattn.conformance.checker import Options, examine
from posattn.conformance.exceptions import said, where
from posattn.conformance.vectors import UsageError

PASSED, FAILED = 0, 1
# what a request asks for where it does not say
USUAL = {
    **{"scheme": None, "config": None, "layer": 0, "set": (), "only": "", "skip": ()},
    **{"framework": None, "dtype": None, "max_position": None, "tolerance": None},
    **{
        "gradients": False,
        "fail_on_skip": False,
        "expected_failures": None,
        "strict": False,
    },
}


def work(request, say):
    """Find a function, check it, and say how it goes: each case, then the report, or what is amiss."""
    request = {**USUAL, **request}
    try:
        function = find(request["function"])
        options = options_of(request)
        scheme = request["scheme"]
        if request["config"] is not None:
            from posattn.conformance.layers import planned

            scheme = planned(request["config"], request["layer"])
        report = examine(
            function,
            scheme,
            options,
            lambda runs, name: say(
                case=name, before=len(runs), failed=sum(run.failed for run in runs)
            ),
        )
    except UsageError as error:
        say(unusable=str(error))
    else:
        code = PASSED if report.passed(request["fail_on_skip"]) else FAILED
        say(report=str(report), data={**report.to_dict(), **place(function)}, code=code)


def options_of(request):
    """The options of a check, from what a user wrote."""
    request = {**USUAL, **request}
    return Options(
        request["framework"],
        request["dtype"],
        dict(map(setting, request["set"])),
        request["only"],
        request["skip"],
        request["max_position"],
        tolerance(request["tolerance"]),
        request["gradients"],
        request["expected_failures"],
        request["strict"],
    )


def find(path, kind="function"):
    """Import what the user named, a function unless it is of another kind."""
    place, _, name = path.rpartition(":")
    if not (place and name):
        raise UsageError(f"{kind} must be given as module:{kind}, got {path!r}")
    try:
        module = import_file(Path(place)) if place.endswith(".py") else import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        at = where(error)
        raise UsageError(
            f"{place} cannot be imported: {said(error)}" + (f" (at {at})" if at else "")
        ) from None
    try:
        return operator.attrgetter(name)(module)
    except AttributeError:
        near = difflib.get_close_matches(name, dir(module), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{place} has no {kind} {name!r}{hint}") from None


def place(function):
    """The file and the line of a function, where Python knows them."""
    made = inner(function)
    source = inspect.unwrap(made) if hasattr(made, "__name__") else type(made)
    try:
        file, line = inspect.getsourcefile(source), inspect.getsourcelines(source)[1]
    except (OSError, TypeError):
        return {}
    return {"file": os.path.abspath(file), "line": max(1, line)}


def import_module(name):
    """Import a module, also from the current directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(name)


def import_file(path):
    """Import a file, which may import those beside it, and hides no module of its name."""
    sys.path.append(str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(f"{path.stem} of {path.parent}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def setting(text):
    """A keyword and its value, a string if it is nothing else."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set must be given as keyword=value, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return name, value


def tolerance(text):
    """A tolerance of the command: a number, or a name."""
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


def main():
    """Work on the request among the arguments, with standard output to itself."""
    request = json.loads(sys.argv.pop())
    closed = contextlib.suppress(OSError)  # by the function
    with closed, open(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)

        def say(**what):
            print(json.dumps(what), file=output, flush=True)

        try:
            work(request, say)
        except KeyboardInterrupt:
            say(interrupted=True)


if __name__ == "__main__":
    main()
