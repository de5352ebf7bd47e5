"""What others write: a small function, the scheme that it should be, and how it is checked."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from posattn.conformance import check

RIGHT, WRONG, THREADS = [], [], []


class Example(NamedTuple):
    """A function in the style of released code, or one that is subtly wrong.

    Args:
        make: the function, or a class of it if it remembers its calls.
        scheme: the scheme that it should be.
        framework: whose arrays it takes.
        options: more options of `check`.
        cause: the fault that explains it, or nothing if none is known.
        name: the repository and the number, if a public thread tells of it.
    """

    make: Callable
    scheme: str
    framework: str
    options: dict
    cause: str = ""
    name: str = ""

    def check(self):
        """The report on it."""
        once = isinstance(self.make, type) and self.scheme not in ("cache", "state")
        function = self.make() if once else self.make
        with np.errstate(all="ignore"):
            return check(function, self.scheme, framework=self.framework, **self.options)

    def __str__(self):
        return self.name or self.make.__name__


def right(scheme, framework="numpy", **options):
    """Enter a function that must pass."""
    return entered(RIGHT, Example(None, scheme, framework, options))


def wrong(scheme, framework="numpy", **options):
    """Enter a function that must fail, and that no known fault explains."""
    return entered(WRONG, Example(None, scheme, framework, options))


def thread(*names, scheme, framework="numpy", cause="", **options):
    """Enter what one public thread or several tell, and the cause that the report names."""
    found = [Example(None, scheme, framework, options, cause, name) for name in names]
    return entered(THREADS, *found)


def entered(examples, *found):
    """Enter a function into a list."""

    def enter(make):
        examples.extend(example._replace(make=make) for example in found)
        return make

    return enter
