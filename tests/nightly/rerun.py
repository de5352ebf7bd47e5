"""Run a notebook as its readers would, which test_notebooks.py does with each.

It runs without the framework that it does not name and without what only the book's build
has, and every cell must print what its page shows.
"""

import nbformat
from nbclient import NotebookClient

FRAMEWORKS = {"torch": ["torch"], "jax": ["jax"], "numpy": [], "both": ["torch", "jax"]}
ABSENT = """
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

__import__("sys").meta_path.insert(0, Absent())
del Absent
"""  # as if nobody had installed them


def absent(framework):
    """What a reader who wants this framework may not have."""
    others = {"torch", "jax"} - set(FRAMEWORKS[framework])
    return ["docutils", "myst_nb", "sphinx", *sorted(others)]


def shown(cell):
    """What a cell prints, and whether it draws a figure."""
    text, drew = "", False
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/svg+xml" in data or "image/png" in data:
            drew = True
        elif output.output_type == "error":
            text += f"{output.ename}: {output.evalue}"
        else:
            text += output.get("text", "") or data["text/plain"]
    return text.rstrip(), drew


def run_notebook(path):
    """Run a notebook; return a report of its first cell that differs, or None."""
    book = nbformat.read(path, as_version=4)
    hide = ABSENT.format(absent(book.metadata["posattn"]["framework"]))
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    cells = [cell for cell in cells if "install" not in cell.metadata.get("tags", ())]
    wanted = [shown(cell) for cell in cells]
    book.cells = [nbformat.v4.new_code_cell(hide), *cells]
    NotebookClient(book, timeout=300, allow_errors=True).execute()
    report = None
    for cell, expected in zip(cells, wanted, strict=True):
        if report is None and shown(cell) != expected:  # what follows only follows from it
            report = difference(f"{path}, cell {cell.id}:", expected, shown(cell))
    return report


def difference(name, wanted, got):
    """Say what a cell should print and what it printed."""
    lines = [name]
    for head, (text, drew) in (("on the page", wanted), ("here", got)):
        said = text.splitlines() + ["(a figure)"] * drew or ["(nothing)"]
        lines += [f"  {head}:", *(f"    {line}" for line in said)]
    return "\n".join(lines)
