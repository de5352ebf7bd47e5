"""The error of a result in units in the last place, and the worst one over a length."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.nightly.numerics import columns, truth

BLOCK = 2**15  # positions at once
MOST = 2**16  # positions of a length, evenly spread if it has more


@dataclass(frozen=True)
class Case:
    """What is measured.

    Args:
        name: of the part of the library, as a user calls it.
        setting: sizes, and what is given.
        unit: `"row"` if the unit is that of the largest number of a row, the last axis, or `"number"`.
        lengths: how many positions, or keys.
        given: the arguments at some positions of a length, arrays of a dtype.
        right: the result, from long doubles.
        ours: the result of a column.
        peer: the name of what we are compared with, if there is something.
        theirs: its result in a column of PyTorch or JAX.
        their_dtypes: the dtypes in which it is compared.
        blocks: whether positions can be taken apart.
    """

    name: str
    setting: str
    unit: str
    lengths: tuple[int, ...]
    given: Callable
    right: Callable
    ours: Callable
    peer: str | None = None
    theirs: Callable | None = None
    their_dtypes: tuple[str, ...] = tuple(columns.DTYPES)
    blocks: bool = True


def units(got, want, dtype, unit):
    """The largest error of a result, in units in the last place of what is right, or infinity."""
    about = ml_dtypes.finfo(columns.DTYPES[dtype])
    off, size = np.abs(want - got), np.abs(want)
    if unit == "row":
        off, size = off.max(-1), size.max(-1)
    last = np.maximum(np.frexp(size)[1] - 1, about.minexp) - about.nmant
    worst = np.ldexp(off, -last).max()
    return float(worst) if np.isfinite(worst) else math.inf


def places(case, length, most):
    """The positions of a length, or so many of them, in blocks, the first and the last among them."""
    if not case.blocks:
        return [np.arange(length)]
    some = np.linspace(0, length - 1, min(length, most)).astype(np.int64)
    return np.split(some, max(1, len(some) // BLOCK))


def worst(case, length, most=MOST):
    """The largest errors of a case: `{dtype: {framework: [ours, theirs]}}`, theirs only where it exists."""
    found = {dtype: {} for dtype in columns.DTYPES}
    for where in places(case, length, most):
        for dtype, number in columns.DTYPES.items():
            given = case.given(where, length, number)
            wide = [x if x.dtype.kind in "iu" else widened(x) for x in given]
            right = case.right(*wide)
            for column in columns.COLUMNS:
                if column.dtype == dtype:
                    errors = beside(case, column, given, right)
                    before = found[dtype].get(column.name, errors)
                    found[dtype][column.name] = [*map(max, errors, before)]
    return found


def beside(case, column, given, right):
    """The errors of a column, ours and then the other's."""
    with column.mode(), columns.quiet():
        arrays = [column.array(x) for x in given]
        results = [case.ours(column, *arrays)]
        if case.theirs and column.name != "NumPy" and column.dtype in case.their_dtypes:
            results.append(case.theirs(column, *arrays))
        return [units(columns.plain(x), right, column.dtype, case.unit) for x in results]


def widened(x):
    """Long doubles, by way of float64, which NumPy can make of all."""
    return x.astype(np.float64).astype(truth.WIDE)
