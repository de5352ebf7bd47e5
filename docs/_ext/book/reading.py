"""How pages are read: anew when their code changes, long ones first, and in kernels that have all imported.

A kernel that starts Python and imports PyTorch and JAX takes 5 s of a processor before its first cell, in
29 pages as much as all their cells. Here they are imported once, and a fork gives each page a process of its
own all the same. Where there is no fork the kernels start as usual. `tests/nightly` runs notebooks as a
user does, and compares what they print.
Whoever changes a sentence of one page (`nox -s page`) waits for no kernel: while its cells and all that they
depend on are what they were, they print what they printed.
A line for every few pages says how far the build is, and what time is left.
"""

import asyncio
import gc
import importlib
import multiprocessing
import os
import signal
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import nbformat
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from jupyter_client import manager
from jupyter_client.provisioning import local_provisioner
from myst_nb.core.execute import direct
from sphinx import builders
from sphinx_proof.domain import ProofDomain

from . import cells, dependencies, names

HANDS = 6  # for each process
# on macOS system libraries may hang in a fork
FORKS = hasattr(os, "fork") and sys.platform != "darwin"
launch_kernel = local_provisioner.launch_kernel
MODULES = []  # which a page finds imported
# our own modules that change nothing of what is read
WRITERS = {"complaints", "ebook", "names", "notebooks", "paper", "site", "slides"}
COMPILER = (  # most code for JAX runs once, and takes longer to compile than to run
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)


class Forked:
    """What jupyter_client asks of a process that it has started."""

    stdin = stdout = stderr = None

    def __init__(self, process):
        self.pid, self.kill, self.terminate = process.pid, process.kill, process.terminate
        self.process = process

    def poll(self):
        """The exit code, or None while the kernel runs."""
        return self.process.exitcode

    def wait(self):
        """Wait for the end."""
        self.process.join()
        return self.process.exitcode


def run(argv, env, cwd):
    """Be the kernel: a group of its own, since jupyter_client signals the group, and a loop of its own."""
    os.setpgid(0, 0)
    # or a signal to this process would wake the loop of the one that it left
    signal.set_wakeup_fd(-1)
    os.environ.update(env)
    os.environ["XLA_FLAGS"] = f"{COMPILER} {os.environ.get('XLA_FLAGS', '')}"
    os.chdir(cwd)
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)
    app = importlib.import_module("ipykernel.kernelapp").IPKernelApp
    app.launch_instance(argv=argv, parent_handle=os.getppid())
    names.save()


@cache
def imported(*modules):
    """Import once what the pages import."""
    for name in ("ipykernel.kernelapp", *modules):
        importlib.import_module(name)
    dependencies.of([f"import {name} as it; it" for name in modules])
    gc.freeze()  # the collector would walk, and so copy, all of it in each process


