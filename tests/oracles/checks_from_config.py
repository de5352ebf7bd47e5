"""Attention made by `from_config` beside transformers, for a small model of every family (`nox -s oracles`).

The model runs once; what went into each attention and came out of its output projection is kept. Our layer
is made from the model's configuration and its weights, and has to give the same.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from posattn import configs
from posattn import jax as jax_column
from posattn import torch as torch_column
from posattn.configs.weights import NAMES

AGREE = 2e-6  # in float32, of the largest entry
N, PAD = 13, 4
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
FAMILIES = {
    "Llama": ("Llama", ROPE | {"attention_bias": True}),
    "Mistral": ("Mistral", ROPE | WINDOWED),
    "Qwen2": ("Qwen2", ROPE),
    "Qwen3": ("Qwen3", ROPE),
    "Gemma": ("Gemma", ROPE),
    "Gemma 2": (
        "Gemma2",
        ROPE | WINDOWED | {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 12},
    ),
    "Gemma 3": (
        "Gemma3Text",
        WINDOWED
        | {
            "rope_parameters": {
                "sliding_attention": DEFAULT,
                "full_attention": DEFAULT | {"rope_type": "linear", "factor": 8.0},
            },
            "num_hidden_layers": 6,
            "query_pre_attn_scalar": 12,
        },
    ),
    "gpt-oss": (
        "GptOss",
        WINDOWED
        | EXPERTS
        | {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "beta_fast": 8.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "SmolLM3": ("SmolLM3", ROPE),
    "OLMo 2": ("Olmo2", ROPE),
    "Phi-3": ("Phi3", ROPE | {"eos_token_id": 1, "bos_token_id": 1}),
    "GPT-NeoX": ("GPTNeoX", PARTIAL | {"num_key_value_heads": None, "head_dim": None}),
    "GPT-2": (
        "GPT2",
        {"n_embd": 32, "n_head": 4, "n_layer": 4, "vocab_size": 40, "n_positions": 64},
    ),
    "BLOOM": ("Bloom", {"hidden_size": 32, "n_head": 4, "n_layer": 4, "vocab_size": 40}),
}


def model_of(family):
    """A small model with random weights, and no norm whose weight is 1."""
    name, options = FAMILIES[family]
    small = SMALL if "n_head" not in options else {}
    options = {k: v for k, v in (small | options).items() if v is not None}
    config = getattr(transformers, f"{name}Config")(**options)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def watched(model, plan, **inputs):
    """What goes into each attention and comes out of its output projection."""
    names, seen = NAMES[plan.model_type], {}
    for index in range(len(plan.layers)):
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
    seen = (
        watched(
            model, plan, input_ids=tokens, attention_mask=padding, position_ids=positions
        )
        if takes_positions(model)
        else watched(model, plan, input_ids=tokens, attention_mask=padding)
    )
    state, shown = model.state_dict(), padding.bool()
    where = torch.where(shown, padding.cumsum(-1) - 1, -1)
    for index in range(len(plan.layers)):
        x, want = seen[index, "in"], seen[index, "out"]
        ours = torch_column.MultiHeadAttention.from_config(plan, index, weights=state)
        with torch.no_grad():
            whole = ours(x[:1], causal=True)
            steps, cache = ours(
                x[..., :6, :], cache=ours.init_cache((2,), N), query_positions=where[:, :6]
            )
            more, cache = ours(x[..., 6:, :], cache=cache, query_positions=where[:, 6:])
        both = torch.cat([steps, more], dim=1)
        assert distance(whole, want[:1]) <= AGREE
        assert distance(both[shown], want[shown]) <= AGREE
        arrays = {name: jnp.asarray(x.numpy()) for name, x in state.items()}
        theirs = jax_column.MultiHeadAttention.from_config(plan, index, weights=arrays)
        assert distance(theirs(jnp.asarray(x[:1].numpy()), causal=True), want[:1]) <= AGREE


def takes_positions(model):
    """Whether a call of the model may say where the tokens stand."""
    import inspect

    return "position_ids" in inspect.signature(model.forward).parameters
