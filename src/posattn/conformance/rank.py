"""The heads of a layer that one of several ranks computes (tensor parallelism)."""

from functools import partial

import numpy as np

from posattn.conformance.computation import attend
from posattn.conformance.faults.registry import Fault
from posattn.conformance.vectors import UsageError

__all__ = ["of_rank"]

HEADED = {"sinks": -1, "table": -1}  # what is learned for each head, and on which axis
FIRST = "The heads are counted from the first of the rank: slopes and biases are those of rank 0."


def of_rank(vectors, layer, rank):
    """Vectors of the heads that a rank has: key heads are shared out, or each goes to several ranks.

    Args:
        vectors: of the whole layer.
        layer: a `posattn.configs.Layer`.
        rank: its number from 0 on, and how many there are.

    Raises:
        UsageError: if the heads cannot be shared out so.
    """
    index, ranks = rank
    heads, groups = layer.num_heads, layer.num_kv_heads
    if not 0 <= index < ranks or heads % ranks or (groups % ranks and ranks % groups):
        raise UsageError(
            f"rank must be (number, how many), which share {heads} heads and {groups} of keys evenly, "
            f"got {rank!r}"
        )

    def own(x, axis=1):
        count = x.shape[axis]
        start = index * count // ranks
        return x.take(range(start, start + max(1, count // ranks)), axis)

    def shared(case):
        keywords = {
            name: own(x, HEADED[name]) if name in HEADED else x
            for name, x in case["keywords"].items()
        }
        arguments = [*map(own, case["arguments"][:3]), *case["arguments"][3:]]
        expected = own(case["expected"])
        return case | {"arguments": arguments, "keywords": keywords, "expected": expected}

    def known(name, sentence, whole, first):
        def attention(query, key, value, *positions, **learned):
            many = min(ranks, groups)
            given = [np.concatenate([query] * ranks, 1)]
            given += [np.concatenate([x] * many, 1) for x in (key, value)]
            learned = {
                name: np.concatenate([x] * ranks, -1) if name in HEADED else x
                for name, x in learned.items()
            }
            size = query.shape[1]
            return whole(*given, *positions, **learned)[:, first * size :][:, :size]

        attention.__name__, attention.__doc__ = name, sentence
        return Fault(attention, (), "")

    faults = [known(f.name, f.sentence, f.make, index) for f in vectors["faults"]]
    if index:
        faults.append(known("heads_of_rank_0", FIRST, partial(attend, layer), 0))
    what = f"{vectors['what']}, rank {index} of {ranks}"
    cases = [shared(case) for case in vectors["cases"]]
    return vectors | {"what": what, "cases": cases, "faults": faults}
