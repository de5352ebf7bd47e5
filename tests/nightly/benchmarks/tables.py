"""What `nox -s record -- bench` measured, as the tables that the page includes.

`python -m tests.nightly.benchmarks.tables` writes them beside the records, and measures nothing. A time of
code that has changed since has a star; a test fails until the tables say so.
"""

import math

from tests.nightly import recording
from tests.nightly.benchmarks import records

VIEWS = ("machines", "slower", *records.PARTS)
COLUMNS = ("Work", "Against", "Ours", "Theirs", "Ratio", "Middle half")
COLUMNS += ("Our error", "Their error")
STALE = "\\*"
DASH = "–"
NO_BREAK = "\N{NO-BREAK SPACE}"  # between a number and its unit


def amount(value, entry):
    """A time, a size, or tokens in a second, with three digits and the unit."""
    if value is None:
        return "too much"
    if entry["tokens"]:
        return f"{digits(entry['tokens'] / value)}{NO_BREAK}tokens/s"
    units = {
        "seconds": ((1, "s"), (1e-3, "ms"), (1e-6, "µs")),
        "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")),
    }[entry["unit"]]
    scale, name = next((unit for unit in units if value >= unit[0]), units[-1])
    return f"{digits(value / scale)}{NO_BREAK}{name}"


def digits(value):
    """Three digits of a positive number."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def small(error):
    """An error with one digit, or a dash where there is none."""
    return f"{error:.0e}".replace("e-0", "e-") if error else DASH


def rows(entry):
    """The rows of a case, one for each that it was compared with."""
    median, error = entry["median"], entry["error"]
    for peer, ratio in entry["ratio"].items():
        value = f"**{digits(ratio[1])}**" if ratio else DASH
        several = ratio and entry["rounds"] > 1
        ends = (digits(ratio[0]), "to", digits(ratio[2])) if several else DASH
        yield [
            entry["name"] + (STALE if records.is_stale(entry) else ""),
            peer,
            *(amount(median[who], entry) for who in ("ours", peer)),
            value,
            NO_BREAK.join(ends),
            *(small(error[who]) for who in ("ours", peer)),
        ]


def table(part, machine):
    """The tables of a part as MyST, one for each setting, and what was wrong."""
    cases = [entry for entry in machine["cases"].values() if entry["part"] == part]
    for setting in dict.fromkeys(entry["setting"] for entry in cases):
        same = [entry for entry in cases if entry["setting"] == setting]
        yield from ("", f"{setting[0].upper()}{setting[1:]}:", "")
        yield from ("```{table}", ":class: longtable small", "")
        measured = [row for e in same for row in (rows(e) if "ratio" in e else ())]
        columns = zip(COLUMNS, *measured, strict=True)
        told = [column for column in columns if not measured or {*column[1:]} != {DASH}]
        head, *lines = zip(*told, strict=True)
        for line in (head, ["---"] * len(head), *lines):
            yield "| " + " | ".join(line) + " |"
        yield from ("```", "")
        for entry in same:
            for who, error in entry["wrong"].items():
                yield (
                    f"- {entry['name']}, {who}: wrong by {small(error)}, more than "
                    f"{small(entry['bound'])}, and so not measured."
                )


def describe(machine):
    """What a machine is, and what ran on it."""
    about = machine["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    size = f"{about['cores']} cores, {about['memory']} GiB of memory"
    return f"{size}, {about['system']}, {versions}"


def days(machine):
    """When a machine was measured."""
    dates = sorted({entry["date"] for entry in machine["cases"].values()})
    return f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"


def slower(machine):
    """The cases in which a peer that does the same work was faster in three quarters of the rounds."""
    for entry in machine["cases"].values():
        for peer, ratio in entry.get("ratio", {}).items():
            if ratio is not None and peer not in entry["limits"] and ratio[0] > 1:
                yield entry, peer, ratio


def view(name):
    """The lines of MyST that a view of the recorded files has."""
    lines = []
    for machine in records.machines():
        said = machine["machine"]["name"]
        if name == "machines":
            lines.append(f"- **{said}**: {describe(machine)}. Measured {days(machine)}.")
        elif name == "slower":
            lines += [
                f"- {entry['part']}, {entry['name']}: {digits(ratio[1])} times the time of "
                f"{peer} ({said}){STALE if records.is_stale(entry) else ''}."
                for entry, peer, ratio in slower(machine)
                if entry["unit"] == "seconds"
            ]
        elif any(entry["part"] == name for entry in machine["cases"].values()):
            lines += [f"**{said}**", *table(name, machine)]
    return lines or ["Nothing is recorded."]


def write():
    """Write each view where the page includes it."""
    recording.show(records.FOLDER, {name: view(name) for name in VIEWS})


if __name__ == "__main__":
    write()