def execute(notebook, **options):
    """Run the cells of a page, or, in a build of this page only, take what they printed before."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kept = dependencies.fingerprint([cell.source for cell in cells])
    place = Path(os.environ[names.FOLDER], f"{kept}.ipynb")
    if "BOOK_PAGE" in os.environ and place.is_file():
        for cell, before in zip(cells, nbformat.read(place, 4).cells, strict=True):
            cell.outputs, cell.execution_count = before.outputs, before.execution_count
        return ExecutionResult(notebook, options["cwd"], 0.0)
    result = single_nb_execution(notebook, **options)
    if result.err is None:
        nbformat.write(nbformat.v4.new_notebook(cells=cells), place)
    return result


def launch(command, env=None, cwd=None, **options):
    """Start a kernel that keeps its names, as a fork where there is one."""
    command = [*command, f"--IPKernelApp.extra_extensions={names.__name__}"]
    if not FORKS:
        places = [
            str(Path(__file__).parents[1]),
            *filter(None, [os.environ.get("PYTHONPATH")]),
        ]
        env = {**(env or os.environ), "PYTHONPATH": os.pathsep.join(places)}
        return launch_kernel(command, env=env, cwd=cwd, **options)
    imported(*MODULES)
    given = command[command.index("-f") :], env or {}, cwd or "."
    process = multiprocessing.get_context("fork").Process(target=run, args=given)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX has not run yet
        process.start()
    os.setpgid(process.pid, process.pid)
    return Forked(process)


def preload(app, env, docnames):
    """Import once what the pages import, if several are to be read; one page may need no kernel."""
    if docnames:
        names_of(app).mkdir(parents=True, exist_ok=True)
        os.environ[names.FOLDER] = str(names_of(app))
        local_provisioner.launch_kernel = launch
        direct.single_nb_execution = execute
        manager.KernelManager.shutdown_wait_time.default_value = 60.0  # on a busy machine
        MODULES[:] = app.config.kernel_imports
    if len(docnames) > 1 and FORKS:
        imported(*MODULES)


def names_of(app):
    """The folder for what kernels keep, beside the pages that were read."""
    return Path(app.doctreedir).with_name("names")


def depend_on_code(app, doctree):
    """Read a page again when code that its cells use changes, or the book's own, so that nothing is stale."""
    sources = [cell.source for cell in cells.cells(app.env, app.env.docname).values()]
    own = [p for p in Path(__file__).parent.glob("*.py") if p.stem not in WRITERS]
    for path in [
        *dependencies.of(sources),
        *own,
        *Path(app.srcdir, "_ports").rglob("*.json"),
    ]:
        app.env.note_dependency(str(path))


def only_wanted(app, env, docnames):
    """Read only the page that is worked on, where it is named and the others have been read."""
    wanted = os.environ.get("BOOK_PAGE")
    if wanted and set(env.all_docs) - {wanted}:
        docnames[:] = [name for name in docnames if name == wanted]


def put_long_first(app, env, docnames):
    """Put long pages before short ones, so that each hand has its share."""
    docnames.sort(key=lambda name: -Path(env.doc2path(name)).stat().st_size)


def deal(docnames, processes):
    """Deal the pages into hands; a process that has read one takes the next, so that all end together."""
    hands = min(HANDS * processes, len(docnames))
    return [docnames[hand::hands] for hand in range(hands)]


class Progress:
    """What is read so far, of what, and since when."""

    def __init__(self):
        self.start, self.wanted, self.done = time.monotonic(), {}, set()

    def begin(self, app, env, docnames):
        """Weigh each page to be read: long ones take longer."""
        self.start = time.monotonic()
        self.wanted = {name: Path(env.doc2path(name)).stat().st_size for name in docnames}

    def tell(self, app, env, docnames, other):
        """Print what is read when a process hands in its pages; sizes say how long the others take."""
        self.done |= self.wanted.keys() & set(docnames)
        total, passed = sum(self.wanted.values()), time.monotonic() - self.start
        ready = sum(self.wanted[name] for name in self.done)
        if not ready:
            return
        left = passed * (total - ready) / ready
        print(
            f"read {len(self.done)} of {len(self.wanted)} pages, about {left:.0f} s left",
            flush=True,
        )


def setup(app):
    """Register with Sphinx: `kernel_imports` are the modules that a page finds imported."""
    app.add_config_value("kernel_imports", [], "", types=[list])
    app.connect("env-before-read-docs", only_wanted, priority=100)
    app.connect("env-before-read-docs", preload)
    progress = Progress()
    app.connect("env-before-read-docs", progress.begin)
    app.connect("env-merge-info", progress.tell)
    app.connect("doctree-read", depend_on_code)
    app.connect("env-before-read-docs", put_long_first)
    builders.make_chunks = deal
    # It keeps its list in the environment and merges it there; Sphinx asks its domain as well.
    ProofDomain.merge_domaindata = lambda *read: None
    return {"parallel_read_safe": True, "parallel_write_safe": True}
