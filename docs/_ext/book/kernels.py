"""How cells run: in processes that have all imported, and only if nobody has kept what they print.

A process that imports PyTorch and JAX takes 5 s before its first cell, in 29 pages as much as all their
cells. Here they are imported once, and a fork gives each page a process of its own all the same. Where there
is no fork, each imports them. `tests/nightly` runs notebooks as a user does, and compares what they print.
"""

import gc
import importlib
import multiprocessing
import os
import pickle
import shutil
import sys
import traceback
import warnings
from base64 import b64encode
from functools import cache, partial
from pathlib import Path

import cloudpickle
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from jupyter_cache.executors.utils import ExecutionResult
from myst_nb.core.execute import direct
from nbformat.v4 import new_output
from sphinx.util import logging
from traitlets.config import Config

from . import kept
from .cells import Cell

# on macOS system libraries may hang in a fork
FORKS = hasattr(os, "fork") and sys.platform != "darwin"
COMPILER = (  # most code for JAX runs once, and takes longer to compile than to run
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)
MOST = 2**22  # bytes of one value
logger = logging.getLogger(__name__)


def compute(sources, folder, pipe):
    """Run cells here, and send what each shows and names, or in a line why one could not."""
    os.environ["XLA_FLAGS"] = f"{COMPILER} {os.environ.get('XLA_FLAGS', '')}"
    # the terminal's, whose packages IPython would put first
    os.environ.pop("VIRTUAL_ENV", None)
    os.chdir(folder)
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    quiet, before = shell.displayhook.quiet, {}
    for number, source in enumerate(sources, 1):
        with capture_output() as shown:
            show = sys.displayhook
            shell.display_trap.hook = lambda x, show=show: quiet() or show(x)
            done = shell.run_cell(source, store_history=True)
        if error := done.error_before_exec or done.error_in_exec:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.name == "<module>"]
            line = [*lines, getattr(error, "lineno", None)][0]
            pipe.send(f"cell {number}, line {line}: {type(error).__name__}: {error}")
            return
        own = shell.user_ns.keys() - shell.user_ns_hidden
        now = {n: shell.user_ns[n] for n in own if not n.startswith("_")}
        new = {n: v for n, v in now.items() if before.get(n, before) is not v}
        before = now
        pipe.send((outputs(shown), pickled(new)))


def outputs(shown):
    """What a cell has shown, as a notebook holds it: each stream is one text."""
    found = [
        new_output("stream", name=name, text=text)
        for name in ("stdout", "stderr")
        if (text := getattr(shown, name))
    ]
    for output in shown.outputs:
        data = {
            kind: b64encode(value).decode() if isinstance(value, bytes) else value
            for kind, value in output.data.items()
        }
        found.append(new_output("display_data", data, metadata=output.metadata))
    return found


def pickled(values):
    """Each value as bytes; one that can't be pickled or is too large is left out."""
    found = {}
    for name, value in values.items():
        try:
            text = cloudpickle.dumps(value)
        except Exception:  # whatever a value's own `__reduce__` raises
            continue
        if len(text) <= MOST:
            found[name] = text
    return found


@cache
def imported(*modules):
    """Import once what the pages import."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # the collector would walk, and so copy, all of it in each process
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX has not run yet


def run(sources, folder, timeout):
    """Yield what each cell shows and names; end with the line that says why one could not."""
    context = multiprocessing.get_context("fork" if FORKS else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=compute, args=(sources, folder, sender))
    process.start()
    sender.close()
    for number, _ in enumerate(sources, 1):
        try:
            slow = f"cell {number}: took {timeout} s"
            found = receiver.recv() if receiver.poll(timeout) else slow
        except EOFError:
            found = f"cell {number}: its process ended"
        yield found
        if isinstance(found, str):
            break
    process.kill()
    process.join()


def execute(env, folder, notebook, cwd, timeout, **options):
    """Run the cells of a page, or take what they have printed.

    Where one page is built, the words of the others are enough to refer to them: they are read again later.
    """
    cells = [item for item in enumerate(notebook.cells) if item[1].cell_type == "code"]
    sources, result = [cell.source for _, cell in cells], ExecutionResult(notebook, "", 0.0)
    known = kept.load(folder, sources)
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    if known is None and env.config.book_page not in ("", env.docname):
        env.note_reread()
        return result
    if known is None:
        if FORKS:
            imported(*env.config.kernel_imports)
        known = [*run(sources, cwd, timeout)]
        if known and isinstance(known[-1], str):
            logger.warning(known.pop(), type="cell", location=env.docname)
            known += [([], {})] * (len(cells) - len(known))
        else:
            place = kept.place(folder, sources)
            part = place.with_suffix(".part")
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(pickle.dumps(known))
            part.replace(place)
    noted = env.metadata[env.docname]["cells"] = {}
    for number, ((at, cell), (shown, _)) in enumerate(zip(cells, known, strict=True), 1):
        cell.outputs, cell.execution_count = shown, number
        tags = cell.metadata.get("tags", [])
        noted[at] = Cell(number, cell.source, tags, [*kept.glued(shown)])
    return result


def prepare(app, env, docnames):
    """Let MyST-NB run cells so, and import once what the pages import, if several are to be read."""
    folder = Path(app.doctreedir).with_name("kept")
    for old in folder.glob("*"):
        if old.name != kept.state(*kept.USED):
            shutil.rmtree(old)
    # override: until MyST-NB's cache sees a change of the library
    direct.single_nb_execution = partial(execute, env, folder)
    if len(docnames) > 1 and FORKS and not app.config.book_page:
        imported(*app.config.kernel_imports)


def setup(app):
    """Register with Sphinx: `kernel_imports` are the modules that a page finds imported."""
    app.add_config_value("kernel_imports", [], "", types=[list])
    app.connect("env-before-read-docs", prepare)
