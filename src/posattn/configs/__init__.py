"""What a model's configuration says of its attention, layer by layer; no framework is imported."""

from posattn.configs.layers import (
    Buckets,
    Latent,
    Layer,
    Norm,
    Plan,
    Rope,
    Slopes,
    Temperature,
)
from posattn.configs.reading import chosen, plan
from posattn.configs.rotation import rope

__all__ = [
    "Buckets",
    "Latent",
    "Layer",
    "Norm",
    "Plan",
    "Rope",
    "Slopes",
    "Temperature",
    "chosen",
    "plan",
    "rope",
]
