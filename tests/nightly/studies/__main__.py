"""The command: `python -m tests.nightly.studies [name ...]`. What is recorded is not run again."""

import sys
from functools import partial

import joblib

from tests.nightly import recording
from tests.nightly.studies import cells, induction, recall, records

ALONE = {"induction": induction, "recall": recall}


def is_recorded(cell, folder=records.FOLDER):
    """Whether the record has a cell as it is now."""
    known = records.load(cell.task, folder)
    return (
        known["made_from"] == cells.fingerprint(cell.task) and cell.name in known["cells"]
    )


def measured(cell):
    """The entry of a cell."""
    return cells.run(cell)[0]


def study(chosen, folder=records.FOLDER, jobs=None):
    """Run cells beside each other."""
    made_from = {task: cells.fingerprint(task) for task in cells.TASKS}

    def save(cell, entry):
        records.save(cell.task, made_from[cell.task], cell.name, entry, folder)
        return "recorded"

    known = partial(is_recorded, folder=folder)
    return recording.resume(chosen, known, measured, save, jobs=jobs)


def main(arguments=None):
    """Run the study, or the cells whose names begin with one of those given, or `induction` or `recall`."""
    every = {f"{cell.task}/{cell.name}": cell for cell in cells.cells()}
    jobs = {"type": int, "default": joblib.cpu_count(), "help": "at a time"}
    known = [*every, *ALONE]
    given = recording.asked("study", main.__doc__, known, arguments, begins=True, jobs=jobs)
    for name in given.names:
        if name in ALONE:
            ALONE[name].save(given.jobs)
    return study([every[name] for name in given.chosen if name in every], jobs=given.jobs)


if __name__ == "__main__":
    sys.exit(main())
