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
LENT = {"kv_source_layers": [0, 0], "no_rope_layers": [1, 1]}
SHARING = {  # what a second layer takes from the first
    "GLM-5's choice": ("GLM-5, whose indexer rotates neighbors", SHARED),
    "Mistral Large 4's keys and choice": ("Mistral Large 4", SHARED | LENT),
    "Mistral Large 4's keys": (
        "Mistral Large 4",
        SHARED | LENT | {"indexer_types": ["full", "full"]},
    ),
    "Mistral Large 4's keys, no position": (
        "Mistral Large 4",
        SHARED | LENT | {"no_rope_layers": [0, 0]},
    ),
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
            rotary.alpha.copy_(torch.linspace(-0.2, 0.1, len(rotary.alpha)))

    @torch.no_grad()
    def call(x, positions, seen, cache, select=None, lent=None):
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        angles = None if pooled else rotary(x, positions)
        options = {"attention_mask": mask[:, None], "cache": cache}
        if learned:
            lent = {} if lent is None else lent
            options |= {"shared_kv_states": lent, "position_ids": positions}
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


def padded():
    """Two rows, the second with left padding: x, what is none, positions, and which keys are seen."""
    x = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(1))
    padding = torch.ones(2, N, dtype=torch.bool)
    padding[1, :PAD] = False
    seen = torch.ones(N, N, dtype=torch.bool).tril() & padding[:, None, :]
    return x, padding, padding.cumsum(-1) - 1, seen


def made(column, config, state, place=0):
    """Our layer, and what makes an array of its column."""
    own = (lambda x: x) if column is torch_column else lambda x: jnp.asarray(x.numpy())
    weights = {name: own(w) for name, w in state.items()}
    return column.LatentAttention.from_config(config, place, weights=weights), own


@pytest.mark.parametrize("column", [torch_column, jax_column], ids=["torch", "jax"])
@pytest.mark.parametrize("name", CASES)
def test_a_prompt_with_left_padding_and_then_steps(column, name):
    config, state, theirs, their_cache = case_of(name)
    (layer, own), (x, padding, positions, seen) = made(column, config, state), padded()
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
    layer, own = made(column, config, state)
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
@pytest.mark.parametrize("case", SHARING)
def test_a_layer_reads_what_the_layer_before_shares(column, case):
    name, kinds = SHARING[case]
    (config, *full), (_, *shared) = (case_of(name, place, **kinds) for place in (0, 1))
    lends, lent = "kv_source_layers" in kinds, {}
    takes = kinds["indexer_types"][1] == "shared"
    state, (x, padding, positions, seen) = full[0] | shared[0], padded()
    (first, own), (second, _) = (made(column, config, state, i) for i in (0, 1))
    caches = [layer.init_cache((2,), N) for layer in (first, second)]
    for start, stop in ((0, 8), (8, 9), (9, N)):
        part = slice(start, stop)
        at = positions[:, part].clamp(min=0), seen[:, part, :stop], full[2]
        _, chosen = full[1](x[:, part], *at, lent=lent)
        want, _ = shared[1](x[:, part], *at, select=chosen, lent=lent)
        where = own(positions[:, part].masked_fill(~padding[:, part], -1))
        with torch.no_grad():
            given, asked = {"query_positions": where}, {"return_select": True}
            asked |= {"return_latent": lends}
            _, caches[0], select, *latent = first(
                own(x[:, part]), cache=caches[0], **given, **asked
            )
            given |= {"select": select} if takes else {}
            given |= {"latent": latent[0]} if lends else {}
            got, caches[1] = second(own(x[:, part]), cache=caches[1], **given)
        shown = padding[:, part].numpy()
        assert distance(np.asarray(got)[shown], want.numpy()[shown]) < AGREE
