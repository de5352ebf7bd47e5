"""transformers, rotation: that of Llama and GPT-NeoX."""

import importlib

import torch
from transformers import GPTNeoXConfig, LlamaConfig
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.llama import modeling_llama as llama

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "transformers==5.24.0"]


def _rotate(x, positions, **rope):
    config = LlamaConfig(hidden_size=32, num_attention_heads=2, head_dim=16)
    config.rope_parameters |= rope
    x, positions = torch.from_numpy(x), torch.from_numpy(positions)[None]
    tables = llama.LlamaRotaryEmbedding(config)(x, positions)
    return llama.apply_rotary_pos_emb(x, x, *tables)[0]


PROBES = {
    "rotated": lambda x, positions: _rotate(x, positions),
    "stretched": lambda x, positions, stretch: _rotate(x, positions, rope_type="linear", factor=stretch),
    "distant": lambda x, far: _rotate(x, far),
}  # fmt: skip


def partly(x, positions, part):
    rope = {
        "rope_theta": 10000.0,
        "rope_type": "default",
        "partial_rotary_factor": part / 16,
    }
    config = GPTNeoXConfig(hidden_size=32, num_attention_heads=2, rope_parameters=rope)
    x, positions = torch.from_numpy(x), torch.from_numpy(positions)[None]
    tables = gpt_neox.GPTNeoXRotaryEmbedding(config)(x, positions)
    return gpt_neox.apply_rotary_pos_emb(x, x, *tables)[0]


def rotated_parts():
    """Qwen3-Next rotates the first part of a head, DeepSeek-V4 the last, Gemma 4 a part of all pairs."""
    for name, kind, width, layers in (
        ("qwen3_next", "Qwen3Next", 256, ()),
        ("deepseek_v4", "DeepseekV4", 512, ["main"]),
        ("gemma4", "Gemma4Text", 512, ["full_attention"]),
    ):
        module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        rope = getattr(module, f"{kind}RotaryEmbedding")(getattr(module, f"{kind}Config")())
        each = torch.eye(width)[None, None]  # a 1 in each entry
        tables = rope(each, torch.ones(1, width, dtype=int), *layers)
        args = [each] * (1 + (name == "qwen3_next"))
        out = module.apply_rotary_pos_emb(*args, *tables)
        out = (out[0] if len(args) > 1 else out)[0, 0]
        (moved,) = (out - each[0, 0]).abs().amax(1).gt(1e-6).nonzero().T.tolist()
        (pair,) = out[moved[0]].nonzero().T.tolist()
        print(f"{name}: rotates {len(moved)} of {width}, from {moved[0]} to {moved[-1]},"
              f" and {pair[0]} with {pair[1]}")  # fmt: skip


class _Kept:
    def update_indexer(self, key, layer):
        self.indexer = key[0]
        return key

    def update(self, latents, turned, *rest, **options):
        self.attention = turned[0, 0]
        return latents, turned


def indexer_pairs():
    """The indexer of DeepSeek-V3.2 pairs halves, its attention neighbors; GLM-5 and Hy4 differ from it."""
    sizes = {
        "hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "v_head_dim": 8,
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 64,
        "index_n_heads": 2, "index_head_dim": 128, "index_topk": 4, "num_hidden_layers": 1,
    }  # fmt: skip
    each = torch.eye(128)[None]  # a 1 in each entry
    positions = torch.ones(1, 128, dtype=int)
    families = {"deepseek_v32": "DeepseekV32", "glm_moe_dsa": "GlmMoeDsa", "hy_v4": "HYV4"}
    for name, kind in families.items():
        module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        config = getattr(module, f"{kind}Config")(**sizes)
        config._attn_implementation = "eager"
        layer, kept = getattr(module, f"{kind}Attention")(config, 0), _Kept()
        layer.indexer.wk.weight.data = each[0]
        layer.indexer.k_norm.forward = lambda key: key
        layer.kv_a_proj_with_mqa.weight.data[-64:] = each[0, :64]
        tables = getattr(module, f"{kind}RotaryEmbedding")(config)(each, positions)
        mask = torch.zeros(1, 1, 128, 128)
        layer(each, tables, mask, position_ids=positions, cache=kept)
        for part, keys in (("indexer", kept.indexer), ("attention", kept.attention)):
            width = keys.shape[1]
            moved = (keys - each[0, :, :width]).abs().amax(1)[:width].gt(1e-6)
            first = int(moved.nonzero()[0])
            (pair,) = (keys * keys[first]).abs().amax(1)[first + 1 :].nonzero().T.tolist()
            print(f"{name}: the {part} rotates {moved.sum()} of {width},"
                  f" and {first} with {first + 1 + pair[0]}")  # fmt: skip
