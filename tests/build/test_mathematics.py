"""Node, which renders equations: a build does not wait for it forever."""

import subprocess
import sys

from docs._ext.book import site

BEGIN = """
from types import SimpleNamespace
from sphinxcontrib import katex
from docs._ext.book import site
builder, config = SimpleNamespace(format="html", name="html"), SimpleNamespace(book_page="")
site.prepare(SimpleNamespace(builder=builder, config=config))
"""
WRONG = r"""
assert "katex-error" not in katex.render_latex("x^2")
katex.render_latex(r"\notacommand{x}")
"""
WAITS = """
katex.NODEJS_BINARY, katex.STARTUP_TIMEOUT = {node!r}, 1.0
katex.render_latex("x^2")
"""


def ran(code):
    """What code says when it fails."""
    command = [sys.executable, "-c", BEGIN + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return done.stderr


def test_an_error_in_an_equation_is_an_error():
    assert r"Undefined control sequence: \notacommand" in ran(WRONG)


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
    said = ran(WAITS.format(node=str(node)))
    assert "KaTeXError: KaTeX server did not came up after 1.0 seconds" in said
