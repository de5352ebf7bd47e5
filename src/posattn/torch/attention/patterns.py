"""Patterns of attention: how much of its weight a head puts where a simple rule says."""

from jaxtyping import Float
from torch import Tensor

from posattn import contract
from posattn.torch.validated import validated

__all__ = ["first_token_score", "induction_score", "previous_token_score"]

Weights = Float[Tensor, "*batch h n n"]


@validated
def previous_token_score(weights: Weights, distance: int = 1) -> Float[Tensor, "*batch h"]:
    """The mean weight on the token a fixed distance before each token.

    Twin of :func:`posattn.reference.previous_token_score`.

    Args:
        weights: of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.
        distance: from 0 to n - 1.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Examples:
        >>> import torch
        >>> weights = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]])
        >>> print(previous_token_score(weights))
        tensor([0.7500])
        >>> print(previous_token_score(weights, 2))
        tensor([0.2500])
    """
    distance = contract.pattern_distance(weights, "distance", distance, least=0)
    return _back(weights, distance).mean(-1)


@validated
def induction_score(weights: Weights, period: int) -> Float[Tensor, "*batch h"]:
    """The mean weight from a repeated token to the token after its earlier occurrence.

    Twin of :func:`posattn.reference.induction_score`.

    Args:
        weights: of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.
        period: after how many tokens the sequence repeats, from 1 to n - 1.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Examples:
        >>> import torch
        >>> weights = torch.eye(4)[None]
        >>> weights[0, 2:] = torch.tensor([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0]])
        >>> print(induction_score(weights, 2))
        tensor([0.7500])
    """
    period = contract.pattern_distance(weights, "period", period, least=1)
    return _back(weights, period - 1)[..., 1:].mean(-1)


@validated
def first_token_score(weights: Weights) -> Float[Tensor, "*batch h"]:
    """The mean weight that the other tokens put on the first: what a sink receives.

    Twin of :func:`posattn.reference.first_token_score`.

    Args:
        weights: of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Examples:
        >>> import torch
        >>> weights = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]])
        >>> print(first_token_score(weights))
        tensor([0.6250])
    """
    contract.pattern(weights, least=2)
    return weights[..., 1:, 0].mean(-1)


def _back(weights, distance):
    """The weights on the token that stands so far before each."""
    return weights.diagonal(-distance, -2, -1)
