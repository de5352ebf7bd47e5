"""Measure what is right: check every result first, then let all take turns in one process."""

import ctypes
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import numpy as np
import torch

BUDGET = 10.0  # seconds for the rounds of a case
LEAST, MOST = 5, 101  # rounds of a case, whatever they take
STEP = 1e-30  # of a derivative in complex numbers


def samples_of_results(contenders, results):
    """What the calls themselves have measured, once."""
    return {name: [result[0]] for name, result in results.items()}


def interleaved(contenders, results):
    """Seconds of each call, all once in a round; a first round is not counted.

    Who comes first in a round is drawn, because a call leaves the caches of the machine to the next one.
    """
    # pyperf and asv measure in processes one after the other, and the Timer of torch does not wait for JAX
    samples = {name: [] for name in contenders}
    order, drawn = list(contenders), random.Random(0)
    start = perf_counter()
    rounds = -1
    while rounds < LEAST or (rounds < MOST and perf_counter() - start < BUDGET):
        drawn.shuffle(order)
        for name in order:
            given = contenders[name].prepare()
            begin = perf_counter()
            finish(contenders[name].call(*given))
            samples[name].append(perf_counter() - begin)
        rounds += 1
    return {name: taken[1:] for name, taken in samples.items()}


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Args:
        call: what is measured.
        error: how far a result is from the right one.
        prepare: makes the arguments of a call, and is not measured.
        limit: it does less than the others, as a plain copy does.
    """

    call: Callable[..., Any]
    error: Callable[[Any], float]
    prepare: Callable[[], tuple] = tuple
    limit: bool = False


@dataclass(frozen=True)
class Case:
    """What is measured.

    Args:
        part: the part of the benchmarks, which can be run alone.
        name: of the case within its part.
        setting: shapes, dtype and what else holds for all contenders.
        code: the modules of the library that do the work.
        make: the contenders by name, ours first.
        bound: the largest error of a right result.
        measure: samples of each contender, from the contenders and their checked results.
        unit: of the samples, `"seconds"` or `"bytes"`.
        tokens: how many tokens a call decodes.
    """

    part: str
    name: str
    setting: str
    code: tuple[str, ...]
    make: Callable[[], dict[str, Contender]]
    bound: float
    measure: Callable[..., dict[str, list[float]]] = interleaved
    unit: str = "seconds"
    tokens: int | None = None


# on a GPU it would round float32, and PyTorch does not
@jax.default_matmul_precision("highest")
def run(case):
    """Check and measure a case; a wrong contender is not measured, and nobody is if we are wrong."""
    contenders = case.make()
    results = {name: finish(c.call(*c.prepare())) for name, c in contenders.items()}
    errors = {name: c.error(results[name]) for name, c in contenders.items()}
    wrong = {n: e for n, e in errors.items() if e is not None and not e <= case.bound}
    found = {"error": errors, "wrong": wrong, "bound": case.bound, "unit": case.unit}
    ours = next(iter(contenders))
    if ours in wrong:
        return found
    right = {name: c for name, c in contenders.items() if name not in wrong}
    samples = case.measure(right, results)
    del results
    medians = {
        n: None if None in taken else statistics.median(taken)
        for n, taken in samples.items()
    }
    return found | {
        "tokens": case.tokens,
        "limits": [name for name, c in right.items() if c.limit],
        "rounds": len(samples[ours]),
        "median": medians,
        "ratio": {
            name: ratio(samples[ours], samples[name]) for name in samples if name != ours
        },
    }


def ratio(ours, theirs):
    """Quartiles of our share of their time, round by round."""
    if None in (*ours, *theirs):
        return None
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    several = len(pairs) > 1
    return statistics.quantiles(pairs, n=4, method="inclusive") if several else pairs * 3


def keep_memory():
    """Let this process keep what a call has freed for the next one, if its C library is that of GNU.

    Who has to ask the system for it pays 4 ms for 16 MiB, and chance tells who that is.
    """
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        # of <malloc.h>: M_ARENA_MAX, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        for option, value in ((-8, 1), (-1, 2**30), (-3, 2**30)):
            set_option(option, value)


def finish(result):
    """Wait until a result is there, on whatever device it is made."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return jax.block_until_ready(result)


def plain(x):
    """An array of any framework as NumPy's, in float64."""
    if isinstance(x, torch.Tensor):
        return x.detach().double().cpu().numpy()
    return np.asarray(x, dtype=np.float64)


def error(got, want):
    """The largest difference, relative to the largest number that is wanted, or to 1."""
    return float(np.abs(plain(got) - want).max() / max(1, np.abs(want).max()))


def along(exact, arrays, cotangent, got):
    """The error of gradients along a direction, relative to their length, by a derivative in complex numbers.

    `exact` makes those rows of the right result that `rows` names; the cotangent is zero elsewhere.
    """
    directions = np.random.default_rng(2).normal(size=np.shape(arrays))
    change = exact(*(np.asarray(arrays, float) + 1j * STEP * directions)).imag / STEP
    want = (change * cotangent[..., rows(cotangent.shape[-2]), :].astype(float)).sum()
    got = np.stack([plain(x) for x in got])
    return float(abs((got * directions).sum() - want) / np.linalg.norm(got))


def rows(n):
    """The 64 queries of which a long result is checked, the first and the last among them."""
    return np.linspace(0, n - 1, 64).astype(int)
