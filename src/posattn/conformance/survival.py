"""What a language model survives: its answer in one pass, against the same text read in other ways."""

from dataclasses import dataclass
from functools import partial
from math import inf

from posattn.conformance import questions as ask
from posattn.conformance.comparison import COARSE
from posattn.conformance.exceptions import said

__all__ = ["Row", "Survival", "survives"]

AT_ONCE = "Several tokens in a later call are wrong, and single ones right."
EMPTY = "The cache says that it holds nothing, so positions begin at 0."
FROM_0 = "Without position_ids a later call begins at position 0."
FROM_PADDING = "Without position_ids the padding is counted."
UNCACHED = "With use_cache=False it is right."
PLACED = partial(ask.left_padding, placed=True)
CHUNKS = partial(ask.calls, prompt=7, then=7)
SINGLY = partial(ask.calls, prompt=ask.SHORT, then=1)
# fmt: off
ROWS = {  # what is asked, and what explains a difference, if another question comes out equal
    "after another text": (ask.again, {}),
    "with what follows": (ask.beginning, {}),
    "in a batch": (ask.batch, {}),
    "left padding": (ask.left_padding, {FROM_PADDING: PLACED}),
    "left padding, position_ids": (PLACED, {"Without position_ids it is right.": ask.left_padding}),
    "prompt in chunks": (CHUNKS, {FROM_0: partial(CHUNKS, placed=True), AT_ONCE: ask.singly_only}),
    "single steps, own loop": (SINGLY, {FROM_0: partial(SINGLY, placed=True)}),
    "generate": (ask.generated, {UNCACHED: partial(ask.generated, use_cache=False)}),
    "generate, left padding": (
        ask.generated_in_a_batch, {UNCACHED: partial(ask.generated_in_a_batch, use_cache=False)}),
    "beams": (ask.beams, {UNCACHED: partial(ask.beams, use_cache=False)}),
    "second question, same cache": (ask.second_question, {EMPTY: ask.empty, AT_ONCE: ask.singly_only}),
    "packed rows": (ask.packed, {
        "A document sees those before it.": partial(ask.unseen, other=0),
        "A document sees those behind it.": partial(ask.unseen, other=1)}),
}
# fmt: on


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
    limit: float = ask.SAME
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


@dataclass
class Survival:
    """What `survives` found; prints as a line for each row.

    Args:
        rows: one for each way to read or write.
    """

    rows: list[Row]

    @property
    def agrees(self):
        """Whether all that was asked is equal."""
        return all(row.survives for row in self.rows)

    def __str__(self):
        return "\n".join(map(str, self.rows))


def survives(model, only=""):
    """Ask a language model for the same logits in other ways than in one pass.

    Args:
        model: of transformers, what wraps one, a decoder of ours, or a function of tokens `(b, n)` that
            returns logits `(b, n, v)`. What it has no keyword for is not asked. It is left as it was.
        only: part of the names of the rows that are asked.

    Returns:
        A `Survival`, whose rows are equal, differ, or raise.

    Raises:
        UsageError: if the model cannot be run on tokens.

    Examples:
        >>> import torch
        >>> table = torch.eye(50)
        >>> print(survives(lambda tokens: table[tokens].cumsum(1), "follows"))
        with what follows           equal
        >>> print(survives(lambda tokens: table[tokens].cumsum(0), "batch"))
        in a batch                  differs by 0.5
    """
    import torch

    training = getattr(model, "training", False)
    try:
        if training:
            model.eval()
        with torch.no_grad():
            subject = ask.Subject(model)
            limit = COARSE.get(subject.begin(), ask.SAME)
            asked = ((name, *row) for name, row in ROWS.items() if only in name)
            return Survival([answer(subject, limit, *row) for row in asked])
    finally:
        if training:
            model.train()


def answer(subject, limit, name, question, causes):
    """What came of one question, and why."""
    try:
        row = Row(name, question(subject), limit)
    except ask.Unasked as reason:
        return Row(name, told=str(reason))
    except Exception as error:
        row = Row(name, inf, told=said(error))
    for cause, other in () if row.survives else causes.items():
        again = answer(subject, limit, "", other, {})
        if again.survives and not again.told:
            row.cause = cause
            break
    return row
