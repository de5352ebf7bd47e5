"""The records of other libraries: their schema, and that each adapter is short and has an entry."""

import ast
import json
import re
from pathlib import Path

import jsonschema
import pytest

from tests.nightly.conformance import records
from tests.nightly.conformance.adapting import WHOSE
from tests.nightly.conformance.libraries import LIBRARIES, REFUSED

FOLDER = Path(records.__file__).parent
FOUND = records.read()
MODULES = {name: FOLDER / f"{name.replace('-', '_')}.py" for name in LIBRARIES}
TEXTS = {"type": "array", "items": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}


def exactly(**properties):
    """The schema of an object that has these properties and no others."""
    names = list(properties)
    closed = {"required": names, "additionalProperties": False}
    return {"type": "object", "properties": properties, **closed}


REASON = exactly(
    whose={"enum": list(WHOSE)},
    why={"type": "string"},
    cases={**TEXTS, "minItems": 1},
    code={"type": "string"},
    prints={"type": "string", "minLength": 1},
)
CHECK = exactly(
    adapter={"type": "string"},
    what={"type": "string"},
    scheme={"type": "string"},
    framework={"type": "string"},
    dtype={"type": ["string", "null"]},
    settings={"type": "object"},
    run={"type": "integer", "minimum": 1},
    passed=COUNT,
    failed=COUNT,
    failed_with_float32_angles=COUNT,
    skipped={"type": "object", "additionalProperties": COUNT},
    causes=TEXTS,
    failing={"type": "array", "items": {"type": "object", "required": ["name", "outcome"]}},
    found={"type": "array", "items": REASON},
)
SCHEMA = exactly(
    library={"enum": list(LIBRARIES)},
    version={"type": "string", "pattern": r"^\d+\.\d+"},
    date={"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"},
    checks={"type": "array", "items": CHECK, "minItems": 1},
)


def functions(path):
    """The functions of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def marks(function):
    """The names of its decorators."""
    return {
        ast.unparse(each.func)
        for each in function.decorator_list
        if isinstance(each, ast.Call)
    }


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_record_fits_its_schema(name):
    jsonschema.validate(FOUND[name], SCHEMA)


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_adapter_has_an_entry(name):
    adapters = [each.name for each in functions(MODULES[name]) if "against" in marks(each)]
    assert [check["adapter"] for check in FOUND[name]["checks"]] == adapters


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_failure_has_a_reason_that_anybody_can_run(name):
    for check in FOUND[name]["checks"]:
        failing = [case["name"] for case in check["failing"]]
        explained = [case for found in check["found"] for case in found["cases"]]
        assert sorted(explained) == sorted(failing), check["adapter"]
        assert check["run"] == check["passed"] + check["failed"]
        assert check["failed"] == len(failing)


def test_no_record_is_left_of_a_library_that_is_not_asked():
    assert sorted(FOUND) == sorted(LIBRARIES)
    assert json.loads(records.REFUSED.read_text("utf-8")) == REFUSED


def test_snippets_need_neither_the_checker_nor_us():
    for record in FOUND.values():
        for check in record["checks"]:
            for found in check["found"]:
                assert not re.search(r"posattn|tests", found["code"])
