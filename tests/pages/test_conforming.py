"""Who conforms: the records of the libraries."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest

from tests.conformance import records
from tests.conformance.libraries import LIBRARIES

RECORDS = list(records.read().values())
CHECKS = [(record["library"], check) for record in RECORDS for check in record["checks"]]
FOUND = [found for _, check in CHECKS for found in check["found"]]
FOLDER = Path(records.__file__).parent


def failing(check):
    """The names of the cases that an adapter fails, in one text."""
    return "; ".join(case["name"] for case in check["failing"])


def test_each_of_the_libraries_own_failures_raises(page):
    """The other … failures are a library's own, and each of them raises an error where an answer exists."""
    own = [found for found in FOUND if found["whose"] == "library"]
    assert own
    assert all("Error: " in found["prints"] for found in own)
    assert page.glued["library"] == sum(len(found["cases"]) for found in own)


def test_every_failure_is_counted_under_one_reason(page):
    """Of these, … pass and … fail."""
    glued = page.glued
    assert glued["passed"] + glued["failed"] == glued["run"]
    assert glued["precision"] + glued["convention"] + glued["library"] == glued["failed"]
    assert glued["libraries"] == len(RECORDS) >= 10


def test_all_of_it_is_float32():
    """All of it ran on a CPU, in float32."""
    for _, check in CHECKS:
        assert check["dtype"] == "float32" or check["framework"] in {"torch", "jax", "mlx"}


def test_who_gives_the_mean_of_all_values():
    """Flax, JAX and MLX give the mean of all values there."""
    mean = {name for name, check in CHECKS if "one of them 0" in failing(check)}
    assert mean == {"flax", "jax", "mlx"}


def test_what_is_hidden_leaks():
    """In all attention functions of the table, NaN in a hidden value becomes NaN in the output."""
    masked = [c for _, c in CHECKS if c["scheme"] == "attention" and not c["settings"]]
    assert masked
    assert all("NaN" in failing(check) for check in masked)


def test_who_aligns_the_first_query_with_the_first_key():
    """With `is_causal`, PyTorch and JAX let the first query see only the first key."""
    first = {
        name for name, check in CHECKS if "causal, decoding one token" in failing(check)
    }
    assert first == {"torch", "jax"}


def test_the_third_digit():
    """Near position 1,000,003, the sine of a float32 angle can be off in the third digit."""
    rounded = math.sin(np.float32(1000003) * np.float32(0.1))
    assert abs(rounded - math.sin(1000003 / 10)) > 1e-3


@pytest.mark.parametrize("name", LIBRARIES)
def test_adapters_are_short(name):
    """Write a module in `tests/conformance`, named after the library, with adapters of at most 15 lines."""
    path = FOLDER / f"{name.replace('-', '_')}.py"
    for node in ast.parse(path.read_text("utf-8")).body:
        marked = isinstance(node, ast.FunctionDef) and ast.dump(node)
        if marked and "id='because'" not in marked:
            assert node.end_lineno - node.lineno < 15, node.name
