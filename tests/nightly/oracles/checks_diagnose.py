"""`diagnose` beside transformers: models agree with their own configuration, encoders too.

That it names what was changed is held by tests/library/test_diagnosis.py.
"""

import pytest
import torch
import transformers

from posattn.conformance.diagnosis import diagnose
from tests.nightly.oracles.checks_from_config import DEFAULT, model_of
from tests.nightly.oracles.checks_latent import SMALL, YARN

FAMILIES = ["Llama", "Qwen3", "Gemma 3", "gpt-oss", "Gemma 2", "Phi-3", "GPT-NeoX", "BLOOM"]


@pytest.mark.parametrize("family", FAMILIES)
def test_all_layers_agree(family):
    model = model_of(family)
    found = diagnose(model, model.config)
    assert [line.agrees for line in found.findings] == [True] * len(found.findings)


MLA = SMALL | YARN | {
    "vocab_size": 40, "intermediate_size": 48, "num_hidden_layers": 2, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
}  # fmt: skip
INDEXER = {"index_topk": 2048, "index_n_heads": 2, "index_head_dim": 8}
STACKS = {"vocab_size": 40, "d_model": 32, "pad_token_id": 0, "decoder_start_token_id": 0}
T5 = STACKS | {"d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
SIDES = ("encoder", "decoder")
HEADS = {f"{side}_attention_heads": 4 for side in SIDES}
MARIAN = STACKS | HEADS | {f"{side}_layers": 2 for side in SIDES}
OTHER_SIZES = {
    name: MLA[name]
    for name in ("hidden_size", "num_attention_heads", "vocab_size", "intermediate_size")
}
JAMBA = OTHER_SIZES | {
    "num_key_value_heads": 2, "num_hidden_layers": 2, "num_experts": 2, "mamba_d_state": 4,
    "attn_layer_period": 2, "attn_layer_offset": 1,
}  # fmt: skip
QWEN = OTHER_SIZES | {
    "num_hidden_layers": 4, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16, "num_key_value_heads": 2, "rope_parameters":
        DEFAULT | {"partial_rotary_factor": 0.75, "mrope_section": [1, 1, 1]},
}  # fmt: skip
OTHERS = {
    "DeepseekV2": MLA | {"topk_method": "greedy"}, "DeepseekV3": MLA, "DeepseekV32": MLA | INDEXER,
    "T5": T5, "MT5": T5, "Marian": MARIAN, "Jamba": JAMBA, "Qwen3_5MoeText": QWEN,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_has_other_weights_or_stacks_agrees(name):
    config = getattr(transformers, f"{name}Config")(**OTHERS[name])
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn_like(parameter) * ("att" in name.lower())
    found = diagnose(model, config)
    assert found.agrees
    assert any(line.agrees for line in found.findings)


ENCODER = {
    "vocab_size": 40, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48,
    "num_hidden_layers": 4, "pad_token_id": 0, "attn_implementation": "eager",
}  # fmt: skip
ENCODERS = {
    "Esm": {"position_embedding_type": "rotary"},
    "ModernBert": {"local_attention": 6},
}


@pytest.mark.parametrize("name", ENCODERS)
def test_all_layers_of_an_encoder_agree(name):
    config = getattr(transformers, f"{name}Config")(**ENCODER | ENCODERS[name])
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    tokens = torch.randint(2, 40, (2, 13), generator=torch.Generator().manual_seed(1))
    assert diagnose(model, config, tokens).agrees
