"""Cases in steps: caches of keys and values, ours and wrong ones."""

import json
from dataclasses import replace

import numpy as np
import pytest

from posattn.__main__ import main
from posattn.conformance import check, load
from posattn.conformance.faults import FAULTS
from posattn.conformance.files import check_results, export
from tests.conftest import TWINS

pytestmark = pytest.mark.usefixtures("unchecked")  # other tests check the annotations

WRONG = {fault.name: fault.make for fault in FAULTS if "cache" in fault.schemes}
TRIMMED = {"do": "trim", "n": 2}
# a case that shows each fault
SHOWN = {
    "window_ignored": "a ring that wraps, one token at a time",
    "window_not_in_decoding": "a prompt longer than the window",
    "window_one_too_large": "several tokens where the ring wraps",
    "window_one_too_large_in_decoding": "large positions, up to 2**20, in a ring",
    "window_one_too_small": "a ring that wraps, one token at a time",
    "first_tokens_evicted": "first tokens kept as the ring wraps",
    "first_tokens_in_the_window": "first tokens kept, several at once",
    "ring_rolled_the_wrong_way": "a ring that wraps, one token at a time",
    "ring_rolled_too_early": "a ring that wraps, one token at a time",
    "pushed_out_too_early": "several tokens where the ring wraps",
    "wrapped_ring_trimmed": "rolled back after the ring has wrapped",
    "wrapped_ring_trimmed_by_counters": "rolled back after the ring has wrapped",
    "trimmed_one_too_many": "speculative tokens rolled back",
    "trimmed_one_too_few": "a prefix that another text reuses",
    "trim_ignored": "rolled back before the ring wraps",
    "reorder_ignored": "beams reordered",
    "values_not_reordered": "beams reordered in a ring that has wrapped",
    "shifted_keys_not_rotated": "a context shifted, whose keys rotate",
    "first_tokens_shifted": "a context shifted, its first tokens kept",
    "queries_from_zero": "keys that rotate",
    "keys_rotated_twice": "keys that rotate",
    "positions_of_slots": "a ring whose keys rotate",
    "positions_by_count": "a gap in the positions",
    "mask_from_the_top_left": "a prompt in pieces",
    "padding_seen": "rows of different lengths",
}


def ours(column):
    """A column's own cache, used as its layer does; it is filled anew where positions move."""

    class Ours:
        def __init__(self, window=None, rotate=False, left_padding=None, max_length=32):
            self.window, self.rotate, self.length = window, rotate, max_length
            self.cache = None

        def attend(self, query, key, value, positions):
            self.cache = self.cache or self.room(key)
            self.cache, seen = self.cache.append(key, value, positions)
            key, mask = seen.key, seen.mask(positions)[:, None]
            if self.rotate:
                query = column.rotate(query, positions[:, None])
                key = column.rotate(key, seen.positions[:, None])
            return column.scaled_dot_product_attention(query, key, seen.value, mask=mask)

        def room(self, key):
            dtype = {} if column.name == "reference" else {"dtype": key.dtype}
            sizes = key.shape[:1], key.shape[1], self.length, key.shape[-1]
            return column.KVCache.init(*sizes, window=self.window, **dtype)

        def trim(self, n):
            end = int(np.max(column.numpy(self.cache.next_positions(1))))
            if end > (self.window or self.length):
                raise NotImplementedError
            self.move(lambda where: np.where(where < end - n, where, -1))

        def shift(self, n):
            self.move(lambda where: np.where((where < n) | (where > 99), -1, where - n))

        def move(self, change):
            old, where = self.cache, change(column.numpy(self.cache.positions))
            self.cache, _ = self.room(old.key).append(
                old.key, old.value, column.positions(where)
            )

        def reorder(self, rows):
            names = ("key", "value", "positions")
            moved = {name: getattr(self.cache, name)[rows] for name in names}
            self.cache = replace(self.cache, **moved)

    return Ours


@pytest.mark.parametrize("twin", TWINS[0::2], ids=str)
def test_the_cache_of_torch_passes(twin):
    report = check(ours(twin), "cache", framework="torch", dtype=twin.dtype)
    assert not report.failures, str(report)
    away = {name for name in report.skipped if "first tokens" not in name}
    assert away == {"rolled back after the ring has wrapped"}


def test_the_cache_of_jax_passes_some_cases():
    report = check(ours(TWINS[3]), "cache", framework="jax", only="several tokens where")
    assert not report.failures, str(report)
    assert len(report.runs) == 1


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_cache_is_named_by_its_case(name):
    report = check(WRONG[name], "cache", framework="numpy", only=SHOWN[name])
    assert [cause.name for cause in report.causes] == [name]


def test_what_a_cache_lacks_is_skipped_and_said():
    class Bare:
        def attend(self, query, key, value, positions):
            return value

        def trim(self, n):
            raise NotImplementedError

    report = check(Bare, "cache", framework="numpy", settings={"window": None})
    assert {"Bare cannot trim here", "Bare has no reorder"} < set(report.skipped.values())
    assert len(report.runs) + len(report.skipped) == 13


def test_steps_are_exported_and_their_results_checked(tmp_path):
    vectors, results = load("cache"), {}
    export(vectors, tmp_path / "in.npz", "float32")
    with np.load(tmp_path / "in.npz") as given:
        key = vectors["cases"][7]["arguments"][0][3]["key"]
        assert np.array_equal(given["7/steps/3/key"], key)
        assert json.loads(given["about"].tobytes())["cases"][7]["steps"][2] == TRIMMED
    for k, case in enumerate(vectors["cases"]):
        results |= {f"{k}/{j}": x for j, x in enumerate(case["expected"])}
    np.savez(tmp_path / "out.npz", **results)
    assert not check_results(tmp_path / "out.npz", "cache").failures


def test_the_command_shows_how_to_write_one(capsys):
    assert main(["schemes", "cache"]) == 0
    assert "def attend(self, query, key, value, positions)" in capsys.readouterr().out
