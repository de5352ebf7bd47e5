"""Norms of queries and keys, and what else a configuration puts around their rotation."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from posattn.jax.attention.temperature import log_temperature
from posattn.jax.trees import as_pytree, register

__all__ = []

STATIC = {"static": True}


@register
@dataclass(frozen=True, eq=False)
class HeadNorm:
    """A norm of queries or keys, `(*batch, h, n, d_h)`, as `posattn.configs.Norm` describes it.

    Args:
        weight: what the entries are multiplied by: where a model adds 1 to it, 1 is added already; or None.
        bias: what is added to them, or None.
        norm: the description.
    """

    weight: Array | None
    bias: Array | None
    norm: Any = field(metadata=STATIC)

    @classmethod
    def init(cls, norm, num_heads, head_dim, dtype=None):
        """A norm that multiplies by 1 and adds 0."""
        shape = (head_dim,) if norm.axes == "head" else (num_heads, 1, head_dim)
        return cls(
            jnp.ones(shape, dtype) if norm.learned else None,
            jnp.zeros(shape, dtype) if norm.offset else None,
            norm,
        )

    def __call__(self, x):
        """Normalise in float32 or more, and round once."""
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        over = (-3, -1) if self.norm.axes == "width" else (-1,)
        if self.norm.kind == "layer":
            wide = wide - wide.mean(over, keepdims=True)
        square = (wide**2).mean(over, keepdims=True)
        wide = wide * jax.lax.rsqrt(square + self.norm.eps)
        wide = wide if self.weight is None else wide * self.weight
        wide = wide if self.bias is None else wide + self.bias
        return wide.astype(x.dtype)


@register
@dataclass(frozen=True, eq=False)
class Steps:
    """A rotation of queries or keys with what comes before or after it.

    Args:
        rotation: the rotation, `(x, positions) -> x`; None if there is none.
        norm: acts on what has rotated; None if nothing does.
        temperature: a `posattn.configs.Temperature` of queries; None if they keep their length.
    """

    rotation: Any = None
    norm: HeadNorm | None = None
    temperature: Any = field(default=None, metadata=STATIC)

    def __post_init__(self):
        object.__setattr__(self, "rotation", as_pytree(self.rotation))

    def __call__(self, x, positions):
        """Rotate, normalise and scale `x`, `(*batch, h, n, d_h)`."""
        x = x if self.rotation is None else self.rotation(x, positions)
        x = x if self.norm is None else self.norm(x)
        if self.temperature is None:
            return x
        told = self.temperature
        grown = log_temperature(
            positions, told.floor, told.scale, first=told.first, smooth=told.smooth
        )
        return x * grown[..., None].astype(x.dtype)


def normed(x, weight, eps):
    """Divide by the root mean square, in float32 or more, and round once."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    square = jnp.mean(wide**2, axis=-1, keepdims=True)
    return (weight * wide * jax.lax.rsqrt(square + eps)).astype(x.dtype)
