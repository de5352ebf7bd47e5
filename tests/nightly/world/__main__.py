"""Ask each library, or those named, and record the answers; `--newest` asks the newest releases instead.

With `--newest` nothing is recorded: what differs from the records is printed with the pages that say so, and
the command fails.
"""

import argparse
import ast
import datetime
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
RECORDS = ROOT / "docs" / "_records" / "world"
ENVIRONMENTS = ROOT / ".nox" / "world"
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
        and not re.match("INSTALL|REFUSED", ast.unparse(node))
    ]
    return "\n".join(kept)


def refused(name):
    """Why a library cannot be asked here, which its file says instead of asking."""
    text = (HERE / f"{name}.py").read_text("utf-8")
    return (re.search(r'^REFUSED = "(.+)"$', text, re.M) or [None, None])[1]


def environment(steps, newest):
    """The Python of an environment with these packages, which several files may share."""
    if newest:  # torch stays, which would bring gigabytes for a GPU
        steps = [
            [re.sub(r"^(?!torch=)(.+?)(==|@).*", r"\1", item) for item in step]
            for step in steps
        ]
        steps.append([])
    same = sorted(item for step in steps for item in step)
    place = ENVIRONMENTS / hashlib.sha256(repr(same).encode()).hexdigest()[:12]
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (place / "installed").exists():
        venv.create(place, clear=True, with_pip=True)
        for step in filter(None, steps):
            install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *step]
            if step[0] == "npm":
                node = ["--silent", "--no-audit", "--ignore-scripts", "--prefix", place]
                install = ["npm", "install", *node, *step[1:]]
            subprocess.run(install, check=True)
        (place / "installed").touch()
    return python


def ask(name, newest=False):
    """What a library does, as plain data: its version and day, its cells and its facts."""
    from tests.nightly.world.columns import COLUMNS, named

    title, steps = told(name)
    head = {
        "library": title,
        "package": re.split(r"==|@|\[", steps[-1][-1])[0],
        "version": steps[-1][-1].partition("==")[2],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    if reason := refused(name):
        return {**head, "refused": reason, "setup": "", "cells": {}, "facts": {}}
    python = environment(steps, newest)
    path = f"{ROOT}{os.pathsep}{ROOT / 'src'}"
    options = {
        "env": {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        "cwd": ROOT, "text": True, "stdout": subprocess.PIPE, "check": True, "timeout": 900,
    }  # fmt: skip
    done = subprocess.run([python, "-m", "tests.nightly.world.inside", name], **options)
    shown = json.loads(done.stdout.splitlines()[-1])
    look = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    if steps[-1][0] == "npm":
        place = python.parents[1] / "node_modules" / head["package"] / "package.json"
        look = f"import json; print(json.load(open({str(place)!r}))['version'])"
    look = [python, "-c", look, head["package"]]
    version = subprocess.run(look, **options).stdout.strip()
    probes = {probe for column in COLUMNS.values() for probe in column.probes}
    cells = {}
    for probe in probes & set(shown):
        word, prints = named(probe, shown[probe])
        cells[probe] = {"class": word, "code": shown[probe]["code"], "prints": prints}
    facts = {
        fact: {"says": one["says"], "code": one["code"], "prints": one.get("prints", one.get("error"))}
        for fact, one in shown.items() if fact not in probes
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


def main(arguments=None):
    """Ask, and write each record when its library is done."""
    parser = argparse.ArgumentParser(prog="nox -s record -- world", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(NAMES))
    parser.add_argument(
        "--newest", action="store_true", help="compare the newest releases with the records"
    )
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.names if name not in NAMES]:
        parser.error(f"{unknown[0]!r} must be one of {', '.join(NAMES)}")
    failed = 0
    for name in chosen.names or NAMES:
        path = RECORDS / f"{name}.json"
        try:
            record = ask(name, chosen.newest)
        except (subprocess.SubprocessError, json.JSONDecodeError) as error:
            print(f"{name}: {error}", flush=True)
            failed += 1
            continue
        if chosen.newest:
            old = json.loads(path.read_text("utf-8")) | {"name": name}
            lines = list(changes(old, record))
            print(
                "\n".join(lines) or f"{name} {record['version']}: as recorded", flush=True
            )
            failed += len(lines)
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
        words = ", ".join(f"{cell} {one['class']}" for cell, one in record["cells"].items())
        print(
            f"{name} {record['version']}: {words}; {len(record['facts'])} facts", flush=True
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
