"""Kernels that are forks: each page has a process of its own, which begins with the frameworks."""

import html
import os
import re

import pytest

from docs._ext.book import kernels
from tests.build.books import build, cell
from tests.conftest import need

pytestmark = pytest.mark.slow  # small books

SETTINGS = 'kernel_imports = ["posattn.torch", "posattn.jax"]\n'
LOOK = """import os, sys
before = sorted({"torch", "jax", "posattn"} & set(sys.modules))
print(before, "mark" in globals(), os.getpid(), os.getppid())
print(os.environ["XLA_FLAGS"])
mark = 1"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    need(hasattr(os, "fork"), "there is no fork here")
    pages = {name: cell(LOOK) + cell("print(mark)") for name in ("one", "two")}
    return build(tmp_path_factory.mktemp("forked"), pages, settings=SETTINGS)


def test_a_page_begins_with_the_frameworks_in_a_process_of_its_own(made):
    out, _, _ = made
    pids = []
    for name in ("one", "two"):
        page = (out / f"{name}.html").read_text(encoding="utf-8")
        text = html.unescape(re.sub("<[^>]+>", "", page))
        found = re.search(r"\['jax', 'posattn', 'torch'\] False (\d+) (\d+)", text)
        pids.append(found[1])
        assert kernels.COMPILER in text
    assert pids[0] != pids[1]


def test_a_kernel_that_dies_fails_the_build(tmp_path):
    pages = {"dead": cell("import os\nos._exit(3)")}
    _, code, said = build(tmp_path, pages)
    assert code != 0
    assert "DeadKernelError" in said
