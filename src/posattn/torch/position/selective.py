"""Selective rotation: pairs rotate by angles that the tokens choose."""

import math
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from posattn import contract
from posattn.torch.position.rotary import rotate_by
from posattn.torch.validated import validated

__all__ = ["selective_rotation"]


@validated
def selective_rotation(
    x: Float[Tensor, "*batch h n d"],
    steps: Float[Tensor, "*batch one_or_h n m"],
    *,
    layout: Literal["interleaved", "half"] = "interleaved",
    state: Float[Tensor, "*batch one_or_h m"] | None = None,
) -> tuple[Float[Tensor, "*batch h n d"], Float[Tensor, "*batch one_or_h m"]]:
    r"""Rotate each pair by the sum of the steps up to its token.

    Twin of :func:`posattn.reference.selective_rotation`.
    Steps are summed in float64, and the returned angles are float64.

    Args:
        x: queries or keys, `(*batch, h, n, d)`, $d$ even.
        steps: $\theta$ in radians, `(*batch, h, n, d/2)` or `(*batch, 1, n, d/2)`.
        layout: `"interleaved"` or `"half"`.
        state: the angles of the token before the first, `(*batch, h, d/2)` or `(*batch, 1, d/2)`; zeros
            if not given.

    Returns:
        `x`, rotated, and the angles of the last token, between $-\pi$ and $\pi$.

    Examples:
        >>> import torch
        >>> x = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
        >>> selective_rotation(x, torch.tensor([[[0.0], [torch.pi / 2]]]))[0].round(decimals=4)
        tensor([[[1., 0.],
                 [-0., 1.]]])
    """
    contract.turned(x, steps, layout, state)
    before = steps.new_zeros(*steps.shape[:-2], steps.shape[-1]) if state is None else state
    before = before.double()
    angles = before[..., None, :] + steps.double().cumsum(-2)
    last = angles[..., -1, :] if steps.shape[-2] else before
    turns = (last / (2 * math.pi)).round()
    return rotate_by(x, angles.cos(), angles.sin(), layout), last - 2 * math.pi * turns
