"""Randomness: dropout, and numbers that are a function of a seed and of their place."""

import math
import warnings

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.utils.module_tracker import ModuleTracker

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["dropout"]

Rng = torch.Generator | int | Integer[Tensor, ""]


@validated
def dropout(
    x: Float[Tensor, "*shape"], dropout_rate: float, rng: Rng | None = None
) -> Float[Tensor, "*shape"]:
    """Set entries to zero at random and scale the others, so that the mean stays.

    Twin of :func:`posattn.reference.dropout`.

    Args:
        x: any shape.
        dropout_rate: the probability p in [0, 1).
        rng: where the numbers are drawn from.

    Returns:
        y, of the same shape.

    Examples:
        >>> kept = dropout(torch.ones(1000), 0.5, torch.Generator().manual_seed(0))
        >>> kept.unique()
        tensor([0., 2.])
    """
    contract.floating("x", x)
    return thin(x, contract.dropout_rate(dropout_rate), seed(rng))


def thin(x, rate, rng, place=None):
    """Drop entries of `x`, which may be a part of a larger array: see `uniform`."""
    if rng is None or rate == 0:
        return x
    return x * (uniform(rng, x.shape, x.device, place) >= rate) / (1 - rate)


def seed(rng):
    """A number that fixes what is drawn: `rng` itself, or the next one of a generator."""
    whole = isinstance(rng, Tensor) and rng.ndim == 0 and not rng.is_floating_point()
    # of a tensor, torch.compile does not know whether it is a generator (torch 2.15)
    if whole or not isinstance(rng, torch.Generator):
        contract.rng(
            rng,
            rng is None or whole or contract.is_index(rng),
            "torch.Generator, or a seed: an integer or a tensor () of one",
        )
        return rng
    if ModuleTracker().is_bw:
        raise ValueError(
            "rng must be a seed where a forward pass is computed again (checkpointing), got a "
            "torch.Generator, which would draw other numbers than at first"
        )
    return torch.randint(2**63 - 1, (), generator=rng, device=rng.device)


def uniform(seed, shape, device, place=None):
    """Numbers in [0, 1), a function of the seed and of their place: SplitMix64 at that place.

    What is given as `place` says of which array the last two axes are a part: in which row
    and column they start, and how many rows and columns it has.
    """
    start = _mix(torch.as_tensor(seed, dtype=torch.int64, device=device) + 1)
    if place is None:
        places = torch.arange(math.prod(shape), device=device).reshape(shape)
    else:
        *batch, n, m = shape
        row, column, rows, columns = place
        places = torch.arange(math.prod(batch), device=device).reshape(*batch, 1, 1) * rows
        places = (places + torch.arange(row, row + n, device=device)[:, None]) * columns
        places = places + torch.arange(column, column + m, device=device)
    return (_mix(start + places * _GAMMA) >> 11 & (1 << 53) - 1).double() * 2.0**-53


_GAMMA = 0x9E3779B97F4A7C15 - 2**64


def _mix(z):
    """The output function of SplitMix64, on 64-bit integers that wrap around."""
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * (0x94D049BB133111EB - 2**64)
    return z ^ (z >> 31 & (1 << 33) - 1)


def warn_of_no_dropout(layer, rng):
    """Say that a layer in training drops nothing, because nothing was given to draw from."""
    silent = layer.training and layer.dropout_rate > 0 and rng is None
    if silent and not torch.compiler.is_compiling():
        warnings.warn(
            f"{type(layer).__name__} is in training with dropout_rate = {layer.dropout_rate}, but "
            "drops nothing without rng: give the call a seed or a torch.Generator",
            stacklevel=3,
        )
