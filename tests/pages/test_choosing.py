"""Which scheme to use, and which one real models have."""

import json

import numpy as np
import pytest

from posattn import reference
from posattn.reference import alibi_slopes, attention_weights, frequencies
from posattn.schemes import PROPERTIES, SCHEMES
from tests.pages.reading import DOCS
from tests.records import PLANS, RECORDS, ROTARY, ropes


def measured(task, scheme, field):
    """What the record of the trained decoders has in a field, for each seed."""
    path = DOCS / "_records" / "studies" / f"{task}.json"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cells[f"{scheme}, seed {seed}"][field] for seed in range(5)]


def loss(scheme, end):
    """The mean loss in some blocks of a text."""
    return np.array(measured("topics", scheme, "by_position"))[:, end].mean()


def without(mark):
    """The schemes that lack a mark."""
    return {name for name, make in SCHEMES.items() if not PROPERTIES[mark](make)}


def test_the_schemes_to_avoid_are_these():
    assert without("cache") == {"randomized", "dynamic NTK", "LongRoPE"}
    assert without("tiles") == {"CoPE", "stick-breaking"}
    assert without("side") & without("future") == {"none", "stick-breaking"}
    assert "ALiBi" in without("side")
    assert "learned" in without("far")


def test_the_schemes_to_try_first_have_the_marks():
    assert "rotary" not in without("cache") | without("side") | without("future")
    assert "learned" not in without("side") | without("future")
    for name in ("rotary", "sinusoidal"):
        assert SCHEMES[name](6).place != "scores"
    for name in ("rotary", "ALiBi"):
        assert not PROPERTIES["learns"](SCHEMES[name])


def test_loss_and_answers_of_small_decoders_disagree(page):
    far, near = slice(12, 16), slice(2, 4)
    assert 2.6 < loss("rotary", far) / loss("rotary", near) < 3
    for name in ("alibi", "kerple"):
        assert abs(loss(name, far) - loss(name, near)) < 0.03
    for name in ("rotary", "alibi", "kerple"):
        right = measured("stories", name, "right")
        short, long = (sum(run[times] for run in right) for times in ("1", "4"))
        assert long < 0.7 * short
    first = sorted(depth[0] for depth in measured("stories", "alibi", "depth"))
    assert first[1] < 0.03
    assert 0.45 < first[2] < first[4] < 0.55
    twice = slice(6, 8)
    assert loss("partial_rotary", twice) < loss("rotary", twice) - 0.5
    assert page.glued["loss_rotary_2"] == pytest.approx(loss("rotary", twice))


def test_half_of_the_weight_of_alibi_is_near():
    for slope, tokens in ((1 / 2, 2), (1 / 16, 12), (1 / 256, 178)):
        for n in (4096, 8192):
            bias = -slope * np.arange(float(n))[None]
            weights = attention_weights(np.zeros((1, 1)), np.zeros((n, 1)), bias=bias)[0]
            assert (weights.cumsum() < 0.5).sum() + 1 == tokens
            assert weights[10:].sum() == pytest.approx(np.exp(-10 * slope), abs=1e-6)
    assert weights[:1024].sum() == pytest.approx(0.98, abs=0.005)
    for heads in (8, 16, 32):
        assert alibi_slopes(heads).min() == 1 / 256


def test_a_bias_of_the_distance_cannot_tell_who_bites():
    x = np.random.default_rng(0).normal(size=(3, 4))  # dog, bites, man
    bias = -0.5 * abs(np.arange(3)[:, None] - np.arange(3)).astype(float)
    there, back = (attention_weights(y, y, bias=bias) @ y for y in (x, x[::-1]))
    assert np.allclose(there[1], back[1])
    rotated = [reference.rotate(y) for y in (x, x[::-1])]
    there, back = (attention_weights(y, y) @ y for y in rotated)
    assert not np.allclose(there[1], back[1])


def test_most_models_rotate_and_differ_in_layout_and_base(page):
    found = [rope for family in ROTARY for rope in ropes(family)]
    assert len(ROTARY) > 2 * (len(PLANS) - len(ROTARY))
    assert {rope.layout for rope in found} == {"half", "interleaved"}
    assert len({rope.base for rope in found}) > 5
    assert page.glued["rotary_models"] == len(ROTARY)
    assert page.glued["halves"] + page.glued["neighbors"] == len(ROTARY)


def test_rows_with_a_story():
    deepseek = PLANS["DeepSeek-V3"].layers[0]
    assert deepseek.scale == pytest.approx(192**-0.5 * (0.1 * np.log(40) + 1) ** 2)
    assert (deepseek.rope.last, deepseek.rope.rotary_dim) == (True, 64)
    scout = dict(next(iter(ropes("Llama 4, Scout"))).numbers)
    assert scout["low_freq_factor"] == scout["high_freq_factor"]
    assert {layer.chunk for layer in PLANS["Llama 4, Scout"].layers} == {8192, None}
    assert {layer.window for layer in PLANS["ModernBERT"].layers} == {64 + 1, None}
    for family in ("Cohere 2", "Llama 4, Maverick"):
        for layer in PLANS[family].layers:
            assert (layer.kind == "full") == (layer.rope is None)
    unrounded = {
        family
        for family in ROTARY
        if any(dict(rope.numbers).get("truncate") is False for rope in ropes(family))
    }
    assert unrounded == {"gpt-oss"}


def test_layers_of_gemma_3_have_two_bases():
    local, full = PLANS["Gemma 3"].layers[0], PLANS["Gemma 3"].layers[5]
    assert (local.window, local.rope.base, full.rope.base) == (1024, 10000, 1000000)
    assert full.head_dim == full.rope.rotary_dim == 256
    slowed = reference.position_interpolation(256, base=1e6, factor=8.0)
    assert np.allclose(full.rope.frequencies, slowed)
    assert not np.allclose(full.rope.frequencies, frequencies(256, base=1e6))


def test_by_hand():
    turn = 2 * np.pi * 10000 ** (126 / 128)
    assert round(8192 / turn, 2) == 0.15
    assert 2 < 131072 / turn < 3
    assert round(np.log(2) * 256) == 177
    unfinished = [
        (n * frequencies(256, base=base) < 2 * np.pi).sum()
        for base, n in ((1e4, 1024), (1e4, 131072), (1e6, 131072))
    ]
    assert unfinished == [57, 0, 35]
    with pytest.raises(ValueError, match="512"):
        reference.LearnedPositionalEncoding.init(np.random.default_rng(0), 512, 8)(
            np.zeros((513, 8))
        )
    late = reference.dynamic_ntk(64, factor=4.0, length=8193, trained_length=8192)
    assert not np.allclose(late, frequencies(64), rtol=1e-9)
    shaw = reference.ShawRelative.init(np.random.default_rng(0), 16, 64)
    sizes = [a.size for a in vars(shaw).values() if isinstance(a, np.ndarray)]
    assert sum(sizes) == 2 * 33 * 64
    at = np.arange(512)
    bias = reference.T5Bias.init(np.random.default_rng(0), 1)(at, at)[0]
    assert (bias == bias[1, 0]).sum() == 511
    assert RECORDS["Qwen3"]["rope_theta"] == 1000000
