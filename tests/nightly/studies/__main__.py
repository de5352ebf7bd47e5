"""The command: `python -m tests.nightly.studies [name ...]`. What is recorded is not run again."""

import sys

import joblib
from tqdm import tqdm

from tests.nightly import recording
from tests.nightly.studies import cells, induction, recall, records

ALONE = {"induction": induction, "recall": recall}


def missing(chosen, folder=records.FOLDER):
    """Those cells that no record has as they are now."""
    known = {task: records.load(task, folder) for task in cells.TASKS}
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
    """Run cells beside each other, and record each as soon as it has ended."""
    made_from = {task: cells.fingerprint(task) for task in cells.TASKS}
    chosen = missing(chosen, folder)
    work = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    ended = work(joblib.delayed(job)(cell) for cell in chosen)
    for cell, entry in tqdm(ended, total=len(chosen), unit="cell", file=sys.stderr):
        records.save(cell.task, made_from[cell.task], cell.name, entry, folder)


def main(arguments=None):
    """Run the study, or the cells whose names begin with one of those given, or `induction` or `recall`."""
    every = {f"{cell.task}/{cell.name}": cell for cell in cells.cells()}
    jobs = {"type": int, "default": joblib.cpu_count(), "help": "at a time"}
    known = [*every, *ALONE]
    given = recording.asked("study", main.__doc__, known, arguments, begins=True, jobs=jobs)
    study([every[name] for name in given.chosen if name in every], jobs=given.jobs)
    for name in given.names:
        if name in ALONE:
            ALONE[name].save(given.jobs)


if __name__ == "__main__":
    main()
