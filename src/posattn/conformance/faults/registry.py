"""The list of known faults, and how one enters it."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from posattn.conformance.generate import SCHEMES

FAULTS = []


class Fault(NamedTuple):
    """A faulty implementation, which computes in float64 what others were seen to return.

    Args:
        make: the implementation, or a class of it if it remembers its calls; the first line of its
            docstring says what is wrong.
        schemes: the schemes that it implements.
        seen: public threads, by repository and number.
    """

    make: Callable
    schemes: tuple
    seen: str

    @property
    def name(self):
        """The name of the implementation."""
        return self.make.__name__

    @property
    def sentence(self):
        """What is wrong."""
        return self.make.__doc__.splitlines()[0]

    def start(self):
        """The implementation, before its first call."""
        return self.make() if isinstance(self.make, type) else self.make


class Near(NamedTuple):
    """A result that is known up to `slack` only, since rounding errors differ."""

    value: np.ndarray
    slack: np.ndarray


def fault(*schemes, seen=""):
    """Enter an implementation of some schemes into the list."""

    def enter(make):
        FAULTS.append(Fault(make, schemes, seen))
        return make

    return enter


def line(name, make, sentence, *schemes, seen=""):
    """Enter an implementation that has no name and sentence of its own."""
    made = functools.partial(make)
    made.__name__, made.__doc__ = name, sentence
    fault(*schemes, seen=seen)(made)


def misuse(*schemes, seen=""):
    """Enter a wrong use of the definitions of some schemes, `uses(definition, *arguments, **keywords)`."""

    def enter(uses):
        for scheme in schemes:
            made = functools.partial(uses, SCHEMES[scheme].function)
            fault(scheme, seen=seen)(named_as(uses)(made))
        return uses

    return enter


def misuses(*rows):
    """Enter wrong uses, a row for each: a name, the schemes, the use, a sentence, and threads."""
    for name, schemes, use, sentence, *seen in rows:
        use.__name__, use.__doc__ = name, sentence
        misuse(*schemes, seen="".join(seen))(use)


def named_as(source):
    """Give a function the name and the sentence of another."""

    def enter(function):
        function.__name__, function.__doc__ = source.__name__, source.__doc__
        return function

    return enter


def tokens(x, positions=None):
    """The positions of the tokens of `x`, also where none are given."""
    return np.arange(x.shape[-2]) if positions is None else positions


def rows(length_or_positions):
    """The positions, also where a length is given."""
    given = hasattr(length_or_positions, "shape")
    return length_or_positions if given else np.arange(length_or_positions)


def half_precision(dtype):
    """Rounding to a half precision, `float16` or `bfloat16`, which NumPy lacks."""

    def rounded(x):
        if dtype == "float16":
            return np.asarray(x).astype(np.float16).astype(np.float64)
        bits = np.atleast_1d(np.asarray(x, np.float32)).view(np.uint32)
        even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        kept = (even & np.uint32(0xFFFF0000)).view(np.float32)
        return kept.astype(np.float64).reshape(np.shape(x))

    return rounded
