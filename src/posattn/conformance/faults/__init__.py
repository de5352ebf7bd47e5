"""What others got wrong: faulty implementations, whose results name the cause of a failure."""

from dataclasses import dataclass, replace

import numpy as np

from posattn.conformance.faults import (
    angles,
    attention,
    axes,
    bias,
    cache,
    content,
    latent,
    layouts,
    masks,
    misuses,
    positions,
    scaling,
    selection,
    soft_cap,
    states,
)
from posattn.conformance.faults.registry import FAULTS, Near

__all__ = ["FAULTS", "Cause", "angles", "attention", "axes", "bias", "cache", "content"]
__all__ += ["explain", "latent", "layouts", "masks", "misuses", "positions", "scaling"]
__all__ += ["selection", "soft_cap", "states"]

LIMITS = ("float32_angles", "angles_in_float32")
NEARLY_ALL = 3 / 4  # of the failures must be those of a fault, or it is not named


@dataclass(frozen=True)
class Cause:
    """A known fault, and the failed runs that it explains.

    Args:
        name: the name of the faulty implementation.
        sentence: what is wrong.
        seen: public threads, by repository and number.
        runs: the failed runs that end as it does.
        of: how many runs failed.
    """

    name: str
    sentence: str
    seen: str
    runs: list
    of: int


def explain(scheme, runs, known=None):
    """Find the faults that end as the runs did, in nearly all of those that are wrong.

    Each implementation is called on the same cases in the same order, because some remember.
    What raised is looked at apart, unless a fault explains it with the rest.
    One whose numbers are known up to rounding errors only, or that merely fails where the function
    failed, must end as the function did in every case; two exceptions are alike if they name the
    same sizes.
    The faults are those of the scheme, or `known` where they are made for these cases.
    """
    failed = {k for k, run in enumerate(runs) if run.wrong}
    raised = {k for k in failed if isinstance(runs[k].got, BaseException)}
    if known is None:
        known = [fault for fault in FAULTS if scheme in fault.schemes]
    faults = known if failed else []
    causes = likely(faults, runs, failed)
    if not causes and raised and raised != failed:
        causes = [
            c for part in (failed - raised, raised) for c in likely(faults, runs, part)
        ]
    return causes or beyond_a_limit(faults, runs, failed)


def likely(faults, runs, failed):
    """The fault that ends as the runs did in nearly all of those that failed, if there is one.

    It explains at least as many runs as it would have made wrong and are right.
    """
    repeated = {fault.name: imitate(fault, runs, failed) for fault in faults}
    right = {k for k, run in enumerate(runs) if not run.wrong}
    found = [
        fault
        for fault in faults
        if (same := repeated[fault.name]) and len(right - same) <= len(failed & same)
    ]
    if not found:
        return []
    first = max(
        found, key=lambda f: (len(repeated[f.name] & failed), len(repeated[f.name]))
    )
    same = [runs[k] for k in sorted(repeated[first.name] & failed)]
    return [Cause(first.name, first.sentence, first.seen, same, len(failed))]


def beyond_a_limit(faults, runs, failed):
    """The fault of what is left when angles in float32 explain a part, and that limit."""
    for limit in (fault for fault in faults if fault.name in LIMITS):
        made = [limit.make(*run.case["arguments"], **run.case["keywords"]) for run in runs]
        within = {k for k in failed if runs[k].agrees(*made[k])}
        others = likely(faults, runs, failed - within) if within else []
        if others:
            same = [runs[k] for k in sorted(within)]
            cause = Cause(limit.name, limit.sentence, limit.seen, same, len(failed))
            return [replace(others[0], of=len(failed)), cause]
    return []


def imitate(fault, runs, failed):
    """The runs that a faulty implementation repeats, or none if that is no evidence."""
    function, same, sure = fault.start(), set(), False
    spare = (1 - NEARLY_ALL) * len(failed)
    for k, run in enumerate(runs):
        try:
            with np.errstate(all="ignore"):
                made = function(*run.case["arguments"], **run.case["keywords"])
        except Exception as error:
            made = error
        if run.repeats(*(made if isinstance(made, Near) else (made,))):
            same.add(k)
            sure = sure or (k in failed and not isinstance(made, (Near, Exception)))
        elif k in failed:
            spare -= 1
            if spare < 0:
                return set()
    return same if sure or len(same) == len(runs) else set()
