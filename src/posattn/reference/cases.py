"""What the cases of conformance are made of: ordinary ones, and those that others got wrong.

Arrays of data hold multiples of 1/16 between -7 and 7, and given positions and frequencies are numbers
of float32, so that every framework and dtype starts from the same numbers.
Their order matters: a function that caches too much must meet the case that shows it.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cases:
    """What becomes one file of vectors.

    Args:
        function: the definition, `function(*arguments, **keywords)`.
        cases: yields a name, a tuple of arguments and a dict of keywords; its docstring says what is
            checked.
        source: a key of `references.bib`, and the place in that work.
        name: what the definition is called in each column, if not as `function`.
        method: the method that is called on what `name` makes, if it is an object.
        relative: measure the error against each number, where the small ones matter.
        exact: no half precision will do for the results, such as frequencies.
        learned: arrays that must not be rounded and yet are learned, so that they have gradients.
        kept: arrays that stay as exact as float32 beside data of half precision, such as states.
        results: `"mask"` if a result may be True and False or be added to scores.
    """

    function: Callable
    cases: Callable
    source: str
    name: str = ""
    method: str = ""
    relative: bool = False
    exact: bool = False
    learned: tuple = ()
    kept: tuple = ()
    results: str = ""


def flat(make, *arguments, method="__call__"):
    """Make one function of `make(**keywords)`, a layer or a bias, and of the call that follows."""

    def function(*values, **keywords):
        return getattr(make(**keywords), method)(*values)

    first = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in arguments
    ]
    then = [
        p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(make).parameters.values()
    ]
    function.__signature__ = inspect.Signature([*first, *then])
    return function


def first_of(function):
    """What a function computes for its tokens, without the state that it passes on."""

    def output(*arguments, **keywords):
        return function(*arguments, **keywords)[0]

    output.__name__, output.__signature__ = function.__name__, inspect.signature(function)
    return output


def of_positions(make, cases, source, **options):
    """The cases of a bias that is a function of positions."""
    function = flat(make, "query_positions", "key_positions")
    return Cases(function, cases, source, name=make.__name__, **options)


def of_content(make, cases, source):
    """The cases of scores that depend on queries and keys."""
    names = ("query", "key", "query_positions", "key_positions")
    function = flat(make, *names, method="scores")
    return Cases(function, cases, source, name=make.__name__, method="scores")


def draw(seed, *shape):
    """Normal numbers in steps of 1/16, which every dtype holds."""
    return np.clip(
        np.round(16 * np.random.default_rng(seed).normal(size=shape)) / 16, -7, 7
    )


def single(x):
    """The nearest numbers that float32 holds."""
    return np.asarray(x, np.float32).astype(np.float64)


PAIRS = {
    "six tokens": (np.arange(6), np.arange(6)),
    "a shift of all positions": (np.arange(100, 106), np.arange(100, 106)),
    "decoding: one query at the end of its keys": (np.array([5]), np.arange(6)),
    "decoding: three queries, five keys": (np.arange(2, 5), np.arange(5)),
    "more queries than keys": (np.arange(5), np.arange(2)),
    "positions per example": (
        np.array([[3, 4], [0, 1]]),
        np.array([[0, 1, 2, 3, 4], [0, 0, 0, 0, 1]]),
    ),
    "positions that bfloat16 and float16 cannot hold": (
        np.array([257, 2049, 4095]),
        np.array([256, 258, 2048, 4094, 4095]),
    ),
    "large positions, up to 2**20": (
        np.array([2**20, 2**20 - 1, 7]),
        np.array([0, 2**19 + 1, 2**20 - 2, 2**20, 7]),
    ),
}
FRACTIONS = {
    "fractions and negative positions": (
        np.array([-2.5, 0.25, 1000.75]),
        np.array([-3.0, 0.0, 0.5, 999.25, 1000.75]),
    )
}


def anywhere(**parameters):
    """The same parameters at all kinds of positions, fractions included."""
    for name, pair in {**PAIRS, **FRACTIONS}.items():
        yield name, pair, parameters


def heads(query_positions, key_positions):
    """Queries and keys of three heads of width 4 at positions, and the positions."""
    batch = query_positions.shape[:-1]
    query, key = (
        draw(seed, *batch, 3, where.shape[-1], 4)
        for seed, where in enumerate((query_positions, key_positions))
    )
    return query, key, query_positions, key_positions


def everywhere(**parameters):
    """The same parameters and heads at all kinds of positions."""
    for name, pair in PAIRS.items():
        yield name, heads(*pair), parameters
