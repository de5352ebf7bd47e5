"""Patterns of attention: how much of its weight a head puts where a simple rule says."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from posattn import contract
from posattn.jax.validated import validated

__all__ = ["first_token_score", "induction_score", "previous_token_score"]

Weights = Float[Array, "*batch h n n"]


@validated
def previous_token_score(weights: Weights, distance: int = 1) -> Float[Array, "*batch h"]:
    """The mean weight on the token a fixed distance before each token.

    Twin of :func:`posattn.reference.previous_token_score`.

    Args:
        weights: of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.
        distance: from 0 to n - 1.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Examples:
        >>> import jax.numpy as jnp
        >>> weights = jnp.array([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]])
        >>> print(previous_token_score(weights))
        [0.75]
        >>> print(previous_token_score(weights, 2))
        [0.25]
    """
    distance = contract.pattern_distance(weights, "distance", distance, least=0)
    return _back(weights, distance).mean(axis=-1)


@validated
def induction_score(weights: Weights, period: int) -> Float[Array, "*batch h"]:
    """The mean weight from a repeated token to the token after its earlier occurrence.

    Twin of :func:`posattn.reference.induction_score`.

    Args:
        weights: of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.
        period: after how many tokens the sequence repeats, from 1 to n - 1.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Examples:
        >>> import jax.numpy as jnp
        >>> later = jnp.array([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0]])
        >>> weights = jnp.eye(4)[None].at[0, 2:].set(later)
        >>> print(induction_score(weights, 2))
        [0.75]
    """
    period = contract.pattern_distance(weights, "period", period, least=1)
    return _back(weights, period - 1)[..., 1:].mean(axis=-1)


@validated
def first_token_score(weights: Weights) -> Float[Array, "*batch h"]:
    """The mean weight that the other tokens put on the first: what a sink receives.

    Twin of :func:`posattn.reference.first_token_score`.

    Args:
        weights: of each head, as `attention_weights` returns them, `(*batch, h, n, n)`.

    Returns:
        A score from 0 to 1 for each head, `(*batch, h)`.

    Examples:
        >>> import jax.numpy as jnp
        >>> weights = jnp.array([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.5, 0.25]]])
        >>> print(first_token_score(weights))
        [0.625]
    """
    contract.pattern(weights, least=2)
    return weights[..., 1:, 0].mean(axis=-1)


def _back(weights, distance):
    """The weights on the token that stands so far before each."""
    return jnp.diagonal(weights, -distance, -2, -1)
