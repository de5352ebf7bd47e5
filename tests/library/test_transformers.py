"""What transformers' layers call: arguments in its words, results in its shapes. Models: `nox -s oracles`."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

import posattn.torch as ours
from posattn.torch import transformers as bridge

N, HEADS, KV_HEADS, WIDTH = 6, 4, 2, 8
LAYER = SimpleNamespace(is_causal=True)


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def heads(n_q=N, n_k=N):
    """Queries, keys and values of two texts."""
    return (
        drawn(1, 2, HEADS, n_q, WIDTH),
        drawn(2, 2, KV_HEADS, n_k, WIDTH),
        drawn(3, 2, KV_HEADS, n_k, WIDTH),
    )


def forwarded(arrays, mask=None, layer=LAYER, **options):
    """What a layer gets, with the heads before the tokens as we have them."""
    called = bridge.forward(ours.scaled_dot_product_attention)
    out, weights = called(layer, *arrays, mask, **options)
    assert weights is None
    assert out.is_contiguous()
    return out.transpose(1, 2)


def test_without_a_mask_a_text_is_causal():
    want = ours.scaled_dot_product_attention(*heads(), causal=True, scale=0.5)
    got = forwarded(heads(), scaling=0.5, sliding_window=3, position_ids=None)
    assert got.equal(want)


def test_a_layer_or_a_call_may_not_be_causal():
    want = ours.scaled_dot_product_attention(*heads())
    assert forwarded(heads(), layer=SimpleNamespace(is_causal=False)).equal(want)
    assert forwarded(heads(), is_causal=False).equal(want)


def test_one_query_sees_the_whole_cache():
    want = ours.scaled_dot_product_attention(*heads(1))
    assert forwarded(heads(1)).equal(want)


def test_the_empty_end_of_a_cache_is_left_out():
    query, key, value = heads(4)
    bias = drawn(4, 1, HEADS, 4, N)
    seen = key[:, :, :4], value[:, :, :4]
    want = ours.scaled_dot_product_attention(query, *seen, causal=True)
    assert forwarded((query, key, value)).equal(want)
    want = ours.scaled_dot_product_attention(query, *seen, causal=True, bias=bias[..., :4])
    assert forwarded((query, key, value), position_bias=bias).equal(want)


def test_a_mask_of_truth_values_hides_and_one_of_numbers_is_added():
    seen = drawn(5, 2, 1, N, N) > 0
    want = ours.scaled_dot_product_attention(*heads(), mask=seen)
    assert forwarded(heads(), seen).equal(want)
    added = torch.zeros(2, 1, N, N).masked_fill(~seen, torch.finfo(torch.float32).min)
    some = seen.any(-1, keepdim=True)  # a row that sees nothing has no mean
    torch.testing.assert_close(forwarded(heads(), added) * some, want * some)


def test_a_cap_sinks_and_a_bias_are_passed_on():
    options = {"soft_cap": 0.5, "sinks": drawn(6, HEADS), "bias": drawn(7, HEADS, N, N)}
    want = ours.scaled_dot_product_attention(*heads(), causal=True, **options)
    named = {"softcap": "soft_cap", "s_aux": "sinks", "position_bias": "bias"}
    got = forwarded(heads(), **{theirs: options[own] for theirs, own in named.items()})
    assert got.equal(want)


def test_dropout_draws_from_pytorchs_own_source():
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(forwarded(heads(), dropout=0.5))
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])


@pytest.fixture
def transformers(monkeypatch):
    """What is asked of transformers, which need not be installed."""
    found = {}

    def interface(kind):
        registered = lambda name, function: found.update({(kind, name): function})  # noqa: E731
        return SimpleNamespace(register=registered)

    package, masks = ModuleType("transformers"), ModuleType("transformers.masking_utils")
    package.AttentionInterface = interface("attention")
    package.AttentionMaskInterface = interface("mask")
    masks.sdpa_mask = package.masking_utils = masks
    monkeypatch.setitem(sys.modules, "transformers", package)
    monkeypatch.setitem(sys.modules, "transformers.masking_utils", masks)
    return found


def test_a_call_registers_attention_and_masks(transformers):
    called = []

    def attention(query, key, value, **options):
        called.append(options)
        return query

    bridge.register()
    bridge.register("mine", attention=attention)
    names = ["posattn", "mine"]
    assert list(transformers) == [(k, n) for n in names for k in ("attention", "mask")]
    out, _ = transformers["attention", "posattn"](LAYER, *heads(), None)
    assert out.shape == (2, N, HEADS, WIDTH)
    query, key, value = heads()
    out, _ = transformers["attention", "mine"](LAYER, query, key, value, None)
    assert out.equal(query.transpose(1, 2))
    assert [options["causal"] for options in called] == [True]


def test_what_cannot_be_registered_is_refused(unchecked):
    with pytest.raises(TypeError, match="name must be a string, got int"):
        bridge.register(3)
    with pytest.raises(TypeError, match="attention must be a function, got str"):
        bridge.register(attention="eager")
