"""Runs where a library is installed, with NumPy alone: `python -m tests.nightly.world.inside NAME`.

A file of this folder is one row of *What each library does*. Its functions ask:

- A function named after a probe of `columns.py`, or an entry of `PROBES` where one expression says it, takes
  arrays of `GIVEN` by the names of its parameters, and returns an array; or two that agree if nothing goes
  wrong, the expected one first.
- Any other public function takes nothing and prints; its docstring begins with what it shows, as
  a sentence of the book. `recipe` gives it what a page prints.
"""

import ast
import contextlib
import importlib
import inspect
import io
import json
import re
import sys
import textwrap
from pathlib import Path

import numpy as np

HERE = "tests.nightly.world."


def given():
    """The arrays that a probe may ask for: heads before tokens, True where a query may attend."""
    rng = np.random.default_rng(0)
    query, key, value, x = rng.normal(size=(4, 1, 2, 6, 16)).astype("float32")
    mask = rng.random((1, 1, 6, 6)) < 0.5
    mask[..., 0] = True
    empty = mask.copy()
    empty[..., 2, :] = False
    return {
        "query": 2 * query,
        "key": key,
        "value": value,
        "last": 2 * query[:, :, 4:],  # the last two queries
        "mask": mask,
        "empty": empty,  # row 2 has nothing to attend to
        "window": 3,
        "cap": 2.0,
        "x": x,
        "positions": np.arange(6),
        "part": 8,  # how many of the 16 columns rotate
        "freqs": 2.0 ** -np.arange(8.0),
        "stretch": 4.0,
        "offset": 7,
        "far": np.full(6, 100_000),
        "documents": np.array([[0, 0, 0, 1, 1, 1]]),
    }


GIVEN = given()


def recipe(page, words):
    """The code block of a page that contains these words, so that what readers copy is what runs."""
    text = (Path(__file__).parents[3] / "docs" / f"{page}.md").read_text("utf-8")
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```$", text, re.M | re.S)
    (found,) = (block for block in blocks if words in block)
    return re.sub(r"^\$ ", "", found.replace("\\\n", " "), flags=re.M)


def functions(module):
    """What a file asks, and one that it shares with others: probes, then public functions in their order."""
    own = inspect.getmembers(module, inspect.isfunction)
    mine = [f for name, f in own if f.__module__.startswith(HERE) and name[0] != "_"]
    mine = sorted(mine, key=lambda f: f.__code__.co_firstlineno)
    named = {f.__name__: f for f in mine if f.__module__ != f"{HERE}inside"}
    return getattr(module, "PROBES", {}) | named


def source(name, function):
    """The lines of a function, without its docstring; of a probe with its parameters, which are arrays."""
    if function.__name__ != name:  # an entry of PROBES, which stands for a function
        text = Path(function.__code__.co_filename).read_text("utf-8")
        tables = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Dict))
        entries = (
            pair for node in tables for pair in zip(node.keys, node.values, strict=True)
        )
        (said,) = (each.body for key, each in entries if getattr(key, "value", "") == name)
        parameters = ", ".join(inspect.signature(function).parameters)
        return f"def {name}({parameters}):\n    return {ast.get_source_segment(text, said)}"
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    lines = inspect.getsource(function).splitlines()
    if ast.get_docstring(tree) is None:
        return textwrap.dedent("\n".join(lines)).strip()
    return textwrap.dedent("\n".join(lines[tree.body[0].end_lineno :])).strip("\n")


def ask(name, function):
    """What a function shows: arrays, printed text, or the first line of its error."""
    wanted = {name: GIVEN[name] for name in inspect.signature(function).parameters}
    told = {
        "says": (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " "),
        "code": source(name, function),
    }
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            made = function(**wanted)
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            return told | {"error": f"{type(error).__name__}: {text}"[:200]}
    if made is None:
        return told | {"prints": printed.getvalue().strip()}
    arrays = made if isinstance(made, tuple) else (made,)
    return told | {"arrays": [np.asarray(array, "float64").tolist() for array in arrays]}


def main(name):
    """Ask everything that a file has, and print it as data on the last line."""
    module = importlib.import_module(HERE + name)
    shown = {name: ask(name, function) for name, function in functions(module).items()}
    sys.stdout.write("\n" + json.dumps(shown))


if __name__ == "__main__":
    main(sys.argv[1])
