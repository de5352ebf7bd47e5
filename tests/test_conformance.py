"""The vectors are what the reference computes, and every column repeats them."""

import json

import numpy as np
import pytest

from posattn.conformance import generate
from posattn.conformance.vectors import decode, load, names
from tests.conftest import BOUND, error

CASES = [(name, case) for name in names() for case in load(name)["cases"]]
ON_CASES = pytest.mark.parametrize(
    ("name", "case"), CASES, ids=[f"{name}: {case['name']}" for name, case in CASES]
)


def assert_same(got, want):
    """Compare two things made of dicts, lists, arrays and plain values; arrays up to rounding."""
    assert type(got) is type(want)
    if isinstance(got, dict):
        assert list(got) == list(want)
        got, want = list(got.values()), list(want.values())
    if isinstance(got, list):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
    elif isinstance(got, np.ndarray):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert np.allclose(got, want, rtol=1e-13, atol=1e-13, equal_nan=True)
    else:
        assert got == want


def test_every_set_is_generated():
    assert names() == sorted(generate.SETS)


@pytest.mark.parametrize("name", generate.SETS)
def test_the_files_hold_what_the_reference_computes(name):
    made = json.loads(generate.to_json(generate.make(name)), object_hook=decode)
    assert_same(load(name), made)


@ON_CASES
def test_columns_repeat_the_vectors(precise_twin, name, case):
    function = getattr(precise_twin, load(name)["function"])
    convert = precise_twin.positions if name == "sinusoidal" else precise_twin.array
    arguments = [convert(x) if isinstance(x, np.ndarray) else x for x in case["arguments"]]
    keywords = {
        key: convert(x) if isinstance(x, np.ndarray) else x
        for key, x in case["keywords"].items()
    }
    if name == "sinusoidal":
        keywords["dtype"] = precise_twin.array(0.0).dtype
    got = precise_twin.numpy(function(*arguments, **keywords))
    assert error(got, case["expected"]) <= BOUND[precise_twin.dtype]


def test_a_name_that_does_not_exist_is_told_with_those_that_do():
    with pytest.raises(ValueError, match=r"name must be one of attention, .*got 'sine'"):
        load("sine")


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(TypeError, match="value must be an array, got set"):
        generate.encode({1})


def test_the_generator_writes_all_files(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    generate.main()
    assert sorted(path.stem for path in tmp_path.iterdir()) == names()
