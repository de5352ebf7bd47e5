"""The worst errors that `nox -s numerics` found, on the page: the directive `{numerics} ALiBi; FIRE`.

A build shows what was recorded; a test measures the shortest length anew and holds the record to it.
"""

import json
import math
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

FILE = Path(__file__).parents[2] / "_records" / "numerics.json"
VIEWS = ("machine", "larger")
MUCH = 1.5  # times another's error: less is the luck of a rounding


def digits(error):
    """An error as one reads it: two digits, and no more than a power of ten where it is huge."""
    if error is None:
        return "overflow"
    if error < 10:
        return f"{error:.{1 if error >= 0.995 else 2}f}" if error else "0"
    if error >= 1e7:
        return f"{error:.0e}".replace("e+0", "e").replace("e+", "e")
    step = 10 ** (math.floor(math.log10(error)) - 1)
    return f"{round(error / step) * step:,}"


def rows(case):
    """The rows of a case: dtype, frameworks with the same errors, ours at each length, and theirs."""
    errors = list(case["errors"].values())
    for dtype, columns in errors[0].items():
        alike = {}
        for who in columns:
            found = [at[dtype][who] for at in errors]
            ours = tuple(digits(f[0]) for f in found)
            theirs = tuple(digits(f[1]) if len(f) > 1 else "" for f in found)
            alike.setdefault((*ours, *theirs), []).append(who)
        for shown, names in alike.items():
            yield [dtype, ", ".join(names), *shown]


def table(cases):
    """Cases of the same lengths as a table of MyST, with their names if there are several."""
    several = len(cases) > 1
    for name, case in cases.items():
        said = case["setting"] + (f"; theirs: {case['peer']}." if case["peer"] else ".")
        yield f"- *{name}:* {said}" if several else said[0].upper() + said[1:]
    lengths = [f"{int(n):,}" for n in next(iter(cases.values()))["errors"]]
    compared = any(case["peer"] for case in cases.values())
    head = [f"Ours, {n}" for n in lengths] + [f"Theirs, {n}" for n in lengths] * compared
    head = ["Part"] * several + ["Dtype", "Framework", *head]
    yield from ("", "```{table}", ":class: longtable small", "")
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for name, case in cases.items():
        for row in rows(case):
            yield "| " + " | ".join(([name] * several + row)[: len(head)]) + " |"
    yield from ("```", "")


def larger(cases):
    """Where another's error is much smaller than ours."""
    for name, case in cases.items():
        for length, dtypes in case["errors"].items():
            for dtype, columns in dtypes.items():
                for who, errors in columns.items():
                    ours, theirs = errors if len(errors) > 1 else (0, 0)
                    if ours is None or (theirs is not None and ours > MUCH * theirs):
                        yield (
                            f"- {name}, {dtype}, {who}, {int(length):,}: "
                            f"{digits(ours)} beside {digits(theirs)}."
                        )


def view(name):
    """The lines of MyST that a view of the record has, or None if there is no such view."""
    record = json.loads(FILE.read_text(encoding="utf-8"))
    if name == "machine":
        about = record["machine"]
        versions = ", ".join(f"{n} {v}" for n, v in about["versions"].items())
        return [f"{about['name']}, {about['system']}, {versions}."]
    if name == "larger":
        return list(larger(record["cases"])) or ["Nowhere."]
    cases = {part: record["cases"].get(part) for part in name.split("; ")}
    return list(table(cases)) if all(cases.values()) else None


class Numerics(SphinxDirective):
    """Show one view of what was measured."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        """Return the view in a box of class `recorded`."""
        (name,) = self.arguments
        self.env.note_dependency(str(FILE))
        lines = view(name)
        if lines is None:
            raise self.error(f"numerics has no record of {name!r}")
        parsed = self.parse_text_to_nodes("\n".join(lines))
        box = nodes.container("", *parsed, classes=["recorded"], recorded=True)
        self.set_source_info(box)
        return [box]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("numerics", Numerics)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
