"""The checker itself: no right function fails, no wrong one passes, and no cause is named falsely."""

import pytest

from posattn.conformance.faults import FAULTS
from tests.library.conformance import right, threads, wrong
from tests.library.conformance.examples import RIGHT, THREADS, WRONG

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

FILLED = right, threads, wrong  # the lists


def causes(report):
    """The names of the causes that are told."""
    return [cause.name for cause in report.causes]


def seen_in(fault):
    """The threads of a fault; a repository is written once for several."""
    places = fault.seen.split(", ") if fault.seen else []
    for k, place in enumerate(places):
        if place.startswith("#"):
            places[k] = f"{places[k - 1].split(' ')[0]} {place}"
    return places


@pytest.fixture(scope="module")
def reports():
    """The report on each thread, made once."""
    made = {}  # several threads may tell of one function
    for thread in THREADS:
        if thread.make not in made:
            made[thread.make] = thread.check()
    return [(thread, made[thread.make]) for thread in THREADS]


@pytest.mark.parametrize("example", RIGHT, ids=str)
def test_what_is_right_passes(example):
    report = example.check()
    assert not report.failures, f"{report}"


@pytest.mark.parametrize("example", WRONG, ids=str)
def test_what_is_wrong_fails_without_a_false_cause(example):
    report = example.check()
    assert report.failures, f"{report}"
    assert causes(report) == []


def test_what_a_thread_tells_fails_for_its_reason(reports):
    for thread, report in reports:
        assert report.failures, thread.name
        assert causes(report)[:1] == [thread.cause] * bool(thread.cause), thread.name


def test_each_thread_of_a_fault_is_a_function():
    told = {}
    for fault in FAULTS:
        for place in seen_in(fault):
            told.setdefault(place, set()).add(fault.name)
    causes = {thread.name: thread.cause for thread in THREADS}
    assert set(told) <= set(causes)
    others = {place for place, names in told.items() if causes[place] not in names}
    # faults of the mask, which are written as attention
    assert others == {"onnx/onnx #8068", "pytorch/executorch #21749"}


def test_the_page_has_the_table_of_threads(reports):
    """If it should not be: `python -m tests.library.conformance.threads`."""
    table = threads.table([(thread.name, report) for thread, report in reports])
    assert threads.WRITTEN.read_text(encoding="utf-8") == table
