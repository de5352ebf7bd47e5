"""What each library does: how answers are named, and the records of the libraries."""

import ast
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.nightly.conformance import records
from tests.nightly.world.columns import ANSWERS, named, turned
from tests.nightly.world.inside import GIVEN

CHECKS = [
    (record["library"], check)
    for record in records.read().values()
    for check in record["checks"]
]
FOUND = [(name, check, found) for name, check in CHECKS for found in check["found"]]


def failing(text):
    """The libraries, and their adapters, that fail a case with such a name, with what it gives."""
    return {
        (name, check["adapter"]): gives
        for name, check, found in FOUND
        for case, gives in found["cases"].items()
        if text in case
    }


@pytest.mark.parametrize("probe", ANSWERS)
def test_an_answer_is_named_by_its_formula_alone(probe):
    answers = ANSWERS[probe]
    listed = answers.items() if isinstance(answers, dict) else answers
    if isinstance(answers, tuple):
        listed = [(answers[0], [0, 0]), (answers[1], [0, 1]), ("NaN", [0, np.nan])]
    if callable(answers):
        right = turned(GIVEN["far"])
        listed = [("float64", right), ("float32", right + 1e-3), ("NaN", right * np.nan)]
    for name, array in listed:
        arrays = array if isinstance(answers, tuple) else [array]
        word, _ = named(probe, {"arrays": [np.array(one) for one in arrays]})
        assert word == name


def test_the_page_asks_what_the_program_asks(page):
    asked = re.findall(
        r'"(\w+)"', page.text.partition("QUESTIONS = {")[2].partition("}")[0]
    )
    asked = [name for name in asked if name in ANSWERS or "_" in name]
    assert sorted(asked) == sorted(ANSWERS)


def test_what_is_a_library_s_own_is_counted(page):
    own = [(name, found) for name, _, found in FOUND if found["whose"] == "library"]
    others = {name for name, found in own if "Error" not in str(found["cases"])}
    assert others == {"equinox", "mlx-lm"}
    assert page.glued["library"] == sum(len(found["cases"]) for _, found in own)


def test_the_page_says_which_vectors_have_changed_since(page):
    old = {
        check["scheme"]
        for _, check in CHECKS
        if check["vectors"] != records.fingerprint(check["scheme"])
    }
    assert set(page.glued["older"]) == old


def test_a_wider_tolerance_forgives_precision_alone():
    for _, check in CHECKS:
        coarse = [found for found in check["found"] if found["whose"] == "precision"]
        nearer = check["failed"] - check["failed_with_float32_angles"]
        assert nearer == sum(len(found["cases"]) for found in coarse)
        assert check["dtype"] == "float32" or check["framework"] != "numpy"


def test_conventions_are_not_shared():
    empty = failing("one of them 0")
    assert empty.pop(("torch", "multi_head")) == "nan for 0"
    assert {name for name, _ in empty} == {"flax", "jax", "mlx"}
    masked = {
        (name, check["adapter"])
        for name, check in CHECKS
        if check["scheme"] == "attention" and not check["settings"]
    }
    assert masked - failing("NaN").keys() == {("xllamacpp", "masked")}
    first = {name for name, _ in failing("causal, decoding one token")}
    assert first == {"torch", "jax"}


def test_by_hand():
    rounded = math.sin(np.float32(1000003) * np.float32(0.1))
    assert abs(rounded - math.sin(1000003 / 10)) > 1e-3


@pytest.mark.parametrize("name", records.LIBRARIES)
def test_adapters_are_short(name):
    path = Path(records.__file__).parent / f"{name.replace('-', '_')}.py"
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 15, node.name
