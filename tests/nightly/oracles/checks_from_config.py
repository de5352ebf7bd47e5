"""Attention made by `from_config` beside transformers, padded, in steps, in both columns (`nox -s oracles`).

Families that differ from these by names or a bias are held by tests/nightly/families.py.
The model runs once; what went into each attention and came out of its output projection is kept. Our layer
is made from the model's configuration and its weights, and has to give the same.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from posattn import configs
from posattn import jax as jax_column
from posattn import torch as torch_column
from posattn.configs.reading import ATTENTION
from posattn.configs.weights import NAMES

AGREE = 2e-6  # in float32, of the largest entry
N, PAD = 13, 4
PARTS = slice(0, 6), slice(6, 12), slice(12, N)  # of a text, one call each
SMALL = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "vocab_size": 40,
    "pad_token_id": 0,
    "max_position_embeddings": 64,
}
DEFAULT = {"rope_type": "default", "rope_theta": 5e5}
ROPE = {"rope_parameters": DEFAULT}
WINDOWED = {"sliding_window": 4}
PARTIAL = {"rope_parameters": DEFAULT | {"partial_rotary_factor": 0.5}}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
OWN_SIZES = {"n_head"}
OLD = {"n_embd": 32, "n_head": 4, "n_layer": 4, "vocab_size": 40, "n_positions": 64}
EOS = {"eos_token_id": 1, "bos_token_id": 1}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 16,
}
FAMILIES = {
    "Llama": ("Llama", ROPE | {"attention_bias": True}),
    "Mistral": ("Mistral", ROPE | WINDOWED),
    "Qwen2": ("Qwen2", ROPE),
    "Qwen3": ("Qwen3", ROPE),
    "Gemma": ("Gemma", ROPE),
    "Gemma 2": ("Gemma2", ROPE | WINDOWED | {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 12}),
    "Gemma 3": ("Gemma3Text", WINDOWED | {"rope_parameters": {
        "sliding_attention": DEFAULT, "full_attention": DEFAULT | {"rope_type": "linear", "factor": 8.0}
    }, "num_hidden_layers": 6, "query_pre_attn_scalar": 12}),
    "Gemma 4": ("Gemma4Text", WINDOWED | {"rope_parameters": {
        "sliding_attention": DEFAULT,
        "full_attention": DEFAULT | {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    }, "layer_types": ["sliding_attention", "full_attention"] * 2, "global_head_dim": 16,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 40, "num_kv_shared_layers": 0,
        "attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    "gpt-oss": ("GptOss", WINDOWED | EXPERTS | {"rope_parameters": YARN}),
    "SmolLM3": ("SmolLM3", ROPE),
    "OLMo 2": ("Olmo2", ROPE),
    "Phi-3": ("Phi3", ROPE | EOS),
    "GPT-NeoX": ("GPTNeoX", PARTIAL | {"num_key_value_heads": None, "head_dim": None}),
    "GPT-2": ("GPT2", OLD),
    "BLOOM": ("Bloom", {"hidden_size": 32, "n_head": 4, "n_layer": 4, "vocab_size": 40}),
    "Mixtral": ("Mixtral", ROPE | WINDOWED | EXPERTS),
    "Qwen2-MoE": ("Qwen2Moe", ROPE | MOE),
    "Qwen3-MoE": ("Qwen3Moe", ROPE | MOE),
    "Qwen3-Next": ("Qwen3Next", PARTIAL | MOE | {"linear_num_key_heads": 2}),
    "Cohere": ("Cohere", ROPE | {"use_qk_norm": True}),
    "Cohere 2": ("Cohere2", ROPE | WINDOWED | {"head_dim": None}),
    "EXAONE 4": ("Exaone4", ROPE | WINDOWED | {"sliding_window_pattern": 4}),
    "Granite": ("Granite", ROPE | {"attention_multiplier": 0.2, "head_dim": None}),
    "Granite MoE": ("GraniteMoe", ROPE | EXPERTS | {"attention_multiplier": 0.2, "head_dim": None,
        "embedding_multiplier": 3.0, "residual_multiplier": 0.3, "logits_scaling": 6.0}),
    "OLMo 3": ("Olmo3", WINDOWED | {"rope_parameters": {
        "sliding_attention": DEFAULT, "full_attention": DEFAULT | {"rope_type": "linear", "factor": 4.0}
    }}),
    "Ministral 3": ("Ministral3", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 8}}),
    "Granite 4": ("GraniteMoeHybrid", ROPE | EXPERTS | {"layer_types": ["full_attention"] * 4,
        "position_embedding_type": "rope", "attention_multiplier": 0.2, "head_dim": None,
        "mamba_n_heads": 4, "shared_intermediate_size": 16}),
    "Hunyuan, alpha": ("HunYuanDenseV1", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4,
        "alpha": 50.0, "factor": 1.0}}),
    "GLM-4": ("Glm", PARTIAL | EOS),
    "GLM-4, 0414": ("Glm4", PARTIAL | EOS),
    "GLM-4.5": ("Glm4Moe", PARTIAL | {"use_qk_norm": True, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "first_k_dense_replace": 1}),
    "MiniMax-M2": ("MiniMaxM2", PARTIAL | EXPERTS),
    "MiniMax-M3": ("MiniMaxM3VLText", PARTIAL | EXPERTS | {"index_n_heads": 2, "index_head_dim": 8,
        "index_block_size": 3, "index_topk_blocks": 2, "rotary_dim": 4, "dense_intermediate_size": 16,
        "shared_intermediate_size": 16, "layer_types": ["full_attention"] + ["minimax_m3_sparse"] * 3}),
    "Qwen4-Exp": ("Qwen4ExpText", MOE | EOS | {"linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 6,
        "indexer_compress_ratio": 3, "hc_lowrank": 8, "shared_expert_intermediate_size": 16,
        "rope_parameters": DEFAULT | {"partial_rotary_factor": 0.75, "mrope_section": [1, 1, 1]}}),
    "Falcon, grouped": ("Falcon", ROPE | {"head_dim": None, "num_key_value_heads": None,
        "new_decoder_architecture": True, "num_kv_heads": 2} | EOS),
    "Llama 4": ("Llama4Text", ROPE | EXPERTS | {"attention_chunk_size": 4, "floor_scale": 3,
        "interleave_moe_layer_step": 9, "intermediate_size_mlp": 48}),
}  # fmt: skip


LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12}  # fmt: skip
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6,
    "num_key_value_heads": 4, "head_dim": None}  # fmt: skip
WHOLE = {  # whose layers have oracles of their own, checks_delta.py and checks_latent.py
    "StarCoder 2": ("Starcoder2", ROPE | WINDOWED | EOS),
    "Qwen3.5": ("Qwen3_5Text", {"linear_num_key_heads": 2, "rope_parameters":
        DEFAULT | {"partial_rotary_factor": 0.75, "mrope_section": [1, 1, 1]}}),
    "Qwen3.5-MoE": ("Qwen3_5MoeText", {"rope_parameters": DEFAULT | {"partial_rotary_factor": 0.75,
        "mrope_section": [1, 1, 1]}, "shared_expert_intermediate_size": 24} | MOE | LINEAR),
    "OLMo hybrid": ("OlmoHybrid", LINEAR | {"head_dim": None} | EOS),
    "Kimi Linear": ("KimiLinear", LATENT | EOS | {"linear_head_dim": 8, "linear_num_heads": 4,
        "num_hidden_layers": 5, "num_local_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 16, "n_group": 4, "topk_group": 2}),
    "DeepSeek-V3": ("DeepseekV3", LATENT | ROPE | {"q_lora_rank": 12, "first_k_dense_replace": 1,
        "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "n_group": 4,
        "topk_group": 2}),
}  # fmt: skip
COUNTS_PADDING = {  # for the temperature, or in blocks of keys
    "Llama 4",
    "MiniMax-M3",
}


def model_of(family, **more):
    """A small model with random weights, and no norm whose weight is 1."""
    name, options = (FAMILIES | WHOLE)[family]
    small = {} if OWN_SIZES & options.keys() else SMALL
    options = {k: v for k, v in (small | options | more).items() if v is not None}
    config = getattr(transformers, f"{name}Config")(**options)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        named = model.named_buffers()
        corrections = [x for n, x in named if "correction" in n or n.endswith("_scalar")]
        for array in (*model.parameters(), *corrections):
            array += 0.3 * torch.randn_like(array)
    return model


def places(plan):
    """Of the layers that attend to pairs."""
    return [layer.index for layer in plan.layers if layer.kind in ATTENTION]


def watched(model, plan, **inputs):
    """What goes into each attention and comes out of its output projection."""
    names, seen = NAMES[plan.model_type], {}
    for index in places(plan):
        module = attention_of(model, names, index)
        out = module.get_submodule(names.separate[3])

        def before(_, args, kwargs, index=index):
            seen[index, "in"] = args[0] if args else kwargs["hidden_states"]

        def after(_, args, result, index=index):
            seen[index, "out"] = result

        module.register_forward_pre_hook(before, with_kwargs=True)
        out.register_forward_hook(after)
    with torch.no_grad():
        model(**inputs)
    return seen


def attention_of(model, names, index):
    """The module of a layer's attention."""
    for root in names.roots:
        try:
            return model.get_submodule((root + names.module.format(index)).rstrip("."))
        except AttributeError:
            continue
    raise AssertionError(f"no attention {index}")


