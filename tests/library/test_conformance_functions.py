"""The checker itself: no right function fails, no wrong one passes, and no cause is named falsely."""

import json
from pathlib import Path

import pytest

from posattn.conformance import names
from tests.library.conformance import right, threads, wrong
from tests.library.conformance.examples import RIGHT, WRONG
from tests.library.conformance.threads.__main__ import WRITTEN, table

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

FAMILIES = right, wrong  # which fill the lists
NOTED = json.loads(Path("tests/library/faults/threads.json").read_text("utf-8"))


def first(report):
    """The name of the cause that is told first, if one is."""
    return report.causes[0].name if report.causes else ""


@pytest.mark.parametrize("example", RIGHT, ids=str)
def test_what_is_right_passes(example):
    report = example.check()
    assert not report.failures, f"{report}"
    assert not report.causes


@pytest.mark.parametrize("example", WRONG, ids=str)
def test_what_is_wrong_fails_and_has_no_false_cause(example):
    report = example.check()
    assert report.failures, f"{report}"
    assert first(report) == example.cause, f"{report}"


@pytest.mark.parametrize("thread", threads.THREADS, ids=str)
def test_what_a_thread_tells_fails_for_its_reason(thread):
    report = thread.example.check()
    assert report.failures, f"{report}"
    assert first(report) == thread.example.cause, f"{report}"


def test_there_are_forty_of_each():
    for examples in (RIGHT, WRONG):
        assert len({example.make for example in examples}) >= 40
        assert len({example.scheme for example in examples}) >= 12
    assert {example.framework for example in RIGHT} == {"numpy", "torch", "jax"}


def test_every_thread_of_a_fault_is_written_as_a_function():
    assert set(NOTED) <= {thread.name for thread in threads.THREADS}


def test_the_table_has_a_row_for_each_thread():
    table = [*threads.rows()]
    assert len(table) == len(threads.THREADS)
    assert all(0 < row.failed <= row.run for row in table)
    assert all(row.what and row.scheme in names() for row in table)


def test_the_page_has_the_table_as_it_is():
    """If it should not be: `python -m tests.library.conformance.threads`."""
    assert WRITTEN.read_text(encoding="utf-8") == table()
