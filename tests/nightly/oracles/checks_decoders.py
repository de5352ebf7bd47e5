"""Whole decoders made by `from_config` beside transformers, one of every family (`nox -s oracles`).

Logits of all tokens agree, with left padding too, and so do the tokens that are generated.
"""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from posattn import jax as jax_column
from posattn import torch as torch_column
from posattn.configs.data import data
from posattn.configs.decoders import DECODERS
from tests.nightly.oracles.checks_from_config import COUNTS_PADDING, distance, model_of

AGREE = 1e-5  # in float32, of the largest logit
SHARP = {"Gemma 4": 3e-5}  # whose scores nothing divides: the class is 1.7e-5 from float64
N, PAD, STEPS = 9, 3, 10
# tokens, more than a block of 64 of the delta rule, and how far states drift over them; the rounding is
# the class's: six texts are 1.9e-5 (Qwen3-Next), 6.3e-5 (Qwen3.5-MoE) and 1.0e-5 (Kimi Linear) from float64
# there in the median, here 1.8e-6, 3.0e-5 and 4.7e-6, in JAX 2.7e-6, 4.4e-5 and 4.3e-6; nine tokens are
# 3.2e-6, 3.1e-6 and 9.2e-6 there, here 2.1e-6, 1.9e-6 and 4.1e-6
LONG, DRIFT = 75, 1e-4
NAMES = [
    *("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "OLMo 2"),
    *("Gemma", "Gemma 2", "Gemma 3"),
    *("Phi-3", "GPT-2", "GPT-NeoX", "BLOOM", "GLM-4", "GLM-4, 0414"),
    *("Granite", "Cohere", "Cohere 2", "OLMo 3", "EXAONE 4", "StarCoder 2"),
    *("Qwen3.5", "OLMo hybrid", "Gemma 4"),
]
MIXED = [
    *("gpt-oss", "Mixtral", "MiniMax-M2", "Granite MoE"),
    *("Qwen2-MoE", "Qwen3-MoE", "GLM-4.5", "Qwen3-Next", "Qwen3.5-MoE"),
    *("DeepSeek-V3", "Kimi Linear", "Llama 4"),
]
HYBRID = ["Qwen3-Next", "Qwen3.5", "Qwen3.5-MoE", "OLMo hybrid", "Kimi Linear"]
SHARED = {"hidden_size_per_layer_input": 8, "num_hidden_layers": 6, "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True, "final_logit_softcapping": 3.0,
    "layer_types": ["sliding_attention", "full_attention"] * 3}  # fmt: skip
VARIANTS = {name: (name, {}) for name in NAMES + MIXED} | {
    "Llama, tied, with offsets": ("Llama", {"tie_word_embeddings": True, "mlp_bias": True}),
    "GPT-NeoX, one after the other": ("GPT-NeoX", {"use_parallel_residual": False}),
    "Gemma 3, capped": ("Gemma 3", {"final_logit_softcapping": 3.0}),
    "Gemma 4, shared": ("Gemma 4", SHARED | {"attention_k_eq_v": False}),
    "Gemma 4, mixed": ("Gemma 4", SHARED | {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 3,
        "moe_intermediate_size": 16, "use_double_wide_mlp": False}),
    "Granite, scaled": ("Granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.3,
        "logits_scaling": 6.0}),
    "gpt-oss, bounded": ("gpt-oss", {"swiglu_limit": 0.3}),
    "Qwen2-MoE, normalized": ("Qwen2-MoE", {"norm_topk_prob": True}),
    "Qwen3-MoE, some dense": ("Qwen3-MoE", {"num_hidden_layers": 6, "mlp_only_layers": [3],
        "decoder_sparse_step": 2}),
    "GLM-4.5, in groups": ("GLM-4.5", {"n_routed_experts": 12, "n_group": 4, "topk_group": 2,
        "num_experts_per_tok": 3, "routed_scaling_factor": 2.5, "n_shared_experts": 2}),
    "GPT-2, narrow": ("GPT-2", {"n_inner": 48, "activation_function": "relu"}),
}  # fmt: skip


def made(column, model):
    """Our decoder with the weights of theirs."""
    state = model.state_dict()
    if column is jax_column:
        state = {name: jnp.asarray(x.numpy()) for name, x in state.items()}
    return column.Decoder.from_config(model.config, weights=state)


def given(column, x):
    return x if column is torch_column else jnp.asarray(x.numpy())


def test_every_family_is_compared():
    names = {model_of(family).config.model_type for family, _ in VARIANTS.values()}
    assert names == set(DECODERS) - data("classes.json").keys()  # whose class is another's


@pytest.mark.parametrize("column", [torch_column, jax_column], ids=["torch", "jax"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_and_generated_tokens_are_those_of_the_model(column, variant):
    family, options = VARIANTS[variant]
    model = model_of(family, **options)
    ours = made(column, model)
    n = LONG if family in HYBRID else N
    tokens = torch.randint(1, 40, (2, n), generator=torch.Generator().manual_seed(1))
    padding = torch.ones_like(tokens)
    padding[1, :PAD] = 0
    places = padding.cumsum(-1) - 1
    more = {"attention_mask": padding}
    if "position_ids" in inspect.signature(model.forward).parameters:
        more["position_ids"] = places.clamp(min=0)
    with torch.no_grad():
        want = model(input_ids=tokens, **more).logits
        where = given(column, torch.where(padding.bool(), places, -1))
        got = ours(given(column, tokens), positions=where)
        cache, parts = ours.init_cache(2, n), []
        for part in (slice(0, n - 4), slice(n - 4, n - 3), slice(n - 3, n)):
            step = given(column, tokens[:, part])
            logits, cache = ours(step, positions=where[:, part], cache=cache)
            parts.append(np.asarray(logits))
    shown = padding.bool().numpy()
    if family in COUNTS_PADDING:
        shown[1] = False
    for logits in (np.asarray(got), np.concatenate(parts, 1)):
        bound = DRIFT if n == LONG else SHARP.get(family, AGREE)
        assert distance(logits[shown], want.numpy()[shown]) <= bound

    model.generation_config.eos_token_id = None
    text = model.generate(tokens, do_sample=False, max_new_tokens=STEPS)
    assert np.array_equal(ours.generate(given(column, tokens), STEPS), text)


@pytest.mark.parametrize("column", [torch_column, jax_column], ids=["torch", "jax"])
@pytest.mark.parametrize("family", HYBRID)
def test_packed_documents_are_those_alone_where_the_class_leaks(column, family):
    model, sizes = model_of(family), [20, 46, 9]
    tokens = torch.randint(1, 40, (1, LONG), generator=torch.Generator().manual_seed(2))
    documents = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    with torch.no_grad():
        alone = torch.cat([model(part).logits for part in tokens.split(sizes, 1)], 1)
        starts = torch.cat([torch.arange(n) for n in sizes])[None]
        leaks = model(tokens, position_ids=starts).logits
        got = made(column, model)(given(column, tokens), documents=given(column, documents))
    assert distance(got, alone) <= DRIFT
    assert distance(leaks, alone) > 0.01


@pytest.mark.parametrize("family", MIXED)
def test_experts_are_read_as_they_are_released(family, tmp_path):
    """Files keep each expert by itself; PyTorch's model, all of them in one array."""
    model = model_of(family)
    model.save_pretrained(tmp_path)
    tokens = torch.arange(N)[None]
    with torch.no_grad():
        want = made(torch_column, model)(tokens)
        for column in (torch_column, jax_column):
            ours = column.Decoder.from_config(tmp_path, weights=tmp_path)
            assert distance(ours(given(column, tokens)), want) <= AGREE
