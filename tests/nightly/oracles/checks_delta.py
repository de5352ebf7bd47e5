"""Layers with the delta rule beside those of transformers: small keys, gradients (`nox -s oracles`).

Prompts with padding, chunks, steps and packed documents are those of checks_decoders.py; GLM-5-Next's
stand here, since no Decoder has its layers.
"""

from importlib import import_module

import pytest
import torch
import transformers

from posattn import torch as torch_column
from tests.nightly.oracles.checks_from_config import distance

AGREE = 2e-6  # in float32, of the largest entry
N, DIM = 75, 32
SIZES = {
    "hidden_size": DIM,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
KIMI = LATENT | {"linear_head_dim": 8, "linear_num_heads": 4}
GLM = KIMI | {"qk_rope_head_dim": 0, "q_lora_rank": 12}
CASES = {
    "Qwen3-Next": ("qwen3_next", "Qwen3NextConfig", "Qwen3NextGatedDeltaNet", LINEAR),
    "Qwen3.5": ("qwen3_5", "Qwen3_5TextConfig", "Qwen3_5GatedDeltaNet", LINEAR),
    "OLMo hybrid": ("olmo_hybrid", "OlmoHybridConfig", "OlmoHybridGatedDeltaNet", LINEAR),
    "Kimi Linear": ("kimi_linear", "KimiLinearConfig", "KimiLinearDeltaAttention", KIMI),
    "GLM-5-Next": ("glm5_next", "Glm5NextTextConfig", "Glm5NextTextLinearAttention", GLM),
}
NAMES = pytest.mark.parametrize("name", CASES)


def case_of(name):
    """The configuration, the layer of transformers, and its weights under the whole model's names."""
    family, config, kind, options = CASES[name]
    config = getattr(transformers, config)(**SIZES | options)
    module = import_module(f"transformers.models.{family}.modeling_{family}")
    torch.manual_seed(0)
    layer = getattr(module, kind)(config, 0).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.2 * torch.randn_like(parameter))
    place = "linear_attn" if options is LINEAR else "self_attn"
    state = {f"model.layers.0.{place}.{n}": w for n, w in layer.state_dict().items()}
    return config, layer, state


def ours_of(config, state):
    """Our layer."""
    return torch_column.DeltaAttention.from_config(config.to_dict(), weights=state)


def tokens(*shape):
    return torch.randn(*shape, DIM, generator=torch.Generator().manual_seed(1))


def test_glm_with_padding_in_chunks_and_packed():
    """Its chunks are 3.2e-6 from float64, and ours 0.8e-6."""
    config, theirs, state = case_of("GLM-5-Next")
    ours, x = ours_of(config, state), tokens(2, N)
    seen = torch.arange(N) >= torch.tensor([[0], [5]])
    cache, their_cache = ours.init_cache((2,)), transformers.DynamicCache(config=config)
    with torch.no_grad():
        for part in (slice(0, 66), slice(66, 72), *(slice(i, i + 1) for i in range(72, N))):
            mask = seen[:, part] if part.start == 0 else None
            want = theirs(x[:, part], cache=their_cache, attention_mask=mask)[seen[:, part]]
            got, cache = ours(x[:, part], mask=seen[:, part], cache=cache)
            assert distance(got[seen[:, part]].numpy(), want.numpy()) < 4e-6
        alone = torch.cat([theirs(part) for part in x.split([20, 55], dim=1)], 1).numpy()
        packed = ours(x, documents=(torch.arange(N) >= 20).long()).numpy()
        assert distance(packed, alone) < 2e-5  # whose chunks lie elsewhere: seen 8.6e-6
        assert distance(theirs(x).numpy(), alone) > 0.01


@NAMES
def test_keys_of_length_a_thousandth(name):
    """The epsilon stands under the root: `F.normalize` would make them unit vectors."""
    config, theirs, state = case_of(name)
    with torch.no_grad():
        for key, weight in state.items():
            if "conv1d" in key:
                weight.mul_(1e-4)
        ours = ours_of(config, state)
        x = tokens(1, N)
        assert distance(ours(x).numpy(), theirs(x).numpy()) < AGREE


@NAMES
def test_gradients_are_those_of_the_class(name):
    config, theirs, state = case_of(name)
    ours = ours_of(config, state)
    x = tokens(1, N)
    slopes = []
    for layer in (theirs, ours):
        given = x.clone().requires_grad_()
        slopes.append(torch.autograd.grad(layer(given).square().sum(), given)[0].numpy())
    assert distance(*slopes) < 2e-5
