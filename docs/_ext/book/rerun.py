"""Run the notebooks as their readers would: `python docs/_ext/rerun.py FOLDER`.

Each notebook runs in a process of its own, without the framework that it does not name and without what
only the book's build has, and every cell must print what its page shows.
The processes are copies of one that has imported the framework, which saves most of the time.
"""

import ast
import contextlib
import importlib
import io
import multiprocessing
import subprocess
import sys
import time
import traceback
from pathlib import Path

import nbformat
from IPython.lib.pretty import pretty

FRAMEWORKS = ("torch", "jax")
BUILD_ONLY = ("docutils", "myst_nb", "sphinx")


class Absent:
    """A finder that makes packages look as if nobody had installed them."""

    def __init__(self, *packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        """Refuse these packages, and leave the others to the next finder."""
        if name.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def run_cell(code, names):
    """Run a cell; return what it printed or returned, and whether it drew a figure."""
    buffer, value, drew = io.StringIO(), None, False
    with contextlib.redirect_stdout(buffer), contextlib.redirect_stderr(buffer):
        try:
            tree = ast.parse(code)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<cell>", "exec"), names)
            if last:
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
            if value is not None and not code.rstrip().endswith(";"):
                drew = hasattr(value, "_repr_svg_")
                print(end="" if drew else pretty(value) + "\n")
        except Exception:
            traceback.print_exc(limit=-1)
    return buffer.getvalue().rstrip(), drew


def shown(cell):
    """What the page shows of a cell: its text, and whether it draws a figure."""
    text = "".join(output.get("text", "") for output in cell.outputs)
    return text.rstrip(), any(output.get("data") for output in cell.outputs)


def run_notebook(path):
    """Run a notebook; return its number of cells, its time, and its first cell that differs."""
    start, names = time.perf_counter(), {"__name__": "__main__"}
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    cells = [cell for cell in cells if "install" not in cell.metadata.get("tags", ())]
    fault = None
    for cell in cells:
        wanted, got = shown(cell), run_cell(cell.source, names)
        if got != wanted:  # what follows would only follow from it
            fault = cell.id, wanted, got
            break
    return path, len(cells), time.perf_counter() - start, fault


def kind(path):
    """The framework that a notebook is for: `torch`, `jax`, `numpy`, or `both`."""
    metadata = nbformat.read(path, as_version=4).metadata
    return metadata["posattn"]["framework"]


def run_all(framework, paths):
    """Run all notebooks of a framework, and report each as it ends; return whether all agree."""
    present = FRAMEWORKS if framework == "both" else (framework,)
    sys.meta_path.insert(0, Absent(*BUILD_ONLY, *(set(FRAMEWORKS) - set(present))))
    for name in {"torch", "jax"} & set(present):
        importlib.import_module(f"posattn.{name}")
    importlib.import_module("posattn.figures")
    agree = True
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for path, cells, seconds, fault in pool.imap(run_notebook, paths, chunksize=1):
            end = "differs" if fault else "agrees"
            print(
                f"{Path(path).name:40} {cells:3} cells {seconds:6.1f} s  {end}", flush=True
            )
            if fault:
                agree = False
                print(report(path, *fault), flush=True)
    return agree


def report(path, name, wanted, got):
    """Say which cell of which notebook differs, what it should print and what it printed."""
    lines = [f"{path}, cell {name}:"]
    for head, (text, drew) in (("on the page", wanted), ("here", got)):
        said = text.splitlines() + ["(a figure)"] * drew or ["(nothing)"]
        lines += [f"  {head}:", *(f"    {line}" for line in said)]
    return "\n".join(lines)


def main(folder, framework=None):
    """Run the notebooks below a folder, or those of one framework; return the exit code."""
    groups = {}
    for path in sorted(Path(folder).rglob("*.ipynb")):
        groups.setdefault(kind(path), []).append(str(path))
    if not groups:
        print(f"no notebooks in {folder}")
        return 1
    if framework:
        return int(not run_all(framework, groups[framework]))
    command = [sys.executable, "-P", __file__, folder]
    runs = [subprocess.Popen([*command, name]) for name in groups]
    codes = [run.wait() for run in runs]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
