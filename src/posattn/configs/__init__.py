"""What a model's configuration says of its attention, layer by layer; no framework is imported."""

from posattn.configs.families import FAMILIES
from posattn.configs.indexers import Indexer
from posattn.configs.layers import (
    Buckets,
    Delta,
    Disentangled,
    Latent,
    Layer,
    Norm,
    Plan,
    Profiles,
    Rope,
    Slopes,
    Temperature,
)
from posattn.configs.reading import chosen, plan
from posattn.configs.rotation import rope
from posattn.configs.tokens import tokenizer

__all__ = [
    "FAMILIES",
    "Buckets",
    "Delta",
    "Disentangled",
    "Indexer",
    "Latent",
    "Layer",
    "Norm",
    "Plan",
    "Profiles",
    "Rope",
    "Slopes",
    "Temperature",
    "chosen",
    "plan",
    "rope",
    "tokenizer",
]
