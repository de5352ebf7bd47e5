"""The records of other libraries: each adapter has an entry, and each failure a reason."""

import re
from pathlib import Path

import pytest

from tests.nightly.conformance import records

FOLDER = Path(records.__file__).parent
FOUND = records.read()
MODULES = {name: FOLDER / f"{name.replace('-', '_')}.py" for name in records.LIBRARIES}
MARKED = re.compile(r"^@against\(.*?^(?:def|class) (\w+)\b", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", MODULES)
def test_every_adapter_has_an_entry(name):
    adapters = MARKED.findall(MODULES[name].read_text("utf-8"))
    assert [check["adapter"] for check in FOUND[name]["checks"]] == adapters
    assert adapters
    assert FOUND[name]["row"] == records.LIBRARIES[name]


@pytest.mark.parametrize("name", MODULES)
def test_every_failure_has_one_reason(name):
    for check in FOUND[name]["checks"]:
        explained = [case for found in check["found"] for case in found["cases"]]
        assert len({*explained}) == len(explained) == check["failed"], check["adapter"]
        assert check["run"] == check["passed"] + check["failed"]


def test_no_record_is_left_of_a_library_that_is_not_asked():
    assert sorted(FOUND) == sorted(MODULES)
