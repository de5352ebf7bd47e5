"""Kernels that begin with the frameworks imported: each is a copy of the process that reads the page.

A kernel that starts Python and imports PyTorch and JAX takes 5 s of a processor before its first cell, in
29 pages as much as all their cells. Here they are imported once, and a fork gives each page a process of its
own all the same. Where there is no fork the kernels start as usual. `nox -s notebooks` runs the cells as a
user does, and compares what they print.
"""

import asyncio
import gc
import importlib
import multiprocessing
import os
import sys
import warnings

from jupyter_client.provisioning import local_provisioner

COMPILER = "--xla_cpu_parallel_codegen_split_count=1"  # most code for JAX runs once


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
    os.environ.update(env)
    os.environ["XLA_FLAGS"] = f"{COMPILER} {os.environ.get('XLA_FLAGS', '')}"
    os.chdir(cwd)
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(None)
    app = importlib.import_module("ipykernel.kernelapp").IPKernelApp
    app.launch_instance(argv=argv, parent_handle=os.getppid())


def launch(command, env=None, cwd=None, **options):
    """Start a kernel as a fork, in the place of `jupyter_client.launcher.launch_kernel`."""
    given = command[command.index("-f") :], env or {}, cwd or "."
    process = multiprocessing.get_context("fork").Process(target=run, args=given)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX has not run yet
        process.start()
    os.setpgid(process.pid, process.pid)
    return Forked(process)


def preload(app, env, docnames):
    """Import once what the pages import, if any is to be read."""
    if docnames:
        for name in ["ipykernel.kernelapp", *app.config.kernel_imports]:
            importlib.import_module(name)
        gc.freeze()  # the collector would walk, and so copy, all of it in each process
        local_provisioner.launch_kernel = launch


def setup(app):
    """Register with Sphinx: `kernel_imports` are the modules that a page finds imported."""
    app.add_config_value("kernel_imports", [], "", types=[list])
    # on macOS a fork may hang in system libraries
    if hasattr(os, "fork") and sys.platform != "darwin":
        app.connect("env-before-read-docs", preload)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
