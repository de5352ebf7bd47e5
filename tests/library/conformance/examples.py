"""What others write: a small function, the scheme that it should be, and how it is to be checked."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from posattn.conformance import check

RIGHT, WRONG = [], []


class Example(NamedTuple):
    """A function in the style of released code, or one that is subtly wrong.

    Args:
        make: the function, or a class of it if it remembers its calls; its docstring names the style,
            or says what is wrong.
        scheme: the scheme that it should be.
        framework: whose arrays it takes.
        cause: the fault that explains it, or nothing if none is known.
        options: more options of `check`.
    """

    make: Callable
    scheme: str
    framework: str
    cause: str
    options: dict

    def check(self):
        """The report on it."""
        function = self.make() if isinstance(self.make, type) else self.make
        with np.errstate(all="ignore"):
            return check(function, self.scheme, framework=self.framework, **self.options)

    def __str__(self):
        return self.make.__name__


def right(scheme, framework="numpy", **options):
    """Enter a function that must pass."""
    return entered(RIGHT, scheme, framework, "", options)


def wrong(scheme, framework="numpy", cause="", **options):
    """Enter a function that must fail, and its cause if one is known."""
    return entered(WRONG, scheme, framework, cause, options)


def entered(examples, *how):
    """Enter a function into a list."""

    def enter(make):
        scheme, framework, cause, options = how
        examples.append(Example(make, scheme, framework, cause, options))
        return make

    return enter
