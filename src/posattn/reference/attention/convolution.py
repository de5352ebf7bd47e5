"""Short convolutions: each channel is a weighted sum of its last few tokens."""

import numpy as np
from jaxtyping import Inexact

from posattn import contract
from posattn.reference.attention.documents import document_starts
from posattn.reference.attention.linear import Documents, Mask
from posattn.reference.validated import validated

__all__ = ["short_convolution"]


@validated
def short_convolution(
    x: Inexact[np.ndarray, "*batch n c"],
    weight: Inexact[np.ndarray, "c k"],
    offset: Inexact[np.ndarray, " c"] | None = None,
    *,
    state: Inexact[np.ndarray, "*batch past c"] | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
) -> tuple[Inexact[np.ndarray, "*batch n c"], Inexact[np.ndarray, "*batch past c"]]:
    r"""A causal convolution of each channel with a few weights of its own.

    .. math:: \mathbf{y}_t = \mathbf{b} + \sum_{s=0}^{k-1} \mathbf{w}_{k-1-s} \odot \mathbf{x}_{t-s} .

    The last tap $\mathbf{w}_{k-1}$ multiplies the token itself.
    Tokens before the first are zeros, or the inputs that `state` holds.
    Layers with a recurrent state put one before it, with four taps. It gives each token its neighbors
    in order, which is a first sense of position.

    What it guarantees: a text cut into several calls has the outputs of one call, and a packed document
    those that it has alone.
    Tokens that `mask` hides are treated as absent. The taps reach across them, wherever they stand.

    Args:
        x: `(*batch, n, c)`.
        weight: $\mathbf{w}$, `(c, k)`, the last tap for the token itself.
        offset: $\mathbf{b}$, `(c)`; none if not given.
        state: the last $k - 1$ inputs before the first token, `(*batch, k - 1, c)`; zeros if not given.
        mask: bool, `(n)` or `(*batch, n)`, True is a token. The outputs of others are zeros.
        documents: integers, `(n)` or `(*batch, n)`. Where the number changes, another document starts,
            before which there are zeros.

    Returns:
        $\mathbf{y}$, `(*batch, n, c)`, and the last $k - 1$ inputs, `(*batch, k - 1, c)`, which are zeros
        where they would lie before the last document.

    Raises:
        ValueError: if shapes do not fit, or `weight` has no taps.

    Examples:
        >>> x = np.array([[1.0], [10.0], [100.0]])
        >>> weight = np.array([[2.0, 3.0]])
        >>> output, state = short_convolution(x, weight)
        >>> output[:, 0]
        array([  3.,  32., 320.])
        >>> state
        array([[100.]])
        >>> short_convolution(x, weight, documents=np.array([0, 1, 1]))[0][:, 0]
        array([  3.,  30., 320.])
    """
    contract.convolved(x, weight, offset, state)
    *batch, n, width = x.shape
    contract.passed(mask, documents, batch, n)
    seen = np.broadcast_to(True if mask is None else mask, (*batch, n))[..., None]
    starts = document_starts(documents, mask, (*batch, n))[..., None]
    given = [a for a in (x, weight, offset, state) if a is not None]
    dtype = np.result_type(np.float64, *given)
    outputs = np.zeros(x.shape, dtype)
    taps = weight.T
    if state is None:
        state = np.zeros((*batch, len(taps) - 1, width))
    state = state.astype(dtype)
    for t in range(n):
        before = np.where(starts[..., t, :, None], 0, state)
        window = np.concatenate([before, x[..., t : t + 1, :]], axis=-2)
        output = np.sum(taps * window, axis=-2) + (0 if offset is None else offset)
        outputs[..., t, :] = np.where(seen[..., t, :], output, 0)
        state = np.where(seen[..., t, :, None], window[..., 1:, :], state)
    return outputs, state
