"""How cells run: in kernels that have all imported, and only if nobody has kept what they print.

A kernel that starts Python and imports PyTorch and JAX takes 5 s of a processor before its first cell, in
29 pages as much as all their cells. Here they are imported once, and a fork gives each page a process of its
own all the same. Where there is no fork the kernels start as usual. `tests/nightly` runs notebooks as a
user does, and compares what they print.
"""

import asyncio
import gc
import importlib
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import warnings
from functools import cache, partial
from pathlib import Path

from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from jupyter_client.provisioning import local_provisioner
from myst_nb.core.execute import direct

from . import kept

# on macOS system libraries may hang in a fork
FORKS = hasattr(os, "fork") and sys.platform != "darwin"
launch_kernel = local_provisioner.launch_kernel
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


@cache
def imported(*modules):
    """Import once what the pages import."""
    for name in ("ipykernel.kernelapp", *modules):
        importlib.import_module(name)
    gc.freeze()  # the collector would walk, and so copy, all of it in each process


def launch(modules, command, env=None, cwd=None, **options):
    """Start a kernel that keeps its names, as a fork where there is one."""
    command = [*command, f"--IPKernelApp.extra_extensions={kept.__name__}"]
    if not FORKS:
        places = [
            str(Path(__file__).parents[1]),
            *filter(None, [os.environ.get("PYTHONPATH")]),
        ]
        env = {**(env or os.environ), "PYTHONPATH": os.pathsep.join(places)}
        return launch_kernel(command, env=env, cwd=cwd, **options)
    imported(*modules)
    given = command[command.index("-f") :], env or {}, cwd or "."
    process = multiprocessing.get_context("fork").Process(target=run, args=given)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX has not run yet
        process.start()
    os.setpgid(process.pid, process.pid)
    return Forked(process)


def execute(env, folder, notebook, **options):
    """Run the cells of a page, or take what they have printed.

    Where one page is built, the words of the others are enough to refer to them: they are read again later.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    sources, result = [cell.source for cell in cells], ExecutionResult(notebook, "", 0.0)
    known = kept.load(folder, sources)
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    if known is None and env.config.book_page not in ("", env.docname):
        env.note_reread()
        return result
    if known is None:
        place = kept.place(folder, sources)
        part = place.with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        os.environ[kept.WRITES] = str(part)
        result = single_nb_execution(notebook, **options)
        if result.err or not cells:
            return result
        with part.open("rb") as file:
            known = [(cell.outputs, *pickle.load(file)) for cell in cells]
        part.write_bytes(pickle.dumps(known))
        part.replace(place)
    for number, (cell, (outputs, _, glued)) in enumerate(zip(cells, known, strict=True), 1):
        cell.outputs, cell.execution_count = joined(outputs), number
        cell.metadata["glued"] = [*glued]
    return result


def joined(outputs):
    """Outputs with each stream as one text: a busy kernel sends pieces, which MyST-NB would part by lines."""
    found, streams = [], {}
    for output in outputs:
        is_stream = output.output_type == "stream"
        first = streams.setdefault(output.name, output) if is_stream else output
        if first is output:
            found.append(output)
        else:
            first.text += output.text
    return found


def prepare(app, env, docnames):
    """Let MyST-NB run cells so, and import once what the pages import, if several are to be read."""
    folder = Path(app.doctreedir).with_name("kept")
    for old in folder.glob("*"):
        if old.name != kept.state(*kept.USED):
            shutil.rmtree(old)
    direct.single_nb_execution = partial(execute, env, folder)
    local_provisioner.launch_kernel = partial(launch, app.config.kernel_imports)
    if len(docnames) > 1 and FORKS and not app.config.book_page:
        imported(*app.config.kernel_imports)


def setup(app):
    """Register with Sphinx: `kernel_imports` are the modules that a page finds imported."""
    app.add_config_value("kernel_imports", [], "", types=[list])
    app.connect("env-before-read-docs", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
