"""Latent attention made by `from_config` beside the attention of transformers (`nox -s oracles`)."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

from posattn import jax as jax_column
from posattn import torch as torch_column

AGREE = 2e-6  # in float32, of the largest entry
N, PAD = 13, 4
SMALL = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 1,
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}
YARN = {
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 8.0,
        "beta_fast": 8.0,
        "beta_slow": 1.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16,
    }
}
CASES = {
    "V2": (v2, "DeepseekV2", {}),
    "V2 Lite, whose queries have no latent vector": (
        v2,
        "DeepseekV2",
        {"q_lora_rank": None},
    ),
    "V2 with YaRN": (v2, "DeepseekV2", YARN),
    "V3": (v3, "DeepseekV3", {}),
    "V3 with YaRN": (v3, "DeepseekV3", YARN),
    "V3 without a latent vector of queries": (v3, "DeepseekV3", {"q_lora_rank": None}),
    "V3 in halves": (v3, "DeepseekV3", {"rope_interleave": False}),
    "Kimi K2": (v3, "DeepseekV3", YARN | {"model_type": "kimi_k2"}),
}


def theirs_of(module, name, config):
    """Their attention with random weights, no norm with weights of 1, and a call of it."""
    torch.manual_seed(0)
    attention = getattr(module, f"{name}Attention")(config, 0).eval()
    rotary = getattr(module, f"{name}RotaryEmbedding")(config)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter += 0.3 * torch.randn_like(parameter)

    def call(x, positions, seen, cache=None):
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        with torch.no_grad():
            turns = rotary(x, positions)
            options = {"position_embeddings": turns, "attention_mask": mask[:, None]}
            return attention(x, **options, cache=cache)[0]

    return attention, call


def case_of(name):
    module, kind, options = CASES[name]
    options = dict(options)
    model_type = options.pop("model_type", None)
    config = getattr(transformers, f"{kind}Config")(**SMALL | options)
    config._attn_implementation = "eager"
    attention, call = theirs_of(module, kind, config)
    given = config.to_dict()
    if model_type is not None:
        given["model_type"] = model_type
    state = {f"model.layers.0.self_attn.{n}": w for n, w in attention.state_dict().items()}
    return given, state, call


def ours_of(column, config, state):
    """Our layer: its call and its cache, for PyTorch's arrays."""
    if column is torch_column:
        layer = column.LatentAttention.from_config(config, weights=state).requires_grad_(
            False
        )
        return layer, layer.init_cache, lambda x: x
    state = {name: w.numpy() for name, w in state.items()}
    layer = column.LatentAttention.from_config(config, weights=state)
    return layer, layer.init_cache, lambda x: jnp.asarray(x.numpy())


def distance(got, want):
    got, want = np.asarray(got), np.asarray(want)
    return np.abs(got - want).max() / np.abs(want).max()


X = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(1))
COLUMNS = pytest.mark.parametrize(
    "column", [torch_column, jax_column], ids=["torch", "jax"]
)
PAST = torch.ones(N, N, dtype=torch.bool).tril().expand(2, N, N)


@COLUMNS
@pytest.mark.parametrize("name", CASES)
def test_the_whole_is_what_their_attention_gives(column, name):
    config, state, theirs = case_of(name)
    layer, _, own = ours_of(column, config, state)
    want = theirs(X, torch.arange(N)[None].expand(2, N), PAST)
    assert distance(layer(own(X), causal=True), want) < AGREE


@COLUMNS
@pytest.mark.parametrize("name", CASES)
def test_a_prompt_with_left_padding_and_then_steps(column, name):
    """Their cache keeps latent vectors as well, and makes all keys and values again at each step."""
    config, state, theirs = case_of(name)
    layer, init_cache, own = ours_of(column, config, state)
    padding = torch.ones(2, N, dtype=torch.bool)
    padding[1, :PAD] = False
    positions = padding.cumsum(-1) - 1
    seen = PAST & padding[:, None, :]
    cache, their_cache = init_cache((2,), N), transformers.DynamicCache()
    for start, stop in [(0, 8), *((i, i + 1) for i in range(8, N))]:
        part = slice(start, stop)
        want = theirs(
            X[:, part], positions[:, part].clamp(min=0), seen[:, part, :stop], their_cache
        )
        where = positions[:, part].masked_fill(~padding[:, part], -1)
        got, cache = layer(own(X[:, part]), cache=cache, query_positions=own(where))
        got, want = (np.asarray(x) * padding[:, part, None].numpy() for x in (got, want))
        assert distance(got, want) < AGREE


@COLUMNS
def test_yarn_sharpens_by_the_square_of_its_factor(column):
    """A layer that leaves `mscale_all_dim` out of its scale is wrong, and the comparison says so."""
    config, state, theirs = case_of("V3 with YaRN")
    without = config | {
        "rope_parameters": config["rope_parameters"] | {"mscale_all_dim": 0}
    }
    layer, _, own = ours_of(column, without, state)
    want = theirs(X, torch.arange(N)[None].expand(2, N), PAST)
    assert distance(layer(own(X), causal=True), want) > 1e-3
