"""Patterns of attention: how much of its weight a head puts where a simple rule says."""

import numpy as np
from jaxtyping import Inexact

from posattn import contract
from posattn.reference.attention.attention import _double
from posattn.reference.validated import validated

__all__ = ["first_token_score", "induction_score", "previous_token_score"]

Weights = Inexact[np.ndarray, "*batch h n n"]


@validated
def previous_token_score(
    weights: Weights, distance: int = 1
) -> Inexact[np.ndarray, "*batch h"]:
    r"""The mean weight on the token a fixed distance before each token.

    .. math:: \frac{1}{n - r} \sum_{i=r}^{n-1} w_{i,\,i-r} .

    A head that always looks at the token right before scores 1 at distance $r = 1$.

    Args:
        weights: $w$ of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.
        distance: $r$, from 0 to $n - 1$.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Raises:
        ValueError: if `weights` are not square or `distance` is not below $n$.

    Examples:
        >>> weights = np.array([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]])
        >>> print(previous_token_score(weights))
        [0.75]
        >>> print(previous_token_score(weights, 2))
        [0.25]

    References:
        :cite:t:`elhage2021framework`.
    """
    distance = contract.pattern_distance(weights, "distance", distance, least=0)
    return _back(weights, distance).mean(axis=-1)


@validated
def induction_score(weights: Weights, period: int) -> Inexact[np.ndarray, "*batch h"]:
    r"""The mean weight from a repeated token to the token after its earlier occurrence.

    .. math:: \frac{1}{n - P} \sum_{i=P}^{n-1} w_{i,\,i-P+1} .

    Take the weights of a random sequence of $P$ tokens that is repeated.
    An induction head finds what came after the same token a period before, and so can copy it.
    What is learned from other texts cannot help in a random one.

    Args:
        weights: $w$ of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.
        period: $P$, after how many tokens the sequence repeats, from 1 to $n - 1$.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Raises:
        ValueError: if `weights` are not square or `period` is not below $n$.

    Examples:
        The tokens 7, 3, 7, 3: the last two look at 3 and at 7, what came after their like.

        >>> weights = np.eye(4)[None]
        >>> weights[0, 2:] = [[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0]]
        >>> print(induction_score(weights, 2))
        [0.75]

    References:
        :cite:t:`elhage2021framework` and :cite:t:`olsson2022context`.
    """
    period = contract.pattern_distance(weights, "period", period, least=1)
    return _back(weights, period - 1)[..., 1:].mean(axis=-1)


@validated
def first_token_score(weights: Weights) -> Inexact[np.ndarray, "*batch h"]:
    r"""The mean weight that the other tokens put on the first: what a sink receives.

    .. math:: \frac{1}{n - 1} \sum_{i=1}^{n-1} w_{i,\,0} .

    Args:
        weights: $w$ of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Raises:
        ValueError: if `weights` are not square or there is no other token.

    Examples:
        >>> weights = np.array([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]])
        >>> print(first_token_score(weights))
        [0.625]

    References:
        :cite:t:`xiao2024efficient`.
    """
    contract.pattern(weights, least=2)
    return _double(weights)[..., 1:, 0].mean(axis=-1)


def _back(weights, distance):
    """The weights on the token that stands so far before each."""
    return np.diagonal(_double(weights), -distance, -2, -1)
