"""Kernels that are forks: each page has a process of its own, which begins with the frameworks."""

import html
import os
import re

import pytest

from docs._ext.book import reading
from tests.build.books import build, cell, write
from tests.conftest import need

pytestmark = pytest.mark.slow  # small books

SETTINGS = 'kernel_imports = ["posattn.torch", "posattn.jax"]\n'
LOOK = """import os, sys
before = sorted({"torch", "jax", "posattn"} & set(sys.modules))
print(before, "mark" in globals(), os.getpid())
print(os.environ["XLA_FLAGS"])
mark = 1"""


def test_a_page_begins_with_the_frameworks_in_a_process_of_its_own(tmp_path):
    need(hasattr(os, "fork"), "there is no fork here")
    pages = {name: cell(LOOK) + "As it should be: False.\n" for name in ("one", "two")}
    write(tmp_path, pages, settings=SETTINGS)
    out, code, said = build(tmp_path)
    assert code == 0, said
    pids = set()
    for name in pages:
        page = (out / f"{name}.html").read_text(encoding="utf-8")
        text = html.unescape(re.sub("<[^>]+>", "", page))
        pids.add(re.search(r"\['jax', 'posattn', 'torch'\] False (\d+)", text)[1])
        assert reading.COMPILER in text
    assert len(pids) == 2


def test_a_kernel_that_dies_fails_the_build(tmp_path):
    write(tmp_path, {"dead": cell("import os\nos._exit(3)")})
    _, code, said = build(tmp_path)
    assert code != 0
    assert "DeadKernelError" in said
