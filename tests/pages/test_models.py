"""What released models use."""

import re
from pathlib import Path

import numpy as np
import pytest

from posattn import reference
from posattn.reference import frequencies
from tests.records import FILES, PLANS, RECORDS, ROTARY, ropes


def test_sentences_count_released_files_only(page):
    assert page.glued["released"] == len(PLANS) >= 80
    assert not any("default" in record["_source"] for record in RECORDS.values())
    assert page.glued["rotary_models"] == sum("rotary" in str(p) for p in PLANS.values())
    assert 2 * page.glued["neighbors"] < len(ROTARY)
    assert page.glued["largest_base"] == max(r.base for f in ROTARY for r in ropes(f))


def test_a_strip_has_a_letter_for_each_layer(page):
    strips = page.torch.strips
    assert {name: len(strip) for name, strip in strips.items()} == {
        name: len(plan.layers) for name, plan in PLANS.items()
    }
    assert strips["Qwen3.5 27B"] == "LLLF" * 16
    assert strips["Llama 4 Scout"] == "WWWN" * 12
    assert set("".join(strips.values())) == set("FNWSLC-")
    assert strips["Mistral 7B v0.1"] == 32 * "W"


def test_each_tick_has_a_rule(page):
    css = Path("docs/_static/book.css").read_text("utf-8")
    assert css.count(":checked) .models li") == len(page.torch.does)


def test_each_model_has_a_page(page):
    for name, record in FILES.items():
        text, family = (
            Path("docs/models", f"{name}.md").read_text("utf-8"),
            record["_family"],
        )
        plan, bases = PLANS[family], {rope.base for rope in ropes(family)}
        letters = "".join(re.findall(r"\[(.+?)\]\{\.layer ", text))
        assert len(letters) == len(plan.layers)
        assert all(key in text for key, _ in plan.defaults)
        assert ("**leaves numbers to its class**" in text) == bool(plan.defaults)
        assert ("**two bases**" in text) == (len(bases) > 1)


def test_rows_with_a_story():
    deepseek = PLANS["DeepSeek-V3"].layers[0]
    assert deepseek.scale == pytest.approx(192**-0.5 * (0.1 * np.log(40) + 1) ** 2)
    assert (deepseek.rope.last, deepseek.rope.rotary_dim) == (True, 64)
    scout = dict(next(iter(ropes("Llama 4 Scout"))).numbers)
    assert scout["low_freq_factor"] == scout["high_freq_factor"]
    assert {layer.chunk for layer in PLANS["Llama 4 Scout"].layers} == {8192, None}
    assert {layer.window for layer in PLANS["ModernBERT base"].layers} == {64 + 1, None}
    numbers = {name: [dict(rope.numbers) for rope in ropes(name)] for name in ROTARY}
    unrounded = {n for n in ROTARY if any(x.get("truncate") is False for x in numbers[n])}
    assert unrounded == {"gpt-oss 20B", "gpt-oss 120B"}


def test_layers_of_gemma_3_have_two_bases():
    local, full = PLANS["Gemma 3 12B"].layers[0], PLANS["Gemma 3 12B"].layers[5]
    assert (local.window, local.rope.base, full.rope.base) == (1024, 10000, 1000000)
    assert full.head_dim == full.rope.rotary_dim == 256
    slowed = reference.position_interpolation(256, base=1e6, factor=8.0)
    assert np.allclose(full.rope.frequencies, slowed)
    unfinished = [
        (n * frequencies(256, base=base) < 2 * np.pi).sum()
        for base, n in ((1e4, 1024), (1e4, 131072), (1e6, 131072))
    ]
    assert unfinished == [57, 0, 35]
