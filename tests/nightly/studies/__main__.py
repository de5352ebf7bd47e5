"""The command: `python -m tests.nightly.studies [name ...]`. What is recorded is not run again."""

import argparse
import sys

import joblib
from distributed import Client
from tqdm import tqdm

from tests.nightly.studies import cells, induction, recall, records, together


def missing(chosen, folder=records.FOLDER, column=""):
    """Those cells that no record has as they are now."""
    known = {task: records.load(task + column, folder) for task in cells.TASKS}
    current = {task: known[task]["made_from"] == cells.fingerprint(task) for task in known}
    return [
        cell
        for cell in chosen
        if not (current[cell.task] and cell.name in known[cell.task]["cells"])
    ]


def job(cell):
    """A cell and its result, as they come back from wherever it ran."""
    return cell, cells.run(cell)[0]


def study(chosen, folder=records.FOLDER, jobs=None):
    """Run cells beside each other, and record each as soon as it has ended.

    Jobs are joblib's: within `joblib.parallel_config("dask")` they run on a cluster.
    """
    made_from = {task: cells.fingerprint(task) for task in cells.TASKS}
    chosen = missing(chosen, folder)
    work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    ended = work(joblib.delayed(job)(cell) for cell in chosen)
    for cell, entry in tqdm(ended, total=len(chosen), unit="cell", file=sys.stderr):
        records.save(cell.task, made_from[cell.task], cell.name, entry, folder)


def study_together(chosen, folder=records.FOLDER):
    """The same in JAX, all seeds of a scheme at once; the results stand in records of their own."""
    made_from = {task: cells.fingerprint(task) for task in cells.TASKS}
    groups = {}
    for cell in missing(chosen, folder, "-jax"):
        groups.setdefault((cell.task, cell.scheme, cell.layers), []).append(cell)
    for (task, scheme, layers), group in tqdm(groups.items(), unit="scheme"):
        entries = together.run(task, scheme, [cell.seed for cell in group], layers)
        for cell, entry in zip(group, entries, strict=True):
            records.save(f"{task}-jax", made_from[task], cell.name, entry, folder)


def named(cell, names):
    """Whether one of the names is the beginning of a cell's, if there are any."""
    full = (cell.name, f"{cell.task}/{cell.name}")
    return not names or any(known.startswith(name) for name in names for known in full)


def main(arguments=None):
    """Run the study, or the cells whose names begin with one of those given, or `induction` or `recall`."""
    parser = argparse.ArgumentParser(
        prog="nox -s record -- study", description=main.__doc__
    )
    parser.add_argument(
        "names", nargs="*", help='such as rotary or "stories/alibi, seed 0"'
    )
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="at a time")
    parser.add_argument("--cluster", help="address of a Dask scheduler that runs the jobs")
    parser.add_argument(
        "--jax",
        action="store_true",
        help="all seeds of a scheme at once, on a GPU if there is one",
    )
    given = parser.parse_args(arguments)
    if given.names in (["induction"], ["recall"]):
        {"induction": induction, "recall": recall}[given.names[0]].save(given.jobs)
        return
    chosen = [cell for cell in cells.cells() if named(cell, given.names)]
    if not chosen:
        parser.error(f"no cell has a name that begins with {' or '.join(given.names)}")
    if given.jax:
        study_together(chosen)
    elif given.cluster:
        with Client(given.cluster), joblib.parallel_config("dask"):
            study(chosen)
    else:
        study(chosen, jobs=given.jobs)


if __name__ == "__main__":
    main()
