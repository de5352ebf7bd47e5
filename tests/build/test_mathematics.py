"""Node, which renders equations: it ends with the build, and a build does not wait for it forever."""

import subprocess
import sys

from docs._ext.book import site

BEGIN = """
import os, signal
from types import SimpleNamespace
from sphinxcontrib import katex
from docs._ext.book import site
builder, config = SimpleNamespace(format="html", name="html"), SimpleNamespace(book_page="")
site.prepare(SimpleNamespace(builder=builder, config=config))
"""
KILLED = r"""
try:
    katex.render_latex(r"\notacommand{x}")
except katex.KaTeXError as error:
    print(error)
assert "katex-error" not in katex.render_latex("x^2")
print("renders", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
WAITS = """
katex.NODEJS_BINARY, katex.STARTUP_TIMEOUT = {node!r}, 1.0
katex.render_latex("x^2")
"""


def ran(code):
    """How code ends; it is waited for until nobody holds its output, Node included."""
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)


def test_node_says_what_is_wrong_and_ends_when_the_build_is_killed():
    done = ran(KILLED)
    assert (done.returncode, done.stdout.endswith("renders\n")) == (-9, True), done.stderr
    assert (
        r"Undefined control sequence: \notacommand" in done.stdout
    )  # an error is an error


def test_node_that_listens_late_is_started_again(tmp_path):
    tries = []

    def start(folder, timeout):
        tries.append(folder)
        if len(tries) < 4:
            raise ConnectionRefusedError
        return folder.is_dir()

    assert site.start_node(tmp_path, 1, start)
    assert len({*tries}) == 4


def test_node_that_does_not_listen_is_an_error(tmp_path):
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\nexec cat\n")
    node.chmod(0o755)
    done = ran(WAITS.format(node=str(node)))
    assert "KaTeXError: KaTeX server did not came up after 1.0 seconds" in done.stderr
