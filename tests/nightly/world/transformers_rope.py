"""transformers, rotation: that of Llama and GPT-NeoX."""

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
