"""What a model's configuration says of its attention, layer by layer; no framework is imported."""

from posattn.configs.plan import (
    Buckets,
    Latent,
    Layer,
    Norm,
    Plan,
    Rope,
    Slopes,
    Temperature,
)

__all__ = ["Buckets", "Latent", "Layer", "Norm", "Plan", "Rope", "Slopes", "Temperature"]
