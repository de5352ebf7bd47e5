"""Where two engines part on the same text: the first layer, the first token, and what can be the cause."""

from typing import NamedTuple

import numpy as np

from posattn.conformance.dumps import NORM, Dump
from posattn.conformance.vectors import UsageError

__all__ = ["Disagreement", "causes", "disagreement", "states_of"]

TOLERANCES = {"float32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2, "llama.cpp": 7e-3}
# times the tolerance, or of the tokens, which rounding to half does not reach
LOUD, SHARE = 5, 0.05
QUIET = 20  # times below the tolerance, where float32 still counts beside what exceeds it
NATS = 10.0  # the least that differences of logarithms are relative to
DEEPER = 8  # layers, over which causes tell apart what is near to rounding in one
BEHIND = 64  # tokens behind the first that differs, which a cause must explain, too
ALIKE = 3  # times the error of the nearest cause, which others may be, too
GROWS, FEW = 3, 8  # times, over tokens that are more than a few
SHAPES = {  # by where differences begin
    "embedding": "The embeddings differ, so it is no position: ids, their weights or scale.",
    "alone": "The first token differs, which sees only itself, so it is no position.",
    "unseen": "Tokens before it were not compared: where it begins is not known.",
    "rounded": "Where it begins is lost in rounding: dump float32 to see it.",
    "few": "Few tokens differ: a cache, a chunk of the prompt, or padding.",
    "second": "It begins with the first token that sees another: the rotation, or the scale of scores.",
    "grows": "It grows with the position: the base, or a scaling of frequencies.",
    "window": "All before it agrees: a window or chunk of {0} tokens, or what acts from {0} on.",
    "early": "It begins early: a rotation, or a window or chunk of {0} tokens.",
}


class Disagreement(NamedTuple):
    """The first `stage` and `token` that differ (None if all agree), and the largest error, relative.

    In float32, what the token differs by may be within the tolerance.
    If `late`, an earlier token may differ that was not compared or is lost in rounding.
    """

    stage: int | str | None
    token: int | None
    error: float
    tolerance: float
    compared: tuple  # how many tokens and stages
    shape: str = ""
    late: bool = False


def disagreement(a, b, tolerance=None):
    """Compare two dumps of the same text, to what the coarser dtype leaves open if no tolerance is given.

    A UsageError tells that they are of different tokens, or that nothing is in both.
    """
    ids = [() if dump.ids is None else dump.ids for dump in (a, b)]
    for t, (x, y) in enumerate(zip(*ids, strict=False)):
        if x != y:
            told = f"token {t} is {x} in A and {y} in B: look at BOS and the template"
            raise UsageError(f"both must read the same ids, {told}")
    usual = max(TOLERANCES[x.dtype] for x in (a, b))
    coarse, tolerance = usual > TOLERANCES["float32"], tolerance or usual
    if not (errors := apart(a, b)):
        raise UsageError("A and B must have a layer or logits of the same token in common")
    compared = max(int(np.isfinite(e).sum()) for e in errors.values()), len(errors)
    for stage, error in errors.items():
        wrong, most = np.flatnonzero(error > tolerance), float(np.nanmax(error))
        few = len(wrong) <= max(1, SHARE * compared[0]) and most <= LOUD * tolerance
        if len(wrong) and not (coarse and few):
            t = int((error > (tolerance if coarse else tolerance / QUIET)).argmax())
            late = bool(t and (coarse or np.isnan(error[:t]).any()))
            shape = SHAPES[shape_of(stage, error, t, tolerance, coarse)].format(t)
            return Disagreement(stage, t, most, tolerance, compared, shape, late)
    most = max(float(np.nanmax(e)) for e in errors.values())
    return Disagreement(None, None, most, tolerance, compared)


def apart(a, b):
    """For each stage in order, how far tokens are off, relative to their largest number; NaN if not known."""
    found, tiny = {}, np.finfo(np.float32).tiny
    for stage in sorted(
        {*a.states} & {*b.states}, key=lambda s: np.inf if s == NORM else s
    ):
        x, y = (dump.states[stage] for dump in (a, b))
        n = min(len(x), len(y))
        if x.shape[1] != y.shape[1]:
            told = f"{x.shape[1]} and {y.shape[1]} numbers a token"
            raise UsageError(f"A and B must be of one model, got {told}")
        x, y = x[:n], y[:n]
        size, off = (np.nan_to_num(abs(z)).max(1) for z in (np.fmax(abs(x), abs(y)), x - y))
        off = np.maximum(off - a.grain - b.grain, 0) / np.maximum(size, tiny)
        off[np.isnan(x - y).all(1)] = np.nan
        for dump, z in ((a, x), (b, y)):  # what was printed is not known where it is NaN
            off[np.isnan(z).any(1) & (not dump.grain)] = np.inf
        found[stage] = off
    rows = {t: said_apart(a.said[t], b.said[t]) for t in sorted({*a.said} & {*b.said})}
    if rows:
        found["logits"] = np.array([rows.get(t, np.nan) for t in range(max(rows) + 1)])
    return {stage: error for stage, error in found.items() if not np.isnan(error).all()}


def said_apart(a, b):
    """How far two rows of logits, or of logarithms of some probabilities, are off."""
    v = min((len(x) for x in (a, b) if not isinstance(x, dict)), default=0)
    a, b = (x if isinstance(x, dict) else logarithms(x[:v]) for x in (a, b))
    known = [set(x if isinstance(x, dict) else range(v)) for x in (a, b)]
    both = sorted(known[0] & known[1])
    if not both:
        return np.nan
    a, b = (np.array([x[t] for t in both]) for x in (a, b))
    off = abs(a - b).max() / max(abs(b).max(), NATS)
    return np.inf if np.isnan(off) else off


def logarithms(logits):
    """The logarithms of probabilities."""
    top = logits.max().astype(float)
    return logits - top - np.log(np.exp(logits - top).sum())


def shape_of(stage, error, token, tolerance, coarse):
    """Which shape the differences by token have."""
    before, behind = error[:token], error[token:]
    if stage == 0 or token == 0:
        return "alone" if stage else "embedding"
    if np.isnan(before).any() or coarse:
        return "unseen" if np.isnan(before).any() else "rounded"
    if np.nanmedian(behind) < tolerance / QUIET:
        return "few"
    if token <= FEW:
        return "second" if token == 1 else "early"
    quarter = token // 4
    early, late = (np.median(x) for x in (before[1 : quarter + 1], before[-quarter:]))
    return "grows" if late > GROWS * early else "window"


def states_of(model, ids, last=None):
    """A dump of what a `Decoder` computes, up to some layer."""
    import torch

    with torch.no_grad():
        x, told = model._start(torch.as_tensor(ids).long(), None, None)
        found, said = {0: x}, []
        for number, block in enumerate(model.blocks[:last], 1):
            x, _ = block(x, **told[number - 1])
            found[number] = x
        if last is None:
            found[NORM], said = model.norm(x), model._logits(x).float().numpy()
    found = {stage: x.float().numpy() for stage, x in found.items()}
    return Dump(np.asarray(ids), found, dict(enumerate(said)))


def causes(compute, twins, dump, found):
    """What the twins say that compute what a dump has at the stage that differs, the nearest first."""
    ids = dump.ids[: found.token + BEHIND]
    last = found.stage if isinstance(found.stage, int) else None
    if found.late and last:
        last += DEEPER

    def off(model):
        errors = apart(states_of(model, ids, last), dump)
        if found.late:
            return float(np.mean([np.nanmean(error) for error in errors.values()]))
        return float(np.nanmax(errors.get(found.stage, np.inf)))

    near, bound = {}, found.tolerance * (LOUD if found.late else 1)
    bound = min(bound, off(compute.own) / 2)
    for twin in twins:
        error = off(compute.made(twin.changes))
        if error <= bound:
            near.setdefault(error, twin.what)
    return [near[error] for error in sorted(near) if error <= ALIKE * min(near)]
