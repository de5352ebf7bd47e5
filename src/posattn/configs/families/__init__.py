"""What the attention of each family of models reads from its configuration, a function for each."""

from posattn.configs.families import deepseek, gemma, llama, older

__all__ = ["FAMILIES"]

FAMILIES = {
    "bloom": older.bloom,
    "deepseek_v2": deepseek.deepseek_v2,
    "deepseek_v3": deepseek.deepseek_v3,
    "deepseek_v32": deepseek.deepseek_v32,
    "deepseek_v4": deepseek.deepseek_v4,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3,
    "gpt2": older.gpt2,
    "gpt_neox": older.gpt_neox,
    "gpt_oss": llama.gpt_oss,
    "kimi_k2": deepseek.deepseek_v3,
    "llama": llama.llama,
    "mistral": llama.mistral,
    "olmo2": llama.olmo2,
    "olmo3": llama.olmo3,
    "phi3": llama.phi3,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "smollm3": llama.smollm3,
}
