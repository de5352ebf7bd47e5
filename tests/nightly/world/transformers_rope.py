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


def rotated(x, positions):
    return _rotate(x, positions)


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


def stretched(x, positions, stretch):
    return _rotate(x, positions, rope_type="linear", factor=stretch)


def distant(x, far):
    return _rotate(x, far)


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
