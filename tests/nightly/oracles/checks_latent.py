"""Latent attention made by `from_config` beside the attention of transformers (`nox -s oracles`)."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from transformers.models.axk2 import modeling_axk2 as axk2
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as v32
from transformers.models.glm5_next import modeling_glm5_next as glm5
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm
from transformers.models.hy_v4 import modeling_hy_v4 as hy
from transformers.models.mistral_large4 import modeling_mistral_large4 as mistral

from posattn import jax as jax_column
from posattn import torch as torch_column
from tests.nightly.oracles.checks_from_config import distance

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
INDEXED = {
    "head_dim": 4,
    "index_n_heads": 16,
    "index_head_dim": 8,
    "index_topk": 5,
    "layer_types": ["indexed_attention"],
}
OWN = {"q_lora_rank": ..., "rope_parameters": ...}  # which the class doesn't know, or sets
POOLED = OWN | {"q_lora_rank": 12, "qk_rope_head_dim": 0, "index_topk": 8, "index_kpool": 4}
CASES = {
    "V2 Lite, whose queries have no latent vector": (
        v2,
        "DeepseekV2",
        {"q_lora_rank": None},
    ),
    "V2 with YaRN": (v2, "DeepseekV2", YARN),
    "V3 in halves": (v3, "DeepseekV3", {"rope_interleave": False}),
    "V3.2, whose indexer rotates halves": (v32, "DeepseekV32", INDEXED | YARN),
    "GLM-5, whose indexer rotates neighbors": (glm, "GlmMoeDsa", INDEXED),
    "Kimi K2": (v3, "DeepseekV3", YARN | {"model_type": "kimi_k2"}),
    "Hy4, with sinks and gates": (hy, "HYV4", INDEXED),
    "A.X-K2, with gates from a latent vector": (axk2, "AXK2", INDEXED),
    "GLM-5-Next, whose indexer pools by gates": (glm5, "Glm5NextText", INDEXED | POOLED),
    "Mistral Large 4": (mistral, "MistralLarge4Text", INDEXED | OWN),
    "Mistral Large 4, no position": (
        mistral,
        "MistralLarge4Text",
        INDEXED | OWN | {"no_rope_layers": [0]},
    ),
}


SHARED = {
    "num_hidden_layers": 2,
    "layer_types": ["indexed_attention"] * 2,
    "indexer_types": ["full", "shared"],
}


def case_of(name, place=0, **more):
    """A configuration, the weights of their attention, a call of it, and a cache."""
    module, kind, options = CASES[name]
    options = options | more
    values = {key: x for key, x in (SMALL | options).items() if x is not ...}
    config = getattr(transformers, f"{kind}Config")(
        **{key: x for key, x in values.items() if key != "model_type"}
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    attention = getattr(module, f"{kind}Attention")(config, place).eval()
    pooled, learned = module is glm5, module is mistral
    rotary = None if pooled else getattr(module, f"{kind}RotaryEmbedding")(config)
    with torch.no_grad():
        for key, parameter in attention.named_parameters():
            if "softmax_scaling" in key:  # which nobody has set yet
                parameter.zero_()
            parameter += 0.3 * torch.randn_like(parameter)
        if learned:
            rotary.alpha.copy_(0.1 * torch.randn_like(rotary.alpha))

    @torch.no_grad()
    def call(x, positions, seen, cache, select=None):
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        angles = None if pooled else rotary(x, positions)
        options = {"attention_mask": mask[:, None], "cache": cache}
        if learned:
            options |= {"shared_kv_states": {}, "position_ids": positions}
        if pooled:  # it takes which tokens are no padding
            options["attention_mask"] = seen[:, -1, -x.shape[1] :]
        options |= {} if select is None else {"prev_topk_indices": select}
        out = attention(x, position_embeddings=angles, **options)
        return (out[0], out[-1]) if more else out[0]

    given = config.to_dict()
    given["model_type"] = options.get("model_type", given["model_type"])
    root = f"model.layers.{place}.self_attn."
    state = {f"{root}{n}": w for n, w in attention.state_dict().items()}
    if learned:
        state["model.rotary_emb.alpha"] = rotary.alpha.detach()
    return given, state, call, transformers.DynamicCache(config=config)


@pytest.mark.parametrize("column", [torch_column, jax_column], ids=["torch", "jax"])
@pytest.mark.parametrize("name", CASES)
def test_a_prompt_with_left_padding_and_then_steps(column, name):
    config, state, theirs, their_cache = case_of(name)
    own = (lambda x: x) if column is torch_column else lambda x: jnp.asarray(x.numpy())
    weights = {name: own(w) for name, w in state.items()}
    layer = column.LatentAttention.from_config(config, weights=weights)
    x = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(1))
    padding = torch.ones(2, N, dtype=torch.bool)
    padding[1, :PAD] = False
    positions = padding.cumsum(-1) - 1
    seen = torch.ones(N, N, dtype=torch.bool).tril() & padding[:, None, :]
    cache = layer.init_cache((2,), N)
    for start, stop in [(0, 8), *((i, i + 1) for i in range(8, N))]:
        part = slice(start, stop)
        want = theirs(
            x[:, part], positions[:, part].clamp(min=0), seen[:, part, :stop], their_cache
        )
        where = positions[:, part].masked_fill(~padding[:, part], -1)
        with torch.no_grad():
            got, cache = layer(own(x[:, part]), cache=cache, query_positions=own(where))
        shown = padding[:, part].numpy()
        assert distance(np.asarray(got)[shown], want.numpy()[shown]) < AGREE


@pytest.mark.parametrize("column", [torch_column, jax_column], ids=["torch", "jax"])
@pytest.mark.parametrize("name", [name for name in CASES if "index_topk" in CASES[name][2]])
def test_packed_rows_are_those_of_each_alone(column, name):
    config, state, theirs, _ = case_of(name)
    own = (lambda x: x) if column is torch_column else lambda x: jnp.asarray(x.numpy())
    weights = {name: own(w) for name, w in state.items()}
    layer = column.LatentAttention.from_config(config, weights=weights)
    x = torch.randn(1, 2 * N, 32, generator=torch.Generator().manual_seed(1))
    place, document = torch.arange(2 * N) % N, torch.arange(2 * N) // N
    causal = torch.ones(N, N, dtype=torch.bool).tril()[None]
    parts = [theirs(part, place[None, :N], causal, None) for part in x.split(N, dim=1)]
    seen = (document[:, None] == document) & torch.ones(
        2 * N, 2 * N, dtype=torch.bool
    ).tril()
    with torch.no_grad():
        got = layer(own(x), mask=own(seen[None]), query_positions=own(place))
    assert distance(np.asarray(got), torch.cat(parts, dim=1).numpy()) < AGREE


@pytest.mark.parametrize("column", [torch_column, jax_column], ids=["torch", "jax"])
def test_a_shared_layer_reads_what_the_layer_before_has_selected(column):
    name = "GLM-5, whose indexer rotates neighbors"
    (config, *full), (_, *shared) = (case_of(name, place, **SHARED) for place in (0, 1))
    own = (lambda x: x) if column is torch_column else lambda x: jnp.asarray(x.numpy())
    state = {name: own(w) for part in (full, shared) for name, w in part[0].items()}
    layers = [column.LatentAttention.from_config(config, i, weights=state) for i in (0, 1)]
    caches = [layer.init_cache((2,), N) for layer in layers]
    x = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(1))
    padding = torch.ones(2, N, dtype=torch.bool)
    padding[1, :PAD] = False
    positions = padding.cumsum(-1) - 1
    seen = torch.ones(N, N, dtype=torch.bool).tril() & padding[:, None, :]
    for start, stop in ((0, 8), (8, 9), (9, N)):
        part = slice(start, stop)
        at = positions[:, part].clamp(min=0), seen[:, part, :stop], full[2]
        _, chosen = full[1](x[:, part], *at)
        want, _ = shared[1](x[:, part], *at, select=chosen)
        where = own(positions[:, part].masked_fill(~padding[:, part], -1))
        with torch.no_grad():
            *_, caches[0], select = layers[0](
                own(x[:, part]), cache=caches[0], query_positions=where, return_select=True
            )
            got, caches[1] = layers[1](
                own(x[:, part]), cache=caches[1], query_positions=where, select=select
            )
        shown = padding[:, part].numpy()
        assert distance(np.asarray(got)[shown], want.numpy()[shown]) < AGREE
