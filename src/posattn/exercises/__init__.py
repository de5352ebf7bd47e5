"""Ten exercises to write yourself: `posattn exercises FOLDER` writes the stubs, `posattn grade` checks them.

A file may hold several: what counts is the name of the function.
"""

import ast
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["EXERCISES", "Exercise", "found_in", "task_of", "write"]


@dataclass(frozen=True)
class Exercise:
    """What a function of an exercise is checked against.

    Args:
        scheme: one of `posattn.conformance.names()`.
        settings: keywords of that scheme that have one value in the exercise.
    """

    scheme: str
    settings: dict = field(default_factory=dict)


EXERCISES = {
    "masked_softmax": Exercise("masked_softmax"),
    "attention": Exercise("attention"),
    "sinks": Exercise("sinks"),
    "sinusoidal": Exercise("sinusoidal"),
    "rotary": Exercise("rotary", {"layout": "interleaved"}),
    "rotary_half": Exercise("rotary", {"layout": "half"}),
    "weight_to_half": Exercise("weight_to_half"),
    "alibi_slopes": Exercise("alibi_slopes"),
    "t5_bucket": Exercise("t5_bucket"),
    "ntk_aware": Exercise("ntk_aware"),
}


def task_of(name):
    """The first line of an exercise's stub, without its number."""
    text = stub(name).read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)).splitlines()[0].partition(": ")[2]


def stub(name):
    """The file with the stub of an exercise."""
    return Path(__file__).with_name(f"{name}.py")


def write(folder):
    """Write the ten stubs into a folder, which is made if there is none.

    Args:
        folder: the path of the folder.

    Raises:
        FileExistsError: if the folder has a file of one of their names; then nothing is written.
    """
    folder = Path(folder)
    places = {name: folder / f"{name}.py" for name in EXERCISES}
    for place in places.values():
        if place.exists():
            raise FileExistsError(
                f"{place} is there already, and an exercise is never written over"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, place in places.items():
        place.write_text(stub(name).read_text(encoding="utf-8"), encoding="utf-8")


def found_in(path):
    """The exercises that a file has, by the names of its functions, in their order.

    Args:
        path: the path of a Python file.

    Returns:
        A list of names.

    Raises:
        OSError: if the file cannot be read.
        SyntaxError: if it is not Python.
    """
    tree = ast.parse(Path(path).read_text(encoding="utf-8"), str(path))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name in EXERCISES]
