"""What the attention of each family of models reads from its configuration, a function for each."""

from posattn.configs.families import gemma, llama, older

__all__ = ["FAMILIES"]

FAMILIES = {
    "bloom": older.bloom,
    "gemma": gemma.gemma,
    "gemma2": gemma.gemma2,
    "gemma3_text": gemma.gemma3,
    "gpt2": older.gpt2,
    "gpt_neox": older.gpt_neox,
    "gpt_oss": llama.gpt_oss,
    "llama": llama.llama,
    "mistral": llama.mistral,
    "olmo2": llama.olmo2,
    "olmo3": llama.olmo3,
    "phi3": llama.phi3,
    "qwen2": llama.qwen2,
    "qwen3": llama.qwen3,
    "smollm3": llama.smollm3,
}
