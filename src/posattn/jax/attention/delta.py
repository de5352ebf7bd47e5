"""The delta rule: a token replaces what the state said about its key."""

from jax import Array
from jaxtyping import Float

from posattn import contract
from posattn.jax.attention.chunks import recur
from posattn.jax.attention.linear import Documents, Mask, State
from posattn.jax.validated import validated

__all__ = ["gated_delta", "kimi_delta"]


@validated
def gated_delta(
    query: Float[Array, "*batch h_k n d_k"],
    key: Float[Array, "*batch h_k n d_k"],
    value: Float[Array, "*batch h n d_v"],
    log_gates: Float[Array, "*batch h n"],
    beta: Float[Array, "*batch h n"],
    *,
    state: State | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
    scale: float | None = None,
) -> tuple[Float[Array, "*batch h n d_v"], State]:
    r"""The gated delta rule: the state fades, then the token corrects what it says about its key.

    Twin of :func:`posattn.reference.gated_delta`, in chunks of 64 tokens; a single token is computed by
    the recurrence.
    Half precision is computed in float32, and the state stays float32.

    Args:
        query: $\mathbf{q}$, `(*batch, h_k, n, d_k)`.
        key: $\mathbf{k}$, of the same shape, taken as it is.
        value: $\mathbf{v}$, `(*batch, h, n, d_v)`; each head of keys serves as many neighboring heads.
        log_gates: $g$, `(*batch, h, n)`, none above 0.
        beta: $\beta$, how much of the difference is written, `(*batch, h, n)`.
        state: $\mathbf{S}$ before the first token, `(*batch, h, d_k, d_v)`; zeros if not given.
        mask: bool, `(n)` or `(*batch, n)`, True is a token.
        documents: integers, `(n)` or `(*batch, n)`, another number for another document.
        scale: $c$, $1/\sqrt{d_k}$ if not given.

    Returns:
        The outputs, `(*batch, h, n, d_v)`, and the state after the last token.

    Examples:
        >>> import jax.numpy as jnp
        >>> key = jnp.array([[[1.0, 0.0], [1.0, 0.0]]])
        >>> value, gates = jnp.array([[[2.0], [5.0]]]), jnp.zeros((1, 2))
        >>> gated_delta(key, key, value, gates, jnp.ones((1, 2)), scale=1.0)[0][0, :, 0]
        Array([2., 5.], dtype=float32)
    """
    sizes = contract.recurrence(query, key, value, log_gates, beta, scale)
    return recur(sizes, query, key, value, log_gates, beta, state, mask, documents)


@validated
def kimi_delta(
    query: Float[Array, "*batch h_k n d_k"],
    key: Float[Array, "*batch h_k n d_k"],
    value: Float[Array, "*batch h n d_v"],
    log_gates: Float[Array, "*batch h n d_k"],
    beta: Float[Array, "*batch h n"],
    *,
    state: State | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
    scale: float | None = None,
) -> tuple[Float[Array, "*batch h n d_v"], State]:
    r"""Kimi's delta rule: the gated delta rule with a gate for each channel of the keys.

    Twin of :func:`posattn.reference.kimi_delta`, computed as :func:`gated_delta` is.
    Decays within a chunk are products of factors of at most 1, so no gate overflows.

    Args:
        query: $\mathbf{q}$, `(*batch, h_k, n, d_k)`.
        key: $\mathbf{k}$, of the same shape.
        value: $\mathbf{v}$, `(*batch, h, n, d_v)`.
        log_gates: $\mathbf{g}$, `(*batch, h, n, d_k)`, none above 0.
        beta: $\beta$, `(*batch, h, n)`.
        state: as in :func:`gated_delta`, like all that follow.
        mask: True is a token.
        documents: integers, one for each token.
        scale: $c$, $1/\sqrt{d_k}$ if not given.

    Returns:
        The outputs, `(*batch, h, n, d_v)`, and the state after the last token.

    Examples:
        >>> import jax.numpy as jnp
        >>> key = jnp.array([[[1.0, 1.0], [1.0, 1.0]]])
        >>> value, beta = jnp.array([[[3.0], [0.0]]]), jnp.array([[1.0, 0.0]])
        >>> gates = jnp.array([[[0.0, 0.0], [-1000.0, 0.0]]])
        >>> kimi_delta(key, key, value, gates, beta, scale=1.0)[1][0, :, 0]
        Array([0., 3.], dtype=float32)
    """
    sizes = contract.recurrence(query, key, value, log_gates, beta, scale, gates="channel")
    return recur(sizes, query, key, value, log_gates, beta, state, mask, documents)
