"""Kernels that begin with the frameworks imported: each is a copy of the process that reads the page.

A page that starts Python and imports PyTorch and JAX waits five seconds before its first cell. Here they
are imported once, and a fork gives each page a process of its own all the same. Where there is no fork
the kernels start as usual. Most of a page's time goes into compiling for JAX what runs once, so XLA is
asked for the way that compiles in half the time. `nox -s notebooks` runs the same cells as a user does,
and compares what they print.
"""

import asyncio
import gc
import importlib
import os
import signal
import sys
import warnings

from jupyter_client.provisioning import local_provisioner

COMPILER = "--xla_cpu_parallel_codegen_split_count=1"
UNTIL_0_11_1 = "--xla_cpu_use_fusion_emitters=false"  # later versions end at an option they do not know


class Forked:
    """What jupyter_client asks of a process that it has started."""

    stdin = stdout = stderr = returncode = None

    def __init__(self, pid):
        self.pid = pid

    def poll(self, options=os.WNOHANG):
        """The exit code, or None while the kernel runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self):
        """Wait for the end."""
        return self.poll(0)

    def send_signal(self, number):
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def compiler():
    """What XLA is asked for, where there is JAX."""
    jax = sys.modules.get("jax")
    known = jax and jax.__version_info__ < (0, 11, 1)
    return [COMPILER, UNTIL_0_11_1] if known else [COMPILER] if jax else []


def launch(command, env=None, cwd=None, **options):
    """Start a kernel as a fork, in the place of `jupyter_client.launcher.launch_kernel`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX has not run yet
        pid = os.fork()
    if pid:
        os.setpgid(pid, pid)  # jupyter_client signals the group, which must not be ours
        return Forked(pid)
    code = 1
    try:
        os.setpgid(0, 0)
        os.environ.update(env or {})
        os.environ["XLA_FLAGS"] = " ".join([*compiler(), os.environ.get("XLA_FLAGS", "")])
        os.chdir(cwd or ".")
        asyncio._set_running_loop(None)
        asyncio.set_event_loop(None)
        app = importlib.import_module("ipykernel.kernelapp").IPKernelApp
        argv = command[command.index("-f") :]
        app.launch_instance(argv=argv, parent_handle=os.getppid())
        code = 0
    finally:
        os._exit(code)


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
