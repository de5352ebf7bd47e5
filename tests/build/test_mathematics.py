"""Node, which renders equations: it ends with the build, and a build does not wait for it forever."""

import subprocess
import sys

import pytest
from sphinxcontrib import katex

from docs._ext.book import mathematics

KILLED = """
import os, pathlib, signal
from sphinxcontrib import katex
from docs._ext.book import mathematics
katex.NODEJS_BINARY = mathematics.NODE
_, connection = mathematics.start_server(pathlib.Path({folder!r}), 60)
print("listens", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_node_ends_when_the_build_is_killed(tmp_path):
    code = KILLED.format(folder=str(tmp_path))
    # returns once nobody holds the other end of what is captured, and Node holds the errors'
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90
    )
    assert (done.returncode, done.stdout) == (-9, "listens\n")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["exec sleep 600", "exit 3"], ids=["silent", "gone"])
def test_node_that_does_not_listen_is_an_error_and_ends(tmp_path, monkeypatch, script):
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\n{script}\n")
    node.chmod(0o755)
    monkeypatch.setattr(katex, "NODEJS_BINARY", str(node))
    started = []

    def start(*given, **options):
        started.append(subprocess.Popen(*given, **options))
        return started[0]

    monkeypatch.setattr(mathematics, "Popen", start)
    with pytest.raises(katex.KaTeXError, match=r"did not listen to equations within 1 s"):
        mathematics.start_server(tmp_path, 1)
    with started[0] as process:
        assert process.wait(timeout=30) in (-9, 3)
