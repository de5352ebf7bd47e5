"""What programs that record share: the names on a command line, environments, a loop, and whole files."""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import venv
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs" / "_records"
ENVIRONMENTS = ROOT / ".nox" / "world"
# what other software may end in
BROKEN = subprocess.SubprocessError, json.JSONDecodeError
VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


def today():
    """The day that stands in a record."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def read(path, otherwise):
    """What is recorded, or what stands for it where nothing is."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else otherwise


def write(path, record):
    """Write a record, or its text: who reads the file meanwhile finds the old one or the new one."""
    if not isinstance(record, str):
        record = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(record, "utf-8")
    os.replace(fresh, path)


def show(folder, views):
    """Write the lines of each view where a page includes it, in a box: nobody typed its numbers."""
    for name, lines in views.items():
        text = "\n".join([":::{container} recorded", "", *lines, "", ":::", ""])
        write(folder / f"{name}.txt", text)


def asked(part, about, known, arguments=None, *, begins=False, **options):
    """The options of a command line, and as `chosen` the known names that it names, or all.

    Where `begins`, a word chooses all whose names begin with it.
    """
    parser = argparse.ArgumentParser(prog=f"nox -s record -- {part}", description=about)
    parser.add_argument("names", nargs="*", metavar="name", help="; ".join(known))
    for name, option in options.items():
        parser.add_argument(f"--{name}", **option)
    given, found = parser.parse_args(arguments), {}
    for word in given.names:
        found[word] = [n for n in known if n == word or (begins and n.startswith(word))]
        if not found[word]:
            parser.error(f"{word!r} must be one of {'; '.join(known)}")
    named = {name for names in found.values() for name in names}
    given.chosen = [name for name in known if name in named or not found]
    return given


def resume(cells, is_recorded, run, save, *, jobs=1, say=print):
    """Run the cells that are not recorded as they are now, and record each as soon as it has ended.

    `run(cell)` returns an entry, and `save(cell, entry)` what is said of it. A cell that fails stops no
    other. The exit code says how it went: 130 for a run that was stopped, which goes on where it was.
    """
    import joblib  # environments of engines, which read this file, have none

    left = [cell for cell in cells if not is_recorded(cell)]
    say(f"{len(cells) - len(left)} of {len(cells)} are recorded")
    work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    failed = 0
    try:
        ended = work(joblib.delayed(timed)(run, cell) for cell in left)
        for number, (cell, entry, seconds) in enumerate(ended, start=1):
            failed += isinstance(entry, Exception)
            told = save(cell, entry) if not isinstance(entry, Exception) else (
                f"FAILED, {type(entry).__name__}: {entry}".splitlines()[0]
            )  # fmt: skip
            say(f"[{number:2}/{len(left)}] {cell.name}: {told} ({seconds:.0f} s)")
    except KeyboardInterrupt:
        say("stopped; what was measured is kept, and the same command goes on from here")
        return 130
    return int(failed > 0)


def timed(run, cell):
    """A cell, its entry or what broke, and the seconds that it took, wherever it ran."""
    start = perf_counter()
    try:
        entry = run(cell)
    except Exception as failure:
        entry = failure
    return cell, entry, perf_counter() - start


def each(names, measure):
    """Measure one after the other and say what came of it; the exit code tells of what broke.

    `measure(name)` records what it finds at once and returns a line, or lines that count as failures.
    """
    failed = 0
    for name in names:
        try:
            said = measure(name)
        except BROKEN as error:
            said = [f"{name}: {error}"]
        failed += 0 if isinstance(said, str) else len(said)
        print(said if isinstance(said, str) else "\n".join(said), flush=True)
    return int(failed > 0)


def environment(steps, newest=False):
    """The Python of an environment with these packages, which several programs may share."""
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


def run(python, *arguments, **settings):
    """The last line that a program prints in an environment, which sees our packages and no network."""
    told = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    env = os.environ | told | {"HF_HUB_OFFLINE": "1"} | settings
    options = {"env": env, "cwd": ROOT, "text": True, "timeout": 3600}
    command = [python, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, **options)
    return done.stdout.splitlines()[-1]
