"""transformers, small models of seventeen families with drawn weights, asked what they survive."""

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from posattn.conformance import survives

INSTALL = ["numpy==2.4.6", "torch==2.13.0", "transformers==5.24.0"]
SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4}
SIZES |= {
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
}
SIZES |= {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
WINDOW, HEADS, EXPERTS = {"sliding_window": 8}, {"head_dim": 8}, {"num_local_experts": 4}
FAMILIES = {
    "gpt2": {}, "opt": {"word_embed_proj_dim": 32, "ffn_dim": 32}, "bloom": {}, "falcon": {},
    "llama": {}, "mistral": WINDOW, "gemma3_text": WINDOW | HEADS, "gpt_oss": WINDOW | HEADS | EXPERTS,
    "deepseek_v3": {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "kv_lora_rank": 8,
        "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 8},
    "recurrent_gemma": {"attention_window_size": 8}, "rwkv": {}, "mamba": {},
    "mamba2": HEADS | {"num_heads": 8, "n_groups": 1},
    "jamba": {"num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8},
    "qwen3_next": HEADS | {"num_experts": 4, "num_experts_per_tok": 2, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4},
    "minimax": HEADS | EXPERTS,
}  # fmt: skip


def families():
    """Of seventeen small models five survive all thirteen questions, and in eleven packed documents leak."""
    transformers.logging.set_verbosity_error()
    for family, options in FAMILIES.items():
        torch.manual_seed(0)
        config = AutoConfig.for_model(family, **SIZES | options)
        model = AutoModelForCausalLM.from_config(config).requires_grad_(False)
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight.shape[-1] ** -0.5)
        wrong = [row for row in survives(model) if not row.survives]
        print(family, *wrong or ["equal in all rows"], sep="\n  ")
