"""Linear attention: without the softmax, the past is a state of fixed size."""

import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer

from posattn import contract
from posattn.jax.attention.chunks import recur
from posattn.jax.validated import validated

__all__ = ["linear_attention"]

Mask = Bool[Array | np.ndarray, "*#batch n"]
Documents = Integer[Array | np.ndarray, "*#batch n"]
State = Float[Array, "*batch h d_k d_v"]


@validated
def linear_attention(
    query: Float[Array, "*batch h_k n d_k"],
    key: Float[Array, "*batch h_k n d_k"],
    value: Float[Array, "*batch h n d_v"],
    log_gates: Float[Array, "*gates"] | None = None,
    *,
    state: State | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
    scale: float | None = None,
) -> tuple[Float[Array, "*batch h n d_v"], State]:
    r"""Causal attention without the softmax, computed from a state that tokens pass on.

    Twin of :func:`posattn.reference.linear_attention`, in chunks of 64 tokens; a single token is computed by
    the recurrence.
    Half precision is computed in float32, and the state stays float32.

    Args:
        query: $\mathbf{q}$, `(*batch, h_k, n, d_k)`.
        key: $\mathbf{k}$, of the same shape.
        value: $\mathbf{v}$, `(*batch, h, n, d_v)`; each head of keys serves as many neighboring heads.
        log_gates: $\mathbf{g}$, `(*batch, h, n)` or `(*batch, h, n, d_k)`, none above 0; 0 if not given.
            A gate below -1000 counts as one of -1000.
        state: $\mathbf{S}$ before the first token, `(*batch, h, d_k, d_v)`; zeros if not given.
        mask: bool, `(n)` or `(*batch, n)`, True is a token.
        documents: integers, `(n)` or `(*batch, n)`, another number for another document.
        scale: $c$, $1/\sqrt{d_k}$ if not given.

    Returns:
        The outputs, `(*batch, h, n, d_v)`, and the state after the last token.

    Examples:
        >>> import jax.numpy as jnp
        >>> key = jnp.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
        >>> value = jnp.array([[[2.0], [3.0], [5.0]]])
        >>> linear_attention(key, key, value, scale=1.0)[0][0, :, 0]
        Array([2., 3., 7.], dtype=float32)
    """
    sizes = contract.recurrence(query, key, value, log_gates, factor=scale, gates="either")
    return recur(sizes, query, key, value, log_gates, None, state, mask, documents)
