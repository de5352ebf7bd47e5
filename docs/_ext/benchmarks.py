"""What `nox -s bench` measured, on the page: the directive `{benchmarks} rotate`.

A build shows what was recorded and measures nothing; a time of code that has changed since is marked.
"""

import math

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from timings import FOLDER, PARTS, is_stale, machines

VIEWS = ("machines", "slower", *PARTS)
COLUMNS = (
    ("Work", "Against", "Ours", "Theirs", "Ratio", "Middle half", "Error, ours and theirs")
)  # fmt: skip
STALE = "\\*"
DASH = "–"  # noqa: RUF001


def amount(value, unit):
    """A time or a size with three digits and its unit."""
    if value is None:
        return "too much"
    scales = {
        "seconds": ((1, "s"), (1e-3, "ms"), (1e-6, "µs")),
        "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")),
    }[unit]
    scale, name = next(((s, n) for s, n in scales if value >= s), scales[-1])
    return f"{digits(value / scale)} {name}"


def digits(value):
    """Three digits of a positive number."""
    if value == 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def small(error):
    """An error with one digit, or a dash where nobody made one."""
    return DASH if error is None else f"{error:.0e}".replace("e-0", "e-")


def rows(part, entry):
    """The rows of a case, one for each that it was compared with."""
    ours, *others = entry["median"]
    for peer in others:
        ratio = entry["ratio"][peer]
        value, spread = DASH, DASH
        if ratio is not None:
            value = f"**{digits(ratio[1])}**"
            if entry["rounds"] > 1:
                spread = f"{digits(ratio[0])} to {digits(ratio[2])}"
        errors = f"{small(entry['error'][ours])}, {small(entry['error'][peer])}"
        name = entry["name"] + (STALE if is_stale(entry) else "")
        sizes = (amount(entry["median"][who], entry["unit"]) for who in (ours, peer))
        yield [name, peer, *sizes, value, spread, errors]


def table(part, machine):
    """The table of a part as MyST."""
    cases = [entry for entry in machine["cases"].values() if entry["part"] == part]
    settings = {entry["setting"]: None for entry in cases}
    lines = []
    for setting in settings:
        of_setting = [entry for entry in cases if entry["setting"] == setting]
        timed = [entry for entry in of_setting if "ratio" in entry]
        lines += ["", f"{setting}:", "", "```{table}", ":class: longtable small", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        lines += [
            "| " + " | ".join(r) + " |" for entry in timed for r in rows(part, entry)
        ]
        lines += ["```", ""]
        for entry in of_setting:
            for who, error in entry["wrong"].items():
                lines.append(
                    f"- {entry['name']}: {who} is wrong by {small(error)}, more than "
                    f"{small(entry['bound'])}, and was not timed."
                )
    return lines


def describe(machine):
    """A machine in a sentence."""
    about = machine["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"{about['name']}, {about['cores']} cores, {about['memory']} GiB of memory, "
        f"{about['system']}; {versions}"
    )


def days(machine):
    """When a machine was measured."""
    dates = sorted({entry["date"] for entry in machine["cases"].values()})
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def slower(machine):
    """The cases in which a peer that does the same work was faster in three quarters of the rounds."""
    for entry in machine["cases"].values():
        for peer, ratio in entry.get("ratio", {}).items():
            if ratio is not None and peer not in entry["limits"] and ratio[0] > 1:
                yield entry, peer, ratio


def view(name):
    """The lines of MyST that a view of the recorded files has."""
    lines = []
    for machine in machines():
        said = machine["machine"]["name"]
        if name == "machines":
            lines.append(f"- **{said}**, {days(machine)}: {describe(machine)}.")
        elif name == "slower":
            lines += [
                f"- {entry['part']}, {entry['name']}: {digits(ratio[1])} times the time of "
                f"{peer} ({said}){STALE if is_stale(entry) else ''}."
                for entry, peer, ratio in slower(machine)
                if entry["unit"] == "seconds"
            ]
        elif any(entry["part"] == name for entry in machine["cases"].values()):
            lines += [f"**{said}**", *table(name, machine)]
    return lines or ["Nothing is recorded."]


class Benchmarks(SphinxDirective):
    """Show one view of what was measured."""

    required_arguments = 1

    def run(self):
        """Return the view in a box of class `recorded`."""
        (name,) = self.arguments
        if name not in VIEWS:
            raise self.error(f"benchmarks must be one of {', '.join(VIEWS)}, got {name!r}")
        for path in FOLDER.glob("*.json"):
            self.env.note_dependency(str(path))
        parsed = self.parse_text_to_nodes("\n".join(view(name)))
        box = nodes.container("", *parsed, classes=["recorded"], recorded=True)
        self.set_source_info(box)
        return [box]


def setup(app):
    """Register with Sphinx."""
    app.add_directive("benchmarks", Benchmarks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
