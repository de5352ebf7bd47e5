"""The checker itself: no right function fails, whatever its style and its framework."""

import inspect

import pytest

from posattn.conformance import check
from tests.library.conformance import right
from tests.library.conformance.examples import RIGHT

FAMILIES = (right,)  # which fill the list
KNOWN = {*inspect.signature(check).parameters}  # some need options that are still to come


@pytest.mark.parametrize("example", [e for e in RIGHT if {*e.options} <= KNOWN], ids=str)
def test_what_is_right_passes(example):
    report = example.check()
    assert not report.failures, f"{report}"
    assert not report.causes


def test_there_are_forty_of_each():
    assert len({example.make for example in RIGHT}) >= 40
    assert len({example.scheme for example in RIGHT}) >= 12
    assert {example.framework for example in RIGHT} == {"numpy", "torch", "jax"}
