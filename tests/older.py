"""Names that stand elsewhere in the oldest versions that pyproject.toml promises."""

import jax

if hasattr(jax, "enable_x64"):
    enable_x64 = jax.enable_x64
else:  # before 0.8
    from jax.experimental import enable_x64

__all__ = ["enable_x64"]
