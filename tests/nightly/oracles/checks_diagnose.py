"""`diagnose` beside transformers: models agree with their own configuration, and not with a changed one."""

import pytest
import torch

from posattn.conformance.diagnosis import diagnose
from tests.nightly.oracles.checks_from_config import ENCODERS, encoder_of, model_of

FAMILIES = ["Llama", "Qwen3", "Gemma 3", "gpt-oss", "Gemma 2", "Phi-3", "GPT-NeoX", "BLOOM"]


def changed(model, **values):
    """The configuration of a model with other values; a dictionary goes into the one that is there."""
    config = model.config.to_dict()
    for name, value in values.items():
        old = config[name]
        config[name] = old | value if isinstance(value, dict) else value
    return config


@pytest.mark.parametrize("family", FAMILIES)
def test_all_layers_agree(family):
    model = model_of(family)
    found = diagnose(model, model.config)
    assert [line.agrees for line in found.findings] == [True] * len(found.findings)


TURNED = ["full_attention"] + ["sliding_attention"] * 5
CHANGES = [
    ("Llama", {"rope_parameters": {"rope_theta": 1e4}}, "rope_theta", "base is 500000"),
    ("Qwen3", {"rope_parameters": {"rope_theta": 1e6}}, "rope_theta", "base is 500000"),
    ("Gemma 3", {"sliding_window": 7}, "sliding_window", "window is 4"),
    ("Gemma 3", {"sliding_window": 5}, "sliding_window", "window is one too small"),
    ("Gemma 3", {"query_pre_attn_scalar": 8}, "query_pre_attn_scalar", "root of 12"),
    ("Gemma 3", {"layer_types": TURNED}, "layer_types", "says of layer 1, which is sliding"),
    ("gpt-oss", {"sliding_window": 3}, "sliding_window", "window is one too large"),
    ("gpt-oss", {"rope_parameters": {"rope_theta": 15e4}}, "rope_parameters", "base is 10000"),
    ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 8.0}}, "rope_scaling", "is ignored"),
    ("Gemma 2", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping", "cap is 20"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "values", "key", "sentence"), CHANGES)
def test_the_key_that_was_changed_is_named(family, values, key, sentence):
    more = {"attn_logit_softcapping": 20.0} if family == "Gemma 2" else {}
    model = model_of(family, **more)
    found = diagnose(model, changed(model, **values))
    assert found.first is not None
    wrong = found.findings[found.first]
    assert key in wrong.keys
    assert sentence is None or any(sentence in cause for cause in wrong.causes)


@pytest.mark.parametrize("family", ENCODERS)
def test_all_layers_of_an_encoder_agree(family):
    model = encoder_of(family)
    tokens = torch.randint(2, 40, (2, 13), generator=torch.Generator().manual_seed(1))
    assert diagnose(model, model.config, tokens).agrees
