"""The checker itself: no right function fails, no wrong one passes, and no cause is named falsely."""

import inspect

import pytest

from posattn.conformance import check
from tests.library.conformance import right, wrong
from tests.library.conformance.examples import RIGHT, WRONG

FAMILIES = right, wrong  # which fill the lists
KNOWN = {*inspect.signature(check).parameters}  # some need options that are still to come


@pytest.mark.parametrize("example", [e for e in RIGHT if {*e.options} <= KNOWN], ids=str)
def test_what_is_right_passes(example):
    report = example.check()
    assert not report.failures, f"{report}"
    assert not report.causes


@pytest.mark.parametrize("example", [e for e in WRONG if {*e.options} <= KNOWN], ids=str)
def test_what_is_wrong_fails_and_has_no_false_cause(example):
    report = example.check()
    assert report.failures, f"{report}"
    named = report.causes[0].name if report.causes else ""
    assert named == example.cause, f"{report}"


def test_there_are_forty_of_each():
    assert len({example.make for example in RIGHT}) >= 40
    assert len({example.scheme for example in RIGHT}) >= 12
    assert {example.framework for example in RIGHT} == {"numpy", "torch", "jax"}
