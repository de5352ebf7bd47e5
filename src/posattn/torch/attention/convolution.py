"""Short convolutions: each channel is a weighted sum of its last few tokens."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from posattn import contract
from posattn.torch.attention.documents import document_starts
from posattn.torch.attention.linear import Documents, Mask
from posattn.torch.validated import validated

__all__ = ["short_convolution"]


@validated
def short_convolution(
    x: Float[Tensor, "*batch n c"],
    weight: Float[Tensor, "c k"],
    offset: Float[Tensor, " c"] | None = None,
    *,
    state: Float[Tensor, "*batch past c"] | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
) -> tuple[Float[Tensor, "*batch n c"], Float[Tensor, "*batch past c"]]:
    r"""A causal convolution of each channel with a few weights of its own.

    Twin of :func:`posattn.reference.short_convolution`.
    Half precision is added up in float32.

    Args:
        x: `(*batch, n, c)`.
        weight: $\mathbf{w}$, `(c, k)`, the last tap for the token itself.
        offset: $\mathbf{b}$, `(c)`; none if not given.
        state: the last $k - 1$ inputs before the first token, `(*batch, k - 1, c)`; zeros if not given.
        mask: bool, `(n)` or `(*batch, n)`, True is a token.
        documents: integers, `(n)` or `(*batch, n)`, another number for another document.

    Returns:
        $\mathbf{y}$, `(*batch, n, c)`, and the last $k - 1$ inputs, `(*batch, k - 1, c)`,
        in the dtype of `x`.

    Examples:
        >>> x, weight = torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([[2.0, 3.0]])
        >>> short_convolution(x, weight)[0][:, 0]
        tensor([  3.,  32., 320.])
    """
    contract.convolved(x, weight, offset, state)
    *batch, n, width = x.shape
    contract.passed(mask, documents, batch, n)
    wide = torch.promote_types(x.dtype, torch.float32)
    past = weight.shape[1] - 1
    number = None  # of the document of each token
    if documents is not None:
        number = document_starts(documents, mask).cumsum(-1).expand(*batch, n)[..., None]
    if mask is not None:
        # tokens first and padding last, so that the taps reach across padding
        mask = mask.expand(*batch, n)[..., None]
        order = torch.argsort((~mask).byte(), dim=-2, stable=True)
        x = x.masked_fill(~mask, 0).take_along_dim(order, -2)
        number = None if number is None else number.take_along_dim(order, -2)
    before = x.new_zeros(*batch, past, width) if state is None else state.to(x.dtype)
    x = torch.cat([before, x], -2)
    if number is not None:
        number = functional.pad(number, (0, 0, past, 0))
    output = 0
    for i, tap in enumerate(weight.to(wide).unbind(-1)):
        part = x[..., i : i + n, :].to(wide)
        if number is not None:
            part = part.masked_fill(number[..., i : i + n, :] != number[..., past:, :], 0)
        output = output + tap * part
    output = (output if offset is None else output + offset.to(wide)).to(x.dtype)
    if mask is None and number is None:
        return output, x[..., n:, :]
    last = torch.arange(n, n + past, device=x.device)[:, None].expand(*batch, past, 1)
    if mask is not None:
        place = (mask.cumsum(-2) - 1).clamp(min=0)
        output = output.take_along_dim(place, -2).masked_fill(~mask, 0)
        last = last - n + mask.sum(-2, keepdim=True)
    state = x.take_along_dim(last, -2)
    if number is not None and past:
        number = number.take_along_dim(last, -2)
        state = state.masked_fill(number != number[..., -1:, :], 0)
    return output, state
