"""Call everything public with hostile input, made from the signatures: `python -m tests.nightly.fuzz`.

A valid call is drawn first, then one or two of its arguments become something hostile. The same call, in
the words of each column, goes to the column and to the reference: each must compute, or refuse with an
error of the contract that names the argument, and both must do the same. Their numbers are compared by the
vectors and by tests/library.
What is printed of a fault is Python that runs after `from tests.nightly.fuzz import *`.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections import Counter

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import torch

import posattn
from tests.nightly.signatures import COLUMNS, SCOPE, calls, targets

__all__ = [*SCOPE]
globals().update(SCOPE)

PRIME = 7919  # between the seeds of two rounds
ROUND = 200  # inputs of a target, before it is the turn of the next
LIMIT = 20.0  # seconds, in which JAX has time to compile
ANOTHER_CALL = {  # in each column
    "ring_attention",
    "weight_to_half",
    "weight_to_interleaved",
    "KVCache.mask",  # PyTorch's has a slot more, for what is dropped
}
OWN_WORDS = {"dtype", "device", "rng"}  # of one column alone
SOURCE = os.path.dirname(posattn.__file__)
CONTRACT = os.path.join(SOURCE, "contract")


def words(text):
    """What stands in a text between spaces."""
    return text.split()


VALUES = words("""
None True False 0 -1 1 2 3 7 2.5 0.0 -0.0 nan inf -inf 1e308 5e-324 1j 10**400 -10**400 2**63 2**64 -2**70
'x' '' b'x' () [] [1] [1.0,2.0] [None] {} object() int print range(3) iter([1.0,2.0]) slice(None) ...
np.float64(2) np.int8(2) np.uint64(2) np.bool_(True) np.array(2) own.array([2]) np.array(['a'])
np.array([None,1]) np.array(['2020-01-01'],'datetime64[D]') np.zeros(2,'i4,f4')
own.array(2) own.array(2,dtype=own.uint64) own.array(2.5) own.array(True) own.array([True]) own.array([])
alien.array(2) alien.array([1.0,2.0]) stranger.array([[1.0,2.0]]) own.rng lambda*a,**k:None lambda*a,**k:1/0
posattn.own.ALiBi(2) posattn.own.Rotary() posattn.own.Window(1) posattn.own posattn.own.ALiBi
""")
WARPS = words("""
{}[None] {}[0] {}[:0] {}[...,:0] {}[...,:1] {}[...,::2] {}*nan {}*inf {}*1e300 -{} {}+10**6
{}.tolist() [{}] ({},{})
""")
DTYPES = words("complex128 complex64 float32 float16 bfloat16 int8 uint8 int32 uint64 bool")


class Hang(BaseException):
    """Raised by the clock."""


@dataclasses.dataclass
class Outcome:
    """What came of a call: "computed", "refused", "unsayable", or a fault."""

    kind: str
    value: object = None

    def __str__(self):
        text = f"{type(self.value).__name__}: {self.value}".splitlines()[0]
        failed = isinstance(self.value, BaseException)
        return f"{self.kind}: {text[:160]}" if failed else self.kind


def alarm(*_):
    raise Hang


compiled = functools.lru_cache(512)(lambda text: compile(text, "<call>", "eval"))


def run(text):
    """Run a call, at most for some seconds."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        return Outcome("computed", eval(compiled(text), dict(SCOPE)))
    except Hang:
        return Outcome("hangs", TimeoutError(f"no answer in {LIMIT:g} seconds"))
    except Exception as error:
        passed = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if not any(name.startswith(SOURCE) for name in passed):
            return Outcome("unsayable", error)
        if passed[-1] == "<call>":  # a function that was given has raised it
            return Outcome("refused", error)
        ours = passed[-1].startswith(CONTRACT)
        refused = ours and type(error) in (TypeError, ValueError) and " must " in str(error)
        return Outcome("refused" if refused else "fails from inside", error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def shapes(value):
    """The shapes in a result; a layer has none."""
    if isinstance(value, tuple | list):
        return [shape for part in value for shape in shapes(part)]
    layer = dataclasses.is_dataclass(value) or callable(value)
    return [] if layer else [tuple(np.shape(value))]


def difference(ours, theirs):
    """How an outcome differs from the reference's, in words, or None."""
    if "unsayable" in (ours.kind, theirs.kind):
        return None
    if ours.kind != theirs.kind:
        return f"{ours.kind} where the reference {theirs.kind}"
    if ours.kind == "refused":
        return None if subject(ours) == subject(theirs) else "refused in other words"
    same = shapes(ours.value) == shapes(theirs.value)
    return None if same else "another shape"


def subject(outcome):
    """What is refused, and why, without what was got and the names of a framework."""
    text = str(outcome.value).partition(", got")[0]
    return type(outcome.value), re.sub(
        "NumPy array|torch.Tensor|JAX array|posattn.[a-z]+", "*", text
    )


def judge(target, column, call, changes):
    """The outcome in a column, and what is wrong with it, or None."""
    call, values = with_changes(call, changes), str([*changes.values()])
    ours = run(target.text(column, call))
    if ours.kind not in ("computed", "refused", "unsayable"):
        return ours, f"{ours.kind}: {type(ours.value).__name__}"
    alone = (
        column == "reference" or changes.keys() & OWN_WORDS or str(target) in ANOTHER_CALL
    )
    if alone or "np." in values:  # which is the reference's own
        return ours, None
    theirs = run(target.text("reference", call))
    wrong = difference(ours, theirs)
    free = (
        # it differentiates by complex numbers, and is in float64, whatever it is given
        ("complex" in values and theirs.kind == "computed")
        or "must have the dtype of" in str(ours)
        # of values that it may not know
        or (column == "jax" and "must lie between" in str(theirs))
        # the order of checks is nobody's business
        or (
            wrong == "refused in other words"
            and (len(changes) > 1 or re.search("array|rng", values))
        )
    )
    return ours, None if free else wrong and f"{wrong} ({theirs})"


@functools.cache
def valid(target):
    """Calls that the reference computes."""
    reference = functools.partial(target.text, "reference")
    return calls(target, lambda call: run(reference(call)).kind == "computed")


@functools.cache
def hostile(target, column):
    """A valid call, and what one or two of its arguments become."""
    return st.one_of([varied(target, column, call) for call in valid(target)])


def varied(target, column, call):
    """This call, and hostile changes of it."""
    names = [name for name in target.signatures(column)[1] if name != "device"]
    one = st.one_of(
        [st.tuples(st.just(name), instead(call.given.get(name) or "")) for name in names]
    )
    return st.tuples(st.just(call), st.lists(one, min_size=1, max_size=2).map(dict))


@functools.cache
def instead(old):
    """Python for what an argument may become."""
    texts = list(VALUES)
    if "own.array" in old:
        texts += [warp.replace("{}", old) for warp in WARPS]
        texts += [old.replace("own.", other) for other in ("alien.", "stranger.")] * 3
        texts += [re.sub(r"own\.\w*\d+|own\.bool", f"own.{dtype}", old) for dtype in DTYPES]
    return st.sampled_from(texts) | NUMBERS


WHOLE = st.integers(-4, 9) | st.integers(min_value=2**63)
NUMBERS = st.floats().map(repr) | WHOLE.map(str)


def with_changes(call, changes):
    """The call with its hostile arguments."""
    return dataclasses.replace(call, given=call.given | changes)


def explore(target, column, seed, inputs, counts, found):
    """Run hostile calls of a target; count its faults in `found`, and return the new ones."""
    fresh = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(hostile(target, column))
    def once(drawn):
        call, changes = drawn
        outcome, wrong = judge(target, column, call, changes)
        counts["inputs"] += 1
        counts[outcome.kind] += 1
        if not wrong:
            return
        for name, text in changes.items():  # the same with one of them
            if judge(target, column, call, {name: text})[1] == wrong:
                changes = {name: text}
                break
        key = str(target), wrong.partition(" (")[0], tuple(sorted(changes))
        found[key] += 1
        if found[key] == 1:
            text = target.text(column, with_changes(call, changes))
            fresh.append((text, wrong, outcome))

    once()
    return fresh


def rounds(column, *, inputs, seed=0, each=ROUND, only="", say=print):
    """Fuzz a column until so many inputs were tried; return the faults by target, kind and arguments."""
    counts, found, begin = Counter(), Counter(), time.monotonic()
    chosen = [target for target in targets() if only in str(target)]
    for target in chosen:
        assert valid(target), f"no valid call of {target} was found in its signature"
    chosen = [t for t in chosen if t.signatures(column)[1]]
    for k in itertools.count():
        for target in chosen:
            new = explore(target, column, seed + PRIME * k, each, counts, found)
            for text, wrong, outcome in new:
                say(f"{target}: {wrong}\n  {text}\n  {outcome}")
            if counts["inputs"] >= inputs:
                break
        rate = counts["inputs"] / (time.monotonic() - begin)
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("computed", "refused"))
        told = f"{counts['inputs']} inputs, {kinds}, {sum(found.values())} faults"
        say(f"{column}, round {k}: {told}, {rate:.0f} inputs a second")
        if counts["inputs"] >= inputs:
            return found


def main(arguments=None):
    """Fuzz columns and print what was found; the exit code is 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    add, say = parser.add_argument, functools.partial(print, flush=True)
    add("--column", choices=COLUMNS, action="append", help="all if not given")
    add("--inputs", type=int, default=100_000, help="to each column")
    add("--seed", type=int, default=0)
    add("--only", default="", help="what has this in its name")
    chosen = vars(parser.parse_args(arguments))
    columns = chosen.pop("column") or COLUMNS
    with prepared():
        found = [rounds(column, say=say, **chosen) for column in columns]
    return int(any(found))


@contextlib.contextmanager
def prepared():
    """Compute in float64 everywhere, and take the clock; then put things back."""
    default, handler = torch.get_default_dtype(), signal.signal(signal.SIGALRM, alarm)
    torch.set_default_dtype(torch.float64)
    try:
        with jax.enable_x64(True), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(default)
        signal.signal(signal.SIGALRM, handler)


if __name__ == "__main__":
    sys.exit(main())
