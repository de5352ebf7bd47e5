"""What others got wrong: faulty implementations, whose results name the cause of a failure."""

from dataclasses import dataclass

import numpy as np

from posattn.conformance.faults import (
    angles,
    attention,
    axes,
    bias,
    content,
    positions,
    scaling,
)
from posattn.conformance.faults.registry import FAULTS, Near

__all__ = ["FAULTS", "Cause", "angles", "attention", "axes", "bias", "content", "explain"]
__all__ += ["positions", "scaling"]


@dataclass(frozen=True)
class Cause:
    """A known fault, and the failed runs that it explains.

    Args:
        name: the name of the faulty implementation.
        sentence: what is wrong.
        seen: public threads, by repository and number.
        runs: the failed runs that end as it does.
    """

    name: str
    sentence: str
    seen: str
    runs: list


def explain(scheme, runs):
    """Find the faults that end as the runs did, first those that explain most failures.

    Each implementation is called on the same cases in the same order, because some remember.
    One whose numbers are known up to rounding errors only, or that merely fails where the function
    failed, must end as the function did in every case.
    """
    unexplained = {k for k, run in enumerate(runs) if run.failed}
    suspects = [
        (fault, *imitate(fault, runs)) for fault in FAULTS if scheme in fault.schemes
    ]
    suspects = [
        (fault, same) for fault, same, sure in suspects if sure or len(same) == len(runs)
    ]
    causes = []
    while unexplained and suspects:
        fault, same = max(suspects, key=lambda s: (len(s[1] & unexplained), len(s[1])))
        if not same & unexplained:
            break
        explained = [runs[k] for k in sorted(same & unexplained)]
        causes.append(Cause(fault.name, fault.sentence, fault.seen, explained))
        unexplained -= same
    return causes


def imitate(fault, runs):
    """The runs that a faulty implementation repeats, and whether its numbers prove that."""
    function, same, sure = fault.start(), set(), False
    for k, run in enumerate(runs):
        try:
            with np.errstate(all="ignore"):
                made = function(*run.case["arguments"], **run.case["keywords"])
        except Exception as error:
            made = error
        if run.repeats(*(made if isinstance(made, Near) else (made,))):
            same.add(k)
            sure = sure or (run.failed and not isinstance(made, (Near, Exception)))
    return same, sure
