"""Ask each library, or those named, and record the answers; `--newest` asks the newest releases instead.

With `--newest` nothing is recorded: what differs from the records is printed with the pages that say so, and
the command fails.
"""

import ast
import functools
import json
import re
import sys
from pathlib import Path

from tests.nightly import recording
from tests.nightly.recording import ROOT

HERE = Path(__file__).parent
RECORDS = recording.RECORDS / "world"
OURS = {"__init__", "__main__", "columns", "inside"}
SHARED = {"graphs", "javascript", "keras_layers", "wrapped"}  # probes of several rows
NAMES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in OURS | SHARED)


@functools.cache
def told(name):
    """The title of a library's file and its steps of installation, read without importing it."""
    text = (HERE / f"{name}.py").read_text("utf-8")
    title = re.search(r'"""(.+?)(?:: |\.?""")', text)[1]
    steps = re.search(r"^INSTALL = (\[.+?\])$", text, re.M | re.S)[1]
    return title, [step.split() for step in json.loads(re.sub(r",\s*\]", "]", steps))]


def setup(name):
    """What a file has beside its functions: imports, and what its functions call."""
    text = (HERE / f"{name}.py").read_text("utf-8")
    kept = [
        setup(shared)
        if (shared := getattr(node, "module", "").rpartition(".")[2]) in {*SHARED, *NAMES}
        and node.module.startswith("tests.")
        else ast.get_source_segment(text, node)
        for node in ast.parse(text).body[1:]
        if getattr(node, "name", "_")[0] == "_"
        and not re.match("INSTALL|PROBES|REFUSED", ast.unparse(node))
    ]
    return "\n".join(kept)


def refused(name):
    """Why a library cannot be asked here, which its file says instead of asking."""
    text = (HERE / f"{name}.py").read_text("utf-8")
    return (re.search(r'^REFUSED = "(.+)"$', text, re.M) or [None, None])[1]


def ask(name, newest=False):
    """What a library does, as plain data: its version and day, its cells and its facts."""
    from tests.nightly.world.columns import ANSWERS, named

    title, steps = told(name)
    head = {
        "library": title,
        "package": re.split(r"==|@|\[", steps[-1][-1])[0],
        "version": steps[-1][-1].partition("==")[2],
        "date": recording.today(),
    }
    if reason := refused(name):
        return {**head, "refused": reason, "setup": "", "cells": {}, "facts": {}}
    python = recording.environment(steps, newest)
    shown = json.loads(recording.run(python, "-m", "tests.nightly.world.inside", name))
    look = recording.VERSION
    if steps[-1][0] == "npm":
        place = python.parents[1] / "node_modules" / head["package"] / "package.json"
        look = f"import json; print(json.load(open({str(place)!r}))['version'])"
    version = recording.run(python, "-c", look, head["package"])
    cells = {}
    for probe in set(ANSWERS) & set(shown):
        word, prints = named(probe, shown[probe])
        cells[probe] = {"class": word, "code": shown[probe]["code"], "prints": prints}
    facts = {
        fact: {"says": one["says"], "code": one["code"], "prints": one.get("prints", one.get("error"))}
        for fact, one in shown.items() if fact not in ANSWERS
    }  # fmt: skip
    return {
        **head, "version": version.partition("+")[0], "setup": setup(name),
        "cells": dict(sorted(cells.items())), "facts": facts,
    }  # fmt: skip


def pages(name, cell):
    """The pages that say what a record says."""
    marks = re.compile(rf"{{seen}}`{name}(/{cell})?`|{{facts}} {name}\b")
    found = (
        path
        for path in (ROOT / "docs").rglob("*.md")
        if marks.search(path.read_text("utf-8"))
    )
    return sorted(str(path.relative_to(ROOT / "docs").with_suffix("")) for path in found)


def changes(old, new):
    """Lines that say what a release does otherwise than the record, and which pages tell it."""
    for kind, key in (("cells", "class"), ("facts", "prints")):
        for cell, was in old[kind].items():
            now = new[kind].get(cell, {}).get(key)
            if now != was[key]:
                where = ", ".join(pages(old["name"], cell) or ["fix/libraries"])
                then, today = old["version"], new["version"]
                yield f"{where}: {old['name']}/{cell}: {was[key]!r} in {then}, {now!r} in {today}"


def compared(name):
    """What the newest release does otherwise than the record."""
    record = ask(name, newest=True)
    old = json.loads((RECORDS / f"{name}.json").read_text("utf-8")) | {"name": name}
    return list(changes(old, record)) or f"{name} {record['version']}: as recorded"


def recorded(name):
    """Ask, and write the record."""
    record = ask(name)
    recording.write(RECORDS / f"{name}.json", record)
    words = ", ".join(f"{cell} {one['class']}" for cell, one in record["cells"].items())
    return f"{name} {record['version']}: {words}; {len(record['facts'])} facts"


def main(arguments=None):
    """Ask, and write each record when its library is done."""
    newest = {
        "action": "store_true",
        "help": "compare the newest releases with the records",
    }
    given = recording.asked("world", __doc__, NAMES, arguments, newest=newest)
    return recording.each(given.chosen, compared if given.newest else recorded)


if __name__ == "__main__":
    sys.exit(main())
