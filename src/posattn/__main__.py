"""The command `posattn`: check a function of your own, or see what a model does with positions."""

import argparse
import os
import sys

from posattn.commands import check, compare, diagnose, grade, plan, schemes, twins, vectors
from posattn.conformance import UsageError

UNUSABLE = 2
COMMANDS = (check, diagnose, schemes, vectors, plan, twins, compare, grade)


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
    for command in COMMANDS:
        command.add(commands)
    return whole


if __name__ == "__main__":
    sys.exit(main())
