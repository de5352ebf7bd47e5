"""Questions people ask: the overview, and a page for each, which all share this file."""

import re

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp
from torch.nn.attention.bias import causal_lower_right

from posattn import reference
from posattn.configs import plan
from posattn.reference import frequencies, rotate
from posattn.torch import ALiBi, MultiHeadAttention, flex
from tests.nightly.studies.records import load
from tests.pages.conftest import FOR_EVERY_PAGE, built
from tests.pages.reading import QUESTIONS, Page
from tests.records import PLANS, RECORDS, ropes

Q, K = np.random.default_rng(7).normal(size=(2, 12, 16))


@pytest.fixture(scope="module", params=QUESTIONS, ids=lambda path: path.stem)
def question(request):
    return built(Page(request.param))


@pytest.mark.parametrize("holds", FOR_EVERY_PAGE)
def test_what_holds_for_every_page(question, holds):
    holds(question)


@pytest.mark.parametrize("path", QUESTIONS, ids=lambda path: path.stem)
def test_a_question_is_answered_on_a_screen(path):
    text = Page(path).text
    assert re.search(r"^    keywords: .*, ", text, re.MULTILINE)
    _, answer = re.split(r"^# .*\?(?: \(.*\))?$", text, maxsplit=1, flags=re.MULTILINE)
    assert re.search(r"^\*\*", answer, re.MULTILINE)
    assert re.search(r"^Chapter: .*\{(doc|ref)\}", answer, re.MULTILINE)
    assert len(answer.split("*Asked in:*")[0].split()) < 500  # with its code


def test_the_overview_links_every_question(page):
    names = {f"questions/{path.stem}" for path in QUESTIONS}
    listed = re.findall(r"^- \{doc\}`/(questions/\S+)` \S", page.text, re.MULTILINE)
    assert set(listed) == names == set(re.findall(r"^questions/\S+$", page.text, re.M))


def test_models_are_as_the_answers_say():
    assert {rope.layout for rope in ropes("Llama 3 8B")} == {"half"}
    for family in ("Phi-2", "Qwen3-Next 80B-A3B"):
        (rope,) = ropes(family)
        assert 2 * len(rope.frequencies) < max(la.head_dim for la in PLANS[family].layers)
    (still,) = (rope for rope in ropes("Gemma 4 26B-A4B") if 0 in rope.frequencies)
    assert len(still.frequencies) == 512 / 2
    assert np.mean(np.array(still.frequencies) > 0) == 0.25
    norms = {name: each.layers[0].query_norm for name, each in PLANS.items()}
    after = [name for name, norm in norms.items() if norm is not None and norm.after]
    assert after == ["Llama 4 Scout"]  # the others normalize first
    assert not norms["Llama 4 Scout"].learned
    assert PLANS["Llama 4 Scout"].layers[0].chunk == 8192
    without = [layer.rope is None for layer in PLANS["SmolLM3 3B"].layers]
    assert without == [number % 4 == 3 for number in range(len(without))]


def test_a_norm_and_a_rotation_commute_within_pairs():
    by_pair, by_entry = np.arange(1.0, 9).repeat(2), np.arange(16.0)
    assert np.allclose(rotate(by_pair * Q), by_pair * rotate(Q))
    assert not np.allclose(rotate(by_entry * Q), by_entry * rotate(Q))
    made = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 16, 1, rotate=reference.Rotary(), query_norm=np.sign
    )
    q, k = np.sign(Q @ made.query_weight), Q @ made.key_weight
    expected = reference.attention_weights(rotate(q), rotate(k))
    assert np.allclose(made.attention_weights(Q), expected)


def test_a_similar_key_wins_as_the_cosines_say():
    q, other = np.random.default_rng(0).normal(size=(2, 20_000, 1, 128))
    rotated = rotate(q, np.array([1000]))
    similar, random = ((rotated * key).sum((1, 2)).mean() for key in (q, other))
    cosines = 2 * np.cos(1000 * frequencies(128)).sum()
    assert similar == pytest.approx(cosines, rel=0.02)
    assert abs(random) < 0.05 * cosines


def test_a_wrong_trained_length_slows_too_few_pairs():
    plain = frequencies(128, base=1e6)
    slowed = [
        np.sum(
            reference.yarn(128, base=1e6, factor=4.0, trained_length=n)[0] < 0.999 * plain
        )
        for n in (32768, 131072)
    ]
    assert slowed[1] < slowed[0] < 64


