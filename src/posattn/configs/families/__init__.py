"""What the attention of each family of models reads from its configuration, a function for each.

A family that another one reads stands in same.json; `nox -s record -- families` found each of them.
"""

from posattn.configs.data import data
from posattn.configs.families import (
    deepseek,
    diffusion,
    encoders,
    hybrid,
    llama,
    older,
    patterns,
    qwen,
    told,
)

MODULES = deepseek, diffusion, encoders, hybrid, llama, older, patterns, qwen, told
#: The families that are known: from a `model_type` to the function that reads it.
FAMILIES = {name: read for module in MODULES for name, read in module.FAMILIES.items()}
FAMILIES |= {name: FAMILIES[other] for name, other in data("same.json").items()}
