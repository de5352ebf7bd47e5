"""Dtypes of projections: what a layer makes of its input, which autocast may decide."""

import torch
from torch import Tensor

__all__ = []


def autocasts(kind):
    """Whether PyTorch chooses the dtype of each operation on devices of a kind."""
    return kind != "meta" and torch.is_autocast_enabled(kind)


def floating_weight(linear):
    """The weight of a projection; None if it is quantized, which may keep anything under that name."""
    weight = getattr(linear, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.is_floating_point() else None


def made_by(linear, dtype, device):
    """The dtype of what a projection returns, and its device, unless others are asked for."""
    weight = floating_weight(linear)
    if device is None:
        device = torch.get_default_device() if weight is None else weight.device
    kind = torch.device(device).type
    if dtype is None and autocasts(kind):
        dtype = torch.get_autocast_dtype(kind)
    elif dtype is None and weight is not None:
        dtype = weight.dtype
    return dtype, device
