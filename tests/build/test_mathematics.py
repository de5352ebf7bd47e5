"""Node, which renders equations: it says what is wrong, and ends with the build."""

import subprocess
import sys

KILLED = r"""
import os, signal
from docs._ext.book import mathematics
try:
    mathematics.render("html", r"\notacommand{x}")
except mathematics.katex.KaTeXError as error:
    print(error)
assert "katex-error" not in mathematics.render("html", "x^2")
if not os.fork():  # a process has its own
    wrong = "<math" in mathematics.render("html", "x^3")
    os._exit(wrong or mathematics.node.cache_info().currsize != 2)
assert os.wait()[1] == 0
assert mathematics.render("mathml", "x^4", {"displayMode": True}).startswith('<span class="katex"><math')
print("renders", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_node_says_what_is_wrong_and_ends_when_the_build_is_killed():
    """It is waited for until nobody holds the output, Node included."""
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout.endswith("renders\n")) == (-9, True), done.stderr
    assert (
        r"Undefined control sequence: \notacommand" in done.stdout
    )  # an error is an error
