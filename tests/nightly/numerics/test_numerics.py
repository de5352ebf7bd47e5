"""The errors that the book shows: they are measured rightly, and the library still has them."""

import json
import math

import numpy as np
import pytest

from tests.nightly.numerics import tables as page

pytest.importorskip(
    "tests.nightly.numerics.truth", exc_type=ImportError
)  # long doubles of x86

from tests.nightly.numerics import cases, measuring, truth

CASES = {case.name: case for case in cases.cases()}
RECORD = json.loads(page.FILE.read_text(encoding="utf-8"))


def apart(found, recorded, factor, own=False):
    """The errors that are not within a factor of those that are recorded.

    A framework's own kernel adds up in another order on another processor, and so do we, who call it. So
    where it is beside us, ours may move as far from what is recorded as it has moved.
    """
    assert {d: list(c) for d, c in found.items()} == {
        d: list(c) for d, c in recorded.items()
    }
    for dtype, columns in found.items():
        for who, errors in columns.items():
            then = [math.inf if e is None else e for e in recorded[dtype][who]]
            pairs = dict(
                zip(("ours", "theirs"), zip(errors, then, strict=True), strict=False)
            )
            moved = 1.0
            if own and "theirs" in pairs:
                now, was = pairs.pop("theirs")
                moved = 1.0 if now == was else now / was
            for role, (now, was) in pairs.items():
                low, high = min(1, moved) * was / factor, max(1, moved) * was * factor
                if not (now == was or low <= now <= high):
                    yield f"{dtype}, {who}, {role}: {now:.3g}, and recorded {was:.3g}"


@pytest.mark.parametrize("name", CASES)
def test_the_errors_in_the_book_are_those_of_the_library(name):
    length = CASES[name].lengths[0]
    found = measuring.worst(CASES[name], length)
    recorded = RECORD["cases"][name]["errors"][str(length)]
    assert not list(apart(found, recorded, 2, own=CASES[name].peer in cases.OWN.values()))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.blocks])
def test_the_errors_of_far_positions_are_those_of_the_library(name):
    length = CASES[name].lengths[-1]
    found = measuring.worst(CASES[name], length, most=1024)  # of some of them
    assert not list(apart(found, RECORD["cases"][name]["errors"][str(length)], 3))


def test_every_case_is_recorded_at_every_length_in_the_order_of_the_page():
    assert list(RECORD["cases"]) == list(CASES)
    for name, entry in RECORD["cases"].items():
        assert list(entry["errors"]) == [str(n) for n in CASES[name].lengths]
        facts = {key: getattr(CASES[name], key) for key in ("setting", "unit", "peer")}
        assert facts.items() <= entry.items()


# units in the last place


@pytest.mark.parametrize(("got", "want", "dtype", "unit", "error"), [
    (1.0, 1 - 2**-24, "float32", "number", 1),  # below a power of two units are half as large
    (0.0, 2.0**-25, "float16", "number", 0.5),  # no unit is smaller than the smallest number
    ([1.0, 0.0], [1.0, 2**-30], "float32", "row", 2**-7),
    ([1.0, 0.0], [1.0, 2**-30], "float32", "number", 2**23),
    (math.nan, 1.0, "float16", "number", math.inf),
])  # fmt: skip
def test_units_are_those_of_the_right_number(got, want, dtype, unit, error):
    want = np.atleast_1d(np.asarray(want, truth.WIDE))
    assert measuring.units(np.atleast_1d(got), want, dtype, unit) == error


# what is recorded, and how the page shows it


def test_the_tables_of_the_page_are_those_of_the_record():
    assert sorted(name for names in page.VIEWS.values() for name in names) == sorted(CASES)
    for name, lines in page.views().items():
        written = (page.FOLDER / f"{name}.txt").read_text(encoding="utf-8")
        assert "\n".join(lines) in written, "python -m tests.nightly.numerics.tables"
