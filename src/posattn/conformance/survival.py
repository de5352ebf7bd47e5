"""What a language model survives: its answer in one pass, against the same text read in other ways."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from inspect import isfunction
from math import inf

import torch

from posattn.conformance.comparison import COARSE, distance
from posattn.conformance.exceptions import said
from posattn.conformance.subject import FIRST, LONG, NEW, SHORT, Subject, Unasked, cache_of

__all__ = ["Row", "survives"]

SAME = 1e-4  # of the largest number, in float32
ALONE = "Each token is written from the one before it only: the cache is not read."
AT_ONCE = "Several tokens in a later call are wrong, and single ones right."
EMPTY = "The cache says that it holds nothing, so positions begin at 0."
FORGOTTEN = "A later call of several tokens begins with an empty state."
FROM_0 = "Without position_ids a later call begins at position 0."
FROM_PADDING = "Without position_ids the padding is counted."
NO_MASK = "The model, or what wraps it, does not read attention_mask."
NO_PLACES = "The model, or what wraps it, does not read position_ids."
UNCACHED = "With use_cache=False it is right."


@dataclass
class Row:
    """One way to read or write.

    Args:
        name: what was done otherwise than in one pass.
        error: the worst logit or score, relative to the largest; infinite if something was raised, None if
            it was not asked.
        limit: up to which it is rounding.
        told: what was raised, or why it was not asked.
        cause: what explains it, where that was seen.
    """

    name: str
    error: float | None = None
    limit: float = SAME
    told: str = ""
    cause: str = ""

    @property
    def survives(self):
        """Whether it is equal, or was not asked."""
        return self.error is None or self.error <= self.limit

    def __str__(self):
        what = "equal" if self.survives else f"differs by {self.error:.2g}"
        if self.told:
            what = f"{'not asked:' if self.survives else 'raises'} {self.told}"
        return f"{self.name:<28}{what}{'. ' * bool(self.cause)}{self.cause}"


# Each question is answered by what is expected, and what came.


def after_another(model):
    """A text, and the same after a longer one."""
    first, _ = model.whole(model.short), model.whole(model.long)
    yield first, model.whole(model.short)


def beginning(model):
    """The beginning of a text, and the same with all that follows."""
    yield model.whole(model.long[:, :9]), model.whole(model.long)[:, :9]


def batch(model):
    """Two texts, each alone and both in a batch."""
    rows = [model.long[:, :SHORT], model.short]
    yield torch.cat([model.whole(row) for row in rows]), model.whole(torch.cat(rows))


def padded(model, placed=False):
    """Two texts, one with padding at its left, and what goes with them."""
    short = torch.nn.functional.pad(model.short, (LONG - SHORT, 0))
    shown = torch.ones_like(tokens := torch.cat([model.long, short]))
    shown[1, : LONG - SHORT] = 0
    more = model.takes("attention_mask", shown, needed=True)
    where = (shown.cumsum(-1) - 1).clamp(min=0)
    more |= model.takes("position_ids", where, needed=True) if placed else {}
    return tokens, more


def left_padding(model, placed=False):
    """Two texts, each alone and both in a batch with padding."""
    tokens, more = padded(model, placed)
    got = model.whole(tokens, **more)
    yield model.whole(model.long), got[:1]
    yield model.whole(model.short), got[1:, LONG - SHORT :]


def calls(model, lengths, placed=False):
    """A text in one pass, and in calls of some lengths with a cache."""
    yield model.whole(model.long), model.in_calls(model.long, lengths, placed)[0]


def written(model, **options):
    """Whole passes, and `generate`."""
    yield model.beside(model.writes(model.long, **options), model.long)


def written_in_a_batch(model, **options):
    """Whole passes of each text alone, and `generate` of both with padding."""
    tokens, more = padded(model)
    out = model.writes(tokens, **more, **options)
    yield from (model.beside(out, text, row) for row, text in enumerate(model.texts))


def written_alone(model):
    """What each written token says without those before it, and `generate`."""
    yield model.alone(model.writes(model.long))


def beams(model, **options):
    """The likelihood of texts in whole passes, and their scores as beams."""
    options |= {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}
    out = model.writes(model.long, output_scores=True, **options)
    if not hasattr(out, "sequences_scores"):
        raise Unasked("its generate returns no scores")
    logits = model.whole(out.sequences)[:, -NEW - 1 : -1].double().log_softmax(-1)
    yield logits.gather(-1, out.sequences[:, -NEW:, None]).sum((1, 2)), out.sequences_scores


def second_question(model):
    """Whole passes, and `generate` for a second question with the cache of the first answer."""
    out = model.writes(model.long, use_cache=True)
    text = torch.cat([getattr(out, "sequences", out), model.short], -1)
    yield model.beside(model.writes(text, **cache_of(out)), text)


def forgotten(model):
    """The end of a text in a call of its own, and the same with states of zeros."""
    ends = []
    for kept in (1, 0):
        _, cache = model.in_calls(model.long[:, :SHORT], SHORT)
        layers = getattr(*cache.values(), "layers", ())
        held = (getattr(one, "recurrent_states", {}) for one in layers)
        held = [x for states in held for x in states.values() if x is not None]
        if not held:
            raise Unasked("its cache has no states")
        for state in held:
            state.mul_(kept)
        ends.append(model(model.long[:, SHORT:], **cache)[0])
    yield ends


def swallowed(model, name, value):
    """A text without a keyword, and with a value that should change it."""
    more = model.takes(name, value.to(model.long.device)[None], needed=True)
    yield model.whole(model.long), model.whole(model.long, **more)


def after_bfloat16(model):
    """A text beyond what bfloat16 counts, read by copies with the same weights; one read it in bfloat16."""
    if isfunction(model.model):
        raise Unasked("a function cannot be copied")
    text, weights = model.long.repeat(1, 12), getattr(model.model, "parameters", tuple)
    try:
        right, other = (
            Subject(deepcopy(model.model, {id(x): x for x in weights()})) for _ in range(2)
        )
        want = right.whole(text)
    except Exception as error:
        raise Unasked(f"no copy reads {text.shape[-1]} tokens: {said(error)}") from None
    with suppress(Exception), torch.autocast(text.device.type, torch.bfloat16):
        other.whole(text)
    yield want, other.whole(text)


def empty(model):
    """1, and whether a cache denies that it holds anything."""
    _, cache = model.in_calls(model.long, LONG)
    yield torch.ones(1), torch.ones(1) * (cache.popitem()[1].get_seq_length() == 0)


def in_a_row(model, *texts):
    """The logits of packed documents, whose positions restart, with no mask and no cache."""
    where = torch.cat([torch.arange(x.shape[-1], device=x.device) for x in texts])
    more = model.takes("position_ids", where[None], needed=True)
    return model.whole(torch.cat(texts, -1), **more).split([LONG, SHORT], -2)


def packed(model):
    """Documents, each alone and both in a row."""
    yield from zip(
        map(model.whole, model.texts), in_a_row(model, *model.texts), strict=True
    )


def moved(model, changed):
    """1, and whether a document moves with the nearest token of the other."""
    texts = [model.long, model.short.clone()]
    before = in_a_row(model, *texts)[1 - changed]
    texts[changed] = texts[changed].clone()
    near = texts[changed][:, changed - 1]
    near[:] = (near == FIRST) + FIRST
    apart = distance(before, in_a_row(model, *texts)[1 - changed], {})
    yield torch.ones(1), torch.ones(1) * (apart > SAME)


PLACED = partial(left_padding, placed=True)
CHUNKS = partial(calls, lengths=7)
SINGLY = partial(calls, lengths=[SHORT, *[1] * (LONG - SHORT)])
UNMASKED = partial(swallowed, name="attention_mask", value=(torch.arange(LONG) > 8).long())
# fmt: off
ROWS = {  # what is asked, and what explains a difference, if its own question comes out equal
    "after another text": (after_another, {}),
    "after a call in bfloat16": (after_bfloat16, {}),
    "with what follows": (beginning, {}),
    "in a batch": (batch, {}),
    "left padding": (left_padding, {FROM_PADDING: PLACED, NO_MASK: UNMASKED}),
    "left padding, position_ids": (
        PLACED, {"Without position_ids it is right.": left_padding, NO_MASK: UNMASKED}),
    "prompt in chunks": (CHUNKS, {
        FROM_0: partial(CHUNKS, placed=True), FORGOTTEN: forgotten, AT_ONCE: partial(SINGLY, placed=True)}),
    "single steps, own loop": (SINGLY, {FROM_0: partial(SINGLY, placed=True)}),
    "generate": (written, {ALONE: written_alone, UNCACHED: partial(written, use_cache=False)}),
    "generate, left padding": (written_in_a_batch, {
        ALONE: written_alone, UNCACHED: partial(written_in_a_batch, use_cache=False)}),
    "beams": (beams, {UNCACHED: partial(beams, use_cache=False)}),
    "second question, same cache": (second_question, {EMPTY: empty, FORGOTTEN: forgotten}),
    "packed rows": (packed, {
        NO_PLACES: partial(swallowed, name="position_ids", value=torch.arange(LONG).flip(0)),
        "A document sees those before it.": partial(moved, changed=0),
        "A document sees those behind it.": partial(moved, changed=1)}),
}
# fmt: on


def survives(model, only=""):
    """Ask a language model for the same logits in other ways than in one pass.

    Args:
        model: of transformers, what wraps one, a decoder of ours, or a function of tokens `(b, n)` that
            returns logits `(b, n, v)`. What it has no keyword for is not asked. It is left as it was.
        only: part of the names of the rows that are asked.

    Returns:
        A list of `Row`, which are equal, differ, or raise.

    Raises:
        UsageError: if the model cannot be run on tokens.

    Examples:
        >>> import torch
        >>> table = torch.eye(50)
        >>> print(*survives(lambda tokens: table[tokens].cumsum(1), "follows"))
        with what follows           equal
        >>> print(*survives(lambda tokens: table[tokens].cumsum(0), "batch"))
        in a batch                  differs by 1
    """
    training = getattr(model, "training", False)
    try:
        if training:
            model.eval()
        with torch.no_grad():
            limit = COARSE.get((subject := Subject(model)).begin(), SAME)
            asked = ((name, *row) for name, row in ROWS.items() if only in name)
            return [answer(subject, limit, *row) for row in asked]
    finally:
        if training:
            model.train()


def answer(subject, limit, name, question, causes):
    """What came of one question, and why."""
    try:
        row = Row(name, max(distance(*pair, {}) for pair in question(subject)), limit)
    except Unasked as reason:
        return Row(name, told=str(reason))
    except Exception as error:
        row = Row(name, inf, told=said(error))
    for cause, other in () if row.survives else causes.items():
        again = answer(subject, limit, "", other, {})
        if again.survives and not again.told:
            row.cause = cause
            break
    return row
