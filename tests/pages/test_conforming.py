"""Who conforms: the records of the libraries."""

import ast
import math
from pathlib import Path

import numpy as np
import pytest

from tests.nightly.conformance import records
from tests.nightly.conformance.libraries import LIBRARIES

RECORDS = list(records.read().values())
CHECKS = [(record["library"], check) for record in RECORDS for check in record["checks"]]
FOLDER = Path(records.__file__).parent


def failing(check):
    """The names of the cases that an adapter fails, in one text."""
    return "; ".join(case["name"] for case in check["failing"])


def test_the_libraries_own_failures(page):
    """The other … failures are a library's own.

    In … of them it raises an error where an answer exists, and in … a module of Equinox turns by the base
    of an earlier one.
    """
    own = [
        (name, found)
        for name, check in CHECKS
        for found in check["found"]
        if found["whose"] == "library"
    ]
    stale = [(name, found) for name, found in own if "Error: " not in found["prints"]]
    assert [name for name, _ in stale] == ["equinox"]
    assert "the base of an earlier" in stale[0][1]["why"]
    assert page.glued["stale"] == len(stale[0][1]["cases"])
    assert page.glued["library"] == sum(len(found["cases"]) for _, found in own)
    assert page.glued["raised"] + page.glued["stale"] == page.glued["library"]


def test_what_passes_where_angles_are_float32():
    """All of these pass with `--tolerance float32-angles`, which grows with the position as such errors do.

    Where it makes a difference, the line also says how many pass with `--tolerance float32-angles`.
    """
    for _, check in CHECKS:
        coarse = [found for found in check["found"] if found["whose"] == "precision"]
        nearer = check["failed"] - check["failed_with_float32_angles"]
        assert nearer == sum(len(found["cases"]) for found in coarse)


def test_every_failure_is_counted_under_one_reason(page):
    """Of these, … pass and … fail."""
    glued = page.glued
    assert glued["passed"] + glued["failed"] == glued["run"]
    assert glued["precision"] + glued["convention"] + glued["library"] == glued["failed"]
    assert glued["libraries"] == len(RECORDS) >= 10


def test_all_of_it_is_float32():
    """All of it ran on a CPU, in float32."""
    for _, check in CHECKS:
        assert check["dtype"] == "float32" or check["framework"] != "numpy"


def test_who_gives_the_mean_of_all_values():
    """Flax, JAX and MLX give the mean of all values there, and `MultiheadAttention` of PyTorch gives NaN."""
    empty = {
        (name, check["adapter"]): found
        for name, check in CHECKS
        for found in check["found"]
        if any("one of them 0" in case for case in found["cases"])
    }
    assert "nan" in empty.pop(("torch", "multi_head"))["prints"]
    assert {name for name, _ in empty} == {"flax", "jax", "mlx"}
    assert all("mean of all values" in found["why"] for found in empty.values())


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
    """Write a module in `tests/nightly/conformance`, named after the library, with adapters of at most 15 lines."""
    path = FOLDER / f"{name.replace('-', '_')}.py"
    for node in ast.parse(path.read_text("utf-8")).body:
        marked = isinstance(node, ast.FunctionDef) and ast.dump(node)
        if marked and "id='because'" not in marked:
            assert node.end_lineno - node.lineno < 15, node.name
