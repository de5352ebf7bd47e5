"""Linear attention: without the softmax, the past is a state of fixed size."""

from jaxtyping import Bool, Float, Integer
from torch import Tensor

from posattn import contract
from posattn.torch.attention.chunks import recur
from posattn.torch.validated import validated

__all__ = ["linear_attention"]

Mask = Bool[Tensor, "*#batch n"]
Documents = Integer[Tensor, "*#batch n"]
State = Float[Tensor, "*batch h d_k d_v"]


@validated
def linear_attention(
    query: Float[Tensor, "*batch h_k n d_k"],
    key: Float[Tensor, "*batch h_k n d_k"],
    value: Float[Tensor, "*batch h n d_v"],
    log_gates: Float[Tensor, "*gates"] | None = None,
    *,
    state: State | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
    scale: float | None = None,
) -> tuple[Float[Tensor, "*batch h n d_v"], State]:
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
        >>> import torch
        >>> key = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
        >>> value = torch.tensor([[[2.0], [3.0], [5.0]]])
        >>> linear_attention(key, key, value, scale=1.0)[0][0, :, 0]
        tensor([2., 3., 7.])
    """
    sizes = contract.recurrence(query, key, value, log_gates, factor=scale, gates="either")
    return recur(sizes, query, key, value, log_gates, None, state, mask, documents)
