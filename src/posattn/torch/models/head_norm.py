"""Norms of queries and keys, and what else a configuration puts around their rotation."""

import torch
from torch import Tensor, nn

from posattn.torch.attention.temperature import log_temperature

__all__ = []


class HeadNorm(nn.Module):
    """A norm of queries or keys, `(*batch, h, n, d_h)`, as `posattn.configs.Norm` describes it.

    The weight is what the entries are multiplied by: where a model adds 1 to it, 1 is added already.
    """

    def __init__(self, norm, num_heads, head_dim, *, dtype=None, device=None):
        super().__init__()
        self.kind, self.eps, self.axes = norm.kind, norm.eps, norm.axes
        shape = (head_dim,) if norm.axes == "head" else (num_heads, 1, head_dim)
        options = {"dtype": dtype, "device": device}
        self.weight = nn.Parameter(torch.ones(shape, **options)) if norm.learned else None
        self.bias = nn.Parameter(torch.zeros(shape, **options)) if norm.offset else None

    def extra_repr(self) -> str:
        """What it does."""
        return f"{self.kind}, axes={self.axes!r}, eps={self.eps}"

    def forward(self, x: Tensor) -> Tensor:
        """Normalise in float32 or more, and round once."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        over = (-3, -1) if self.axes == "width" else (-1,)
        if self.kind == "layer":
            wide = wide - wide.mean(over, keepdim=True)
        wide = wide * (wide.square().mean(over, keepdim=True) + self.eps).rsqrt()
        wide = wide if self.weight is None else wide * self.weight
        wide = wide if self.bias is None else wide + self.bias
        return wide.to(x.dtype)


def normed(norm, x):
    """Normalise in the dtype of the weights, which under autocast is not that of what comes in."""
    return norm(x.to(norm.weight.dtype)).to(x.dtype)


class Steps(nn.Module):
    """A rotation of queries or keys with what comes before or after it.

    Args:
        rotation: the rotation, `(x, positions) -> x`; None if there is none.
        norm: acts on what has rotated; None if nothing does.
        temperature: a `posattn.configs.Temperature` of queries; None if they keep their length.
    """

    def __init__(self, rotation=None, norm=None, temperature=None):
        super().__init__()
        self.rotation, self.norm, self.temperature = rotation, norm, temperature

    def extra_repr(self) -> str:
        """What is no module."""
        named = {"rotation": self.rotation, "temperature": self.temperature}
        shown = (f"{name}={value!r}" for name, value in named.items() if value is not None)
        return ", ".join(shown)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate, normalise and scale `x`, `(*batch, h, n, d_h)`."""
        x = x if self.rotation is None else self.rotation(x, positions)
        x = x if self.norm is None else self.norm(x)
        if self.temperature is None:
            return x
        told = self.temperature
        grown = log_temperature(
            positions, told.floor, told.scale, first=told.first, smooth=told.smooth
        )
        return x * grown[..., None].to(x.dtype)
