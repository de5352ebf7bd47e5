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
SHOWN = {  # by a case alone, the faults that have their names from it
    "a prompt in pieces": "mask_from_the_top_left",
    "a ring that wraps, one token at": "window_ignored window_one_too_small ring_rolled_too_early",
    "a prompt longer than the window": "window_not_in_decoding values_stay_in_their_slots",
    "several tokens where the ring wraps": "window_one_too_large pushed_out_too_early",
    "speculative tokens rolled back": "trimmed_one_too_many",
    "rolled back before the ring wraps": "trim_ignored padding_of_a_chunk_of_128_kept",
    "rolled back after the ring has": "wrapped_ring_trimmed wrapped_ring_trimmed_by_counters",
    "a prefix that another text reuses": "trimmed_one_too_few",
    "beams reordered": "reorder_ignored values_not_reordered",
    "a context shifted, whose keys rotate": "shifted_keys_not_rotated",
    "a context shifted, its first tokens kept": "first_tokens_shifted",
    "first tokens kept as the ring wraps": "first_tokens_evicted",
    "first tokens kept, several at once": "first_tokens_in_the_window",
    "keys that rotate": "queries_from_zero keys_rotated_twice",
    "a ring whose keys rotate": "positions_of_slots ring_rolled_the_wrong_way",
    "large positions, up to 2**20, in a ring": "window_one_too_large_in_decoding",
    "a gap in the positions": "positions_by_count padding_of_a_chunk_of_8_kept",
    "positions that repeat": "one_token_per_position",
    "positions that leave a gap": "empty_slots_seen",
    "rows of different lengths": " ".join(
        name
        for name in WRONG
        if "padding" in name and "chunk_of_8" not in name and "128" not in name
    ),
}
PAIRS = [(case, name) for case, names in SHOWN.items() for name in names.split()]


def ours(column):
    """A column's own cache, used as its layer uses it."""

    class Ours:
        def __init__(self, window=None, rotate=False, left_padding=None, max_length=32):
            self.window, self.rotate, self.length = window, rotate, max_length
            self.cache = None

        def attend(self, query, key, value, positions):
            if self.cache is None:
                sizes = key.shape[:1], key.shape[1], self.length, key.shape[-1]
                options = {"window": self.window, "dtype": key.dtype}
                self.cache = column.KVCache.init(*sizes, **options)
            self.cache, seen = self.cache.append(key, value, positions)
            key, mask = seen.key, seen.mask(positions)[:, None]
            if self.rotate:
                query = column.rotate(query, positions[:, None])
                key = column.rotate(key, seen.positions[:, None])
            return column.scaled_dot_product_attention(query, key, seen.value, mask=mask)

        def trim(self, n):
            try:
                self.cache = self.cache.trim(n)
            except ValueError:
                raise NotImplementedError from None

        def reorder(self, rows):
            moved = {n: getattr(self.cache, n)[rows] for n in ("key", "value", "positions")}
            self.cache = replace(self.cache, **moved)

    return Ours


@pytest.mark.parametrize("twin", [*TWINS[0::2], TWINS[3]], ids=str)
def test_our_cache_passes(twin):
    few = (
        "several tokens where" if twin.name == "jax" else ""
    )  # what it compiles takes time
    report = check(ours(twin), "cache", framework=twin.name, dtype=twin.dtype, only=few)
    assert not report.failures, str(report)
    lacks = {reason.rpartition(" ")[2] for reason in report.skipped.values()}
    assert lacks == (set() if few else {"keep", "shift", "here"})


@pytest.mark.parametrize(("case", "name"), PAIRS)
def test_a_case_names_the_cause(case, name):
    report = check(WRONG[name], "cache", framework="numpy", only=case)
    assert [cause.name for cause in report.causes] == [name]
    assert {other for _, other in PAIRS} == {*WRONG}


def test_what_a_cache_lacks_is_skipped_and_said():
    class Bare:
        def attend(self, query, key, value, positions):
            return value

        def trim(self, n):
            raise NotImplementedError

    report = check(Bare, "cache", framework="numpy", settings={"window": None})
    assert {"Bare cannot trim here", "Bare has no reorder"} < set(report.skipped.values())
    assert len(report.runs) + len(report.skipped) == 15


def test_steps_are_exported_and_their_results_checked(tmp_path):
    vectors, results = load("cache"), {}
    export(vectors, tmp_path / "in.npz", "float32")
    with np.load(tmp_path / "in.npz") as given:
        key = vectors["cases"][7]["arguments"][0][3]["key"]
        assert np.array_equal(given["7/steps/3/key"], key)
        steps = json.loads(given["about"].tobytes())["cases"][7]["steps"]
    assert steps[2] == {"do": "trim", "n": 2}
    for k, case in enumerate(vectors["cases"]):
        results |= {f"{k}/{j}": x for j, x in enumerate(case["expected"])}
    np.savez(tmp_path / "out.npz", **results)
    assert not check_results(tmp_path / "out.npz", "cache").failures


def test_the_command_shows_how_to_write_one(capsys):
    assert main(["schemes", "cache"]) == 0
    assert "def attend(self, query, key, value, positions)" in capsys.readouterr().out


@pytest.mark.parametrize("twin", TWINS[0::2], ids=str)
def test_our_state_passes_from_call_to_call(twin):
    class Ours:
        def __init__(self, left_padding=None):
            self.state = None

        def attend(self, *tokens):
            *tokens, positions = tokens
            options = {"state": self.state, "mask": positions >= 0}
            output, self.state = twin.gated_delta(*tokens, **options)
            return output

        def reorder(self, rows):
            self.state = self.state[rows]

    with twin.mode():
        report = check(Ours, "state", framework=twin.name, dtype=twin.dtype)
    assert not report.failures, str(report)
    assert set(report.skipped.values()) == {"Ours has no trim"}