def test_true_hides_in_layers_of_pytorch():
    layer = torch.nn.MultiheadAttention(1, 1, bias=False, batch_first=True, kdim=2, vdim=1)
    for weight in layer.requires_grad_(False).parameters():
        weight.fill_(1)
    values, mask = (
        torch.tensor([[[10.0], [20], [30]]]),
        torch.tensor([[True, False, False]]),
    )
    out, _ = layer(torch.ones(1, 1, 1), torch.ones(1, 3, 2), values, attn_mask=mask)
    assert out.item() == pytest.approx(25)
    encoder = torch.nn.TransformerEncoderLayer(4, 1, dropout=0.0, batch_first=True).eval()
    x, future = torch.randn(1, 3, 4), torch.ones(3, 3, dtype=torch.bool).triu(1)
    assert torch.allclose(encoder(x, src_mask=future)[:, :1], encoder(x[:, :1]), atol=1e-5)


def test_the_other_corner_sees_every_key():
    one, keys = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 3, 1)
    values = torch.tensor([[[[10.0], [20], [30]]]])
    sdpa = torch.nn.functional.scaled_dot_product_attention
    assert sdpa(one, keys, values, is_causal=True).item() == 10
    assert sdpa(one, keys, values, attn_mask=causal_lower_right(1, 3)).item() == 20
    assert reference.causal_mask(1, 3).all()


def test_frameworks_differ_on_rows_without_a_key():
    x, nothing = torch.ones(1, 5, 4), torch.zeros(5, 5, dtype=torch.bool)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    assert not sdpa(x, x, x, attn_mask=nothing).any()
    layer = torch.nn.MultiheadAttention(4, 1, batch_first=True)
    assert layer(x, x, x, attn_mask=~nothing, need_weights=True)[0].isnan().all()
    ones, values = jnp.ones((1, 5, 1, 1)), jnp.arange(5.0)[None, :, None, None]
    hidden = jnp.zeros((1, 1, 5, 5), bool)
    out = jax.nn.dot_product_attention(ones, ones, values, mask=hidden)
    assert np.allclose(out, 2)


def test_a_window_of_transformers_counts_the_token():
    small = RECORDS["Mistral 7B v0.1"] | {"sliding_window": 4}
    window = plan(small).layers[0].window
    seen = reference.window_mask(12, 12, window) & reference.causal_mask(12)
    back = np.arange(12)[:, None] - np.arange(12)
    assert np.array_equal(seen, (back >= 0) & (back <= 4 - 1))


def test_packing_and_padding_need_a_mask_only():
    made = reference.MultiHeadAttention.init(
        np.random.default_rng(0), 16, 2, rotate=reference.Rotary()
    )
    same = np.arange(12)[:, None] // 6 == np.arange(12) // 6
    packed = made(Q, causal=True, mask=same)
    assert np.allclose(packed[6:], made(Q[6:], causal=True))
    attention_mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    position_ids = (attention_mask.cumsum(-1) - 1).clip(0)[0].numpy()
    padded = {"query_positions": position_ids, "mask": attention_mask.bool().numpy()}
    real = made(Q[:7], causal=True, **padded)[3:]
    assert np.allclose(real, made(Q[3:7], causal=True))


def test_an_image_takes_the_positions_of_its_larger_side():
    places, _ = reference.mrope_positions([3, (1, 20, 30), 1])
    assert len(places) == 3 + 600 + 1
    assert places[-1].tolist() == [3 + 30] * 3


def test_a_rounded_cosine_is_off_by_half_of_the_last_of_8_bits():
    cosines = torch.linspace(-1, 1, 10_001, dtype=torch.float64)
    error = (cosines.bfloat16().double() - cosines).abs().max()
    assert error == pytest.approx(2.0 ** -(8 + 1), rel=0.05)


def test_rounding_matters_to_a_released_model_in_the_angles_only():
    found = {name.split(",")[0]: cell for name, cell in load("real")["cells"].items()}
    angles, cache, single = (
        [np.sum(found[f"rounding: {name}"][each]) for each in ("changed", "rise")]
        for name in ("angles in bfloat16", "cache in bfloat16", "angles in float32")
    )
    assert single[0] == 0 < cache[0] < 0.01 * 8192 < 4096 < angles[0]
    assert abs(single[1]) < 1e-3 < abs(cache[1]) < 0.1 < 64 < angles[1]
    assert found["rounding: cache in bfloat16"]["gaps"][0] < 0.25


def test_flex_attention_runs_a_bias():
    x = torch.from_numpy(Q).float()
    layer = MultiHeadAttention(16, 4, bias=ALiBi(4)).requires_grad_(False)
    fused = MultiHeadAttention(16, 4, bias=ALiBi(4), attention=flex.attention)
    fused.requires_grad_(False).load_state_dict(layer.state_dict())
    assert torch.allclose(fused(x, causal=True), layer(x, causal=True), atol=1e-5)
