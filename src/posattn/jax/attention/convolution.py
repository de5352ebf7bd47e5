"""Short convolutions: each channel is a weighted sum of its last few tokens."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from posattn import contract
from posattn.jax.attention.documents import document_starts
from posattn.jax.attention.linear import Documents, Mask
from posattn.jax.validated import validated

__all__ = ["short_convolution"]


@validated
def short_convolution(
    x: Float[Array, "*batch n c"],
    weight: Float[Array, "c k"],
    offset: Float[Array, " c"] | None = None,
    *,
    state: Float[Array, "*batch past c"] | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
) -> tuple[Float[Array, "*batch n c"], Float[Array, "*batch past c"]]:
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
        >>> x, weight = jnp.array([[1.0], [10.0], [100.0]]), jnp.array([[2.0, 3.0]])
        >>> short_convolution(x, weight)[0][:, 0]
        Array([  3.,  32., 320.], dtype=float32)
    """
    contract.convolved(x, weight, offset, state)
    *batch, n, width = x.shape
    contract.passed(mask, documents, batch, n)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    past = weight.shape[1] - 1
    number = None  # of the document of each token
    if documents is not None:
        starts = document_starts(documents, mask, (*batch, n))
        number = jnp.cumsum(starts, axis=-1)[..., None]
    if mask is not None:
        # tokens first and padding last, so that the taps reach across padding
        mask = jnp.broadcast_to(mask, (*batch, n))[..., None]
        order = jnp.argsort(~mask, axis=-2, stable=True)
        x = jnp.take_along_axis(jnp.where(mask, x, 0), order, axis=-2)
        number = None if number is None else jnp.take_along_axis(number, order, axis=-2)
    before = jnp.zeros((*batch, past, width)) if state is None else state
    x = jnp.concatenate([before.astype(x.dtype), x], axis=-2)
    if number is not None:
        first = jnp.zeros((*batch, past, 1), number.dtype)
        number = jnp.concatenate([first, number], axis=-2)
    output = 0
    for i, tap in enumerate(weight.T.astype(wide)):
        part = x[..., i : i + n, :].astype(wide)
        if number is not None:
            same = number[..., i : i + n, :] == number[..., past:, :]
            part = jnp.where(same, part, 0)
        output = output + tap * part
    output = output if offset is None else output + offset.astype(wide)
    output = output.astype(x.dtype)
    if mask is None and number is None:
        return output, x[..., n:, :]
    last = jnp.broadcast_to(jnp.arange(n, n + past)[:, None], (*batch, past, 1))
    if mask is not None:
        place = jnp.maximum(jnp.cumsum(mask, axis=-2) - 1, 0)
        output = jnp.where(mask, jnp.take_along_axis(output, place, axis=-2), 0)
        last = last - n + jnp.sum(mask, axis=-2, keepdims=True)
    state = jnp.take_along_axis(x, last, axis=-2)
    if number is not None and past:
        number = jnp.take_along_axis(number, last, axis=-2)
        state = jnp.where(number == number[..., -1:, :], state, 0)
    return output, state
