"""What the attention of each family of models reads from its configuration, a function for each."""

from posattn.configs.families import (
    deepseek,
    diffusion,
    encoders,
    hybrid,
    llama,
    older,
    patterns,
    qwen,
)

__all__ = ["FAMILIES"]

MODULES = deepseek, diffusion, encoders, hybrid, llama, older, patterns, qwen
#: The families that are known: from a `model_type` to the function that reads it.
FAMILIES = {name: read for module in MODULES for name, read in module.FAMILIES.items()}
