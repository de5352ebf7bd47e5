"""Temperature: queries that grow with their position, so that long contexts don't blur the weights."""

from jaxtyping import Float, Real
from torch import Tensor

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["log_temperature"]


@validated
def log_temperature(
    positions: Real[Tensor, "*batch n"],
    trained_length: float,
    scale: float = 0.1,
    *,
    first: int = 1,
    smooth: bool = False,
) -> Float[Tensor, "*batch n"]:
    """The factor on a query that grows with the logarithm of its position.

    Twin of :func:`posattn.reference.log_temperature`; float64, to be rounded to the dtype of queries.

    Args:
        positions: p, `(*batch, n)`.
        trained_length: L, above 0, in tokens.
        scale: beta.
        first: a, what position 0 counts as.
        smooth: grow with every position, and not in steps of L.

    Returns:
        The factor, `(*batch, n)`, float64.

    Examples:
        >>> import torch
        >>> log_temperature(torch.tensor([0, 8190, 8191]), 8192).float()
        tensor([1.0000, 1.0000, 1.0693])
    """
    contract.positions("positions", positions)
    first, length = (
        contract.integer("first", first),
        contract.positive("trained_length", trained_length),
    )
    share = (positions.double() + first) / length
    grown = share.clamp(min=1).log() if smooth else share.floor().log1p()
    return 1 + contract.finite("scale", scale) * grown
