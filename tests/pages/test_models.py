"""What released models use."""

import numpy as np
import pytest

from posattn import reference
from posattn.reference import frequencies
from tests.records import PLANS, RECORDS, ROTARY, ropes


def released():
    """The families whose record is no class's defaults."""
    filled = ("the defaults of", "the rest as")
    return [
        family
        for family, record in RECORDS.items()
        if not any(words in record["_source"] for words in filled)
    ]


def test_sentences_count_released_files_only(page):
    files = released()
    turning = [family for family in ROTARY if family in files]
    found = [rope for family in turning for rope in ropes(family)]
    assert page.glued["released"] == len(files) == len(PLANS) - page.glued["defaults"]
    assert page.glued["rotary_models"] == len(turning)
    assert page.glued["halves"] + page.glued["neighbors"] == len(turning)
    assert page.glued["largest_base"] == max(rope.base for rope in found)
    unrotated = {
        family
        for family in turning
        for layer in PLANS[family].layers
        if layer.kind == "full" and layer.rope is None
    }
    assert unrotated == {"EXAONE 4", "Llama 4, Maverick", "Llama 4, Scout"}


def test_rows_with_a_story():
    deepseek = PLANS["DeepSeek-V3"].layers[0]
    assert deepseek.scale == pytest.approx(192**-0.5 * (0.1 * np.log(40) + 1) ** 2)
    assert (deepseek.rope.last, deepseek.rope.rotary_dim) == (True, 64)
    scout = dict(next(iter(ropes("Llama 4, Scout"))).numbers)
    assert scout["low_freq_factor"] == scout["high_freq_factor"]
    assert {layer.chunk for layer in PLANS["Llama 4, Scout"].layers} == {8192, None}
    assert {layer.window for layer in PLANS["ModernBERT"].layers} == {64 + 1, None}
    at = np.arange(300)
    seen = abs(at[:, None] - at) < 64 + 1
    assert seen.sum(axis=1).max() == 129
    unrounded = {
        family
        for family in ROTARY
        if any(dict(rope.numbers).get("truncate") is False for rope in ropes(family))
    }
    assert unrounded == {"gpt-oss"}
    assert RECORDS["Qwen3"]["rope_theta"] == 1000000


def test_layers_of_gemma_3_have_two_bases():
    local, full = PLANS["Gemma 3"].layers[0], PLANS["Gemma 3"].layers[5]
    assert (local.window, local.rope.base, full.rope.base) == (1024, 10000, 1000000)
    assert full.head_dim == full.rope.rotary_dim == 256
    slowed = reference.position_interpolation(256, base=1e6, factor=8.0)
    assert np.allclose(full.rope.frequencies, slowed)
    unfinished = [
        (n * frequencies(256, base=base) < 2 * np.pi).sum()
        for base, n in ((1e4, 1024), (1e4, 131072), (1e6, 131072))
    ]
    assert unfinished == [57, 0, 35]