def distance(got, want):
    got, want = np.asarray(got), np.asarray(want)
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_from_the_configuration_is_that_of_the_model(family):
    model = model_of(family)
    plan = configs.plan(model.config)
    tokens = torch.randint(1, 40, (2, N), generator=torch.Generator().manual_seed(1))
    padding = torch.ones_like(tokens)
    padding[1, :PAD] = 0
    positions = (padding.cumsum(-1) - 1).clamp(min=0)
    inputs = {"input_ids": tokens, "attention_mask": padding}
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = positions
    seen = watched(model, plan, **inputs)
    state, shown = model.state_dict(), padding.bool()
    where = torch.where(shown, padding.cumsum(-1) - 1, -1)
    for index in places(plan):
        x, want = seen[index, "in"], seen[index, "out"]
        steps = [stood(plan.layers[index], where[:, part]) for part in PARTS]
        alone = stood(plan.layers[index], where[:1])
        del alone["query_positions"]
        ours = torch_column.MultiHeadAttention.from_config(plan, index, weights=state)
        with torch.no_grad():
            whole = ours(x[:1], causal=True, **alone)
            cache, outs = ours.init_cache((2,), N), []
            for part, at in zip(PARTS, steps, strict=True):
                out, cache = ours(x[:, part], cache=cache, **at)
                outs.append(out)
        both = torch.cat(outs, dim=1)
        assert distance(whole, want[:1]) <= AGREE
        rows = shown if family not in COUNTS_PADDING else shown & (padding[:, :1] > 0)
        assert distance(both[rows], want[rows]) <= AGREE
        theirs = jax_column.MultiHeadAttention.from_config(
            plan, index, weights=in_jax(dict(state))
        )
        got = theirs(in_jax(x[:1]), causal=True, **in_jax(alone))
        assert distance(got, want[:1]) <= AGREE
        cache, outs = theirs.init_cache((2,), N), []
        for part, at in zip(PARTS, steps, strict=True):
            out, cache = theirs(in_jax(x[:, part]), cache=cache, **in_jax(at))
            outs.append(np.asarray(out))
        assert distance(np.concatenate(outs, 1)[rows.numpy()], want[rows]) <= AGREE


def stood(layer, positions):
    """Where tokens of a text stand: also as coordinates, all alike, where a layer turns by those."""
    text = layer.rope is None or layer.indexer is not None
    axes = 0 if text else len(layer.rope.sections)
    at = positions[..., None].expand(*positions.shape, axes)
    return {"query_positions": positions} | ({"coordinates": at} if axes else {})


def in_jax(tensors):
    """The same, of JAX's arrays."""
    return jax.tree.map(lambda tensor: jnp.asarray(tensor.numpy()), tensors)
