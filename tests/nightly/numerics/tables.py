"""The worst errors that `nox -s record -- numerics` found, as the tables that the page includes.

`python -m tests.nightly.numerics.tables` writes them from the record, and measures nothing. Tests hold the
tables to the record, and the record to the shortest length measured anew.
"""

import json
import math

from tests.nightly import recording

FILE = recording.RECORDS / "numerics.json"
FOLDER = FILE.with_suffix("")
VIEWS = {  # the tables of the page, and the cases of each
    "rotate": ["rotate"],
    "rules": [
        "rotate, YaRN",
        "rotate, Llama 3",
        "rotate, NTK-aware",
        "rotate_axes, M-RoPE",
    ],
    "xpos": ["xpos_query"],
    "sinusoidal": ["sinusoidal_encoding"],
    "biases": ["ALiBi", "KerpleLog", "KerplePower", "FIRE"],
    "t5": ["T5Bias"],
    "softmax": ["masked_softmax"],
    "attention": ["scaled_dot_product_attention"],
    "causal": ["scaled_dot_product_attention, causal, ALiBi"],
}
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
                            f"{digits(ours)} against {digits(theirs)}."
                        )


def about(machine):
    """What a machine is, and what ran on it."""
    versions = ", ".join(
        f"{name} {version}" for name, version in machine["versions"].items()
    )
    return f"{machine['name']}, {machine['system']}, {versions}."


def views():
    """The lines of MyST of each part of the page that the record fills."""
    record = json.loads(FILE.read_text(encoding="utf-8"))
    cases = record["cases"]
    shown = {name: [*table({n: cases[n] for n in names})] for name, names in VIEWS.items()}
    shown["machine"] = [about(record["machine"])]
    shown["larger"] = list(larger(cases)) or ["Nowhere."]
    return shown


if __name__ == "__main__":
    recording.show(FOLDER, views())
