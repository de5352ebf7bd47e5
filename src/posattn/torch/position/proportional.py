"""Proportional rotation: pairs lie across the whole head, and only the fast ones rotate."""

import torch
from jaxtyping import Float
from torch import Tensor

from posattn import contract
from posattn.torch.position.sinusoidal import frequencies
from posattn.torch.validated import validated

__all__ = ["proportional_frequencies"]


@validated
def proportional_frequencies(
    head_dim: int,
    *,
    base: float = 10000.0,
    rotary_dim: int,
    factor: float = 1.0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " m"]:
    r"""Keep the fast pairs of a whole head rotation, and stop the slow ones.

    Twin of :func:`posattn.reference.proportional_frequencies`; float64 by default.

    Args:
        head_dim: the width of a head, $d$, even.
        base: $b$, positive.
        rotary_dim: how many entries of a head rotate, $r$, even and at most $d$. A configuration's
            `partial_rotary_factor` $f$ means $r = 2 \lfloor f d / 2 \rfloor$.
        factor: $s$, how many times slower the pairs rotate, at least 1.
        dtype: of the frequencies; float64 if not given.
        device: where they are made; PyTorch's default one if not given.

    Returns:
        $\omega$ in radians per position, `(d / 2)`.

    Examples:
        >>> proportional_frequencies(8, base=16.0, rotary_dim=4)
        tensor([1.0000, 0.5000, 0.0000, 0.0000], dtype=torch.float64)
    """
    head_dim = contract.integer("head_dim", head_dim, least=1, even=True)
    rotation = contract.rotary_dim(rotary_dim, head_dim) // 2
    omega = frequencies(head_dim, base=base) / contract.factor(factor)
    omega[rotation:] = 0
    return omega.to(device, dtype)
