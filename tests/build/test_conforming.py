"""The records of other libraries: each adapter has an entry, each failure a reason to be run."""

import re
from pathlib import Path

import pytest

from tests.nightly.conformance import records
from tests.nightly.conformance.adapting import WHOSE
from tests.nightly.conformance.libraries import LIBRARIES

FOLDER = Path(records.__file__).parent
FOUND = records.read()
MODULES = {name: FOLDER / f"{name.replace('-', '_')}.py" for name in LIBRARIES}
MARKED = re.compile(r"^@against\(.*?^(?:def|class) (\w+)\b", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_adapter_has_an_entry(name):
    adapters = MARKED.findall(MODULES[name].read_text("utf-8"))
    assert [check["adapter"] for check in FOUND[name]["checks"]] == adapters
    assert adapters


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_failure_has_a_reason_that_anybody_can_run(name):
    for check in FOUND[name]["checks"]:
        failing = [case["name"] for case in check["failing"]]
        explained = [case for found in check["found"] for case in found["cases"]]
        assert sorted(explained) == sorted(failing), check["adapter"]
        assert check["run"] == check["passed"] + check["failed"]
        assert check["failed"] == len(failing)
        for found in check["found"]:
            assert found["whose"] in WHOSE
            assert found["prints"]
            assert not re.search(r"posattn|tests", found["code"])  # which needs neither


def test_no_record_is_left_of_a_library_that_is_not_asked():
    assert sorted(FOUND) == sorted(LIBRARIES)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_badge_counts_all_checks(name, site):
    checks = FOUND[name]["checks"]
    passed, run = (sum(check[key] for check in checks) for key in ("passed", "run"))
    badge = (site / "badges" / f"{name}.svg").read_text("utf-8")
    assert f"{passed} of {run} attention vectors" in badge
