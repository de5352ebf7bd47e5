"""`posattn exercises` and `posattn grade`: ten stubs to write, and what is right in them."""

from pathlib import Path

from posattn.conformance import UsageError
from posattn.conformance.isolation import TIME_LIMIT, check_apart
from posattn.exercises import EXERCISES, found_in, task_of, write

RIGHT, WRONG = 0, 1


def add(commands):
    """Say what the two commands understand."""
    stubs = commands.add_parser(
        "exercises", help="list the exercises, or write their stubs"
    )
    stubs.add_argument("folder", nargs="?", help="where the stubs are written")
    stubs.set_defaults(run=hand_out)
    grading = commands.add_parser("grade", help="say what is right in your exercises")
    grading.add_argument("files", nargs="+", help="Python files with exercises, or folders")
    grading.set_defaults(run=grade)


def hand_out(chosen):
    """The list of the exercises, or their stubs."""
    if chosen.folder is None:
        width = max(map(len, EXERCISES))
        lines = [f"{name.ljust(width)}  {task_of(name)}" for name in EXERCISES]
        return "\n".join([*lines, "", "posattn exercises FOLDER writes the stubs"]), RIGHT
    try:
        write(chosen.folder)
    except OSError as error:
        raise UsageError(f"folder must be one for new files: {error}") from None
    return (
        f"{len(EXERCISES)} stubs are in {chosen.folder}; `posattn grade {chosen.folder}` grades them",
        RIGHT,
    )


def grade(chosen):
    """What is right in all exercises of some files."""
    found = [(path, name) for path in files(chosen.files) for name in exercises(path)]
    if not found:
        raise UsageError(
            f"files must have a function named as an exercise, one of {', '.join(EXERCISES)}, "
            f"got {', '.join(chosen.files)}"
        )
    told = [graded(path, name) for path, name in found]
    right = sum(is_right for _, is_right in told)
    lines = [text for text, _ in told]
    if len(told) > 1:
        lines += ["", f"{right} of {len(told)} exercises are right"]
    return "\n".join(lines), RIGHT if right == len(told) else WRONG


def files(names):
    """The Python files that were named, and those in folders that were."""
    for path in map(Path, names):
        if not path.exists():
            raise UsageError(f"files must be Python files or folders, got {path}")
        yield from sorted(path.glob("*.py")) if path.is_dir() else [path]


def exercises(path):
    """The exercises of a file, which may not be Python."""
    try:
        return found_in(path)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} must be a Python file: {error}") from None


def graded(path, name):
    """What there is to say of one exercise, and whether it is right."""
    exercise = EXERCISES[name]
    settings = [f"{keyword}={value!r}" for keyword, value in exercise.settings.items()]
    request = {"function": f"{path}:{name}", "scheme": exercise.scheme, "set": settings}
    try:
        _, report, _ = check_apart(request, TIME_LIMIT)
    except UsageError as error:
        return f"{name}: cannot be graded, {error}", False
    return judged(name, report)


def judged(name, report):
    """A line if it is right or not begun; or how far it is, the first wrong case, and a hint."""
    run = [case for case in report["cases"] if case["outcome"] != "skipped"]
    wrong = [case for case in run if case["outcome"] == "failed"]
    if not wrong:
        return f"{name}: right in all {len(run)} cases", True
    if all(case.get("raised") == "NotImplementedError" for case in wrong):
        return f"{name}: not written yet", False
    lines = [f"{name}: right in {len(run) - len(wrong)} of {len(run)} cases"]
    first, *_ = [case for case in wrong if "at" in case] or wrong
    lines += [f"  first wrong case: {first['name']}"]
    if "at" in first:
        expected, got = float(first["expected"]), float(first["got"])
        lines += [
            f"  most wrong is entry {first['at']}: {got:.5g} instead of {expected:.5g}"
        ]
    elif "raised" in first:
        lines += [f"  it raises {first['raised']}"]
        lines += [f"  at {first['where']}"] if first["where"] else []
    else:
        lines += [f"  it {first['complaints'][0]}"]
    lines += [f"  hint: {cause['sentence']}" for cause in report["causes"][:1]]
    return "\n".join(lines), False
