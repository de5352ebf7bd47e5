"""Randomised positions: short sequences that have seen large positions."""

import torch
from jaxtyping import Integer
from torch import Tensor

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["randomized_positions"]


@validated
def randomized_positions(
    length: int,
    max_len: int,
    *,
    rng: torch.Generator,
    device: torch.device | str | None = None,
) -> Integer[Tensor, " n"]:
    """Draw positions for a sequence, in order, from a range that is wider than the sequence.

    Twin of :func:`posattn.reference.randomized_positions`; the result lives on `device`, or where
    `rng` draws.

    Args:
        length: n, the number of tokens, at most `max_len`.
        max_len: L, the number of positions to draw from, at least 1.
        rng: where the numbers are drawn from.
        device: where the result lives.

    Returns:
        `(n)`, increasing integers from 0 to L - 1.

    Examples:
        >>> randomized_positions(3, 3, rng=torch.Generator())
        tensor([0, 1, 2])
    """
    length, max_len = contract.sample(length, max_len)
    shuffled = torch.randperm(max_len, generator=rng, device=rng.device)
    return shuffled[:length].sort().values.to(device)
