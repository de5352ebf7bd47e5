"""Linear attention: without the softmax, the past is a state of fixed size."""

import numpy as np
from jaxtyping import Bool, Inexact, Integer

from posattn import contract
from posattn.reference.attention.documents import document_starts
from posattn.reference.validated import validated

__all__ = ["linear_attention"]

Mask = Bool[np.ndarray, "*#batch n"]
Documents = Integer[np.ndarray, "*#batch n"]
State = Inexact[np.ndarray, "*batch h d_k d_v"]


@validated
def linear_attention(
    query: Inexact[np.ndarray, "*batch h_k n d_k"],
    key: Inexact[np.ndarray, "*batch h_k n d_k"],
    value: Inexact[np.ndarray, "*batch h n d_v"],
    log_gates: Inexact[np.ndarray, "*gates"] | None = None,
    *,
    state: State | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
    scale: float | None = None,
) -> tuple[Inexact[np.ndarray, "*batch h n d_v"], State]:
    r"""Causal attention without the softmax, computed from a state that tokens pass on.

    .. math:: \mathbf{S}_t = \operatorname{diag}(e^{\mathbf{g}_t})\,\mathbf{S}_{t-1}
        + \mathbf{k}_t\mathbf{v}_t^\top, \qquad
        \mathbf{o}_t = c\,\mathbf{S}_t^\top\mathbf{q}_t .

    Without the softmax, attention is $\sum_{j \le t} (\mathbf{q}_t \cdot \mathbf{k}_j)\,\mathbf{v}_j
    = (\sum_{j \le t} \mathbf{k}_j\mathbf{v}_j^\top)^\top\mathbf{q}_t$.
    The sum in parentheses doesn't depend on the query, so one matrix per head, the state
    $\mathbf{S}$, stands for the whole past.
    A log gate $\mathbf{g}_t$ makes it fade before the token writes. Unrolled,

    .. math:: \mathbf{o}_t = c \sum_{j \le t} \Bigl(\sum_i q_{ti}\, k_{ji}
        \exp \sum_{l=j+1}^{t} g_{li}\Bigr)\,\mathbf{v}_j .

    One gate for each head is that of Mamba-2, and a constant one that of a retention network.
    Without gates, the order of the past doesn't matter.

    What it guarantees: the output at a token doesn't depend on later tokens. A text that is cut into
    several calls, each given the `state` of the last, has the outputs of one call.

    Where it fails: the state has $d_k$ rows. It returns the values of at most $d_k$ keys exactly, and
    only if these are orthogonal.

    Cost: $O(n\,d_k\,d_v)$ operations a head, and $d_k d_v$ numbers in place of a cache.
    PyTorch and JAX compute chunks of 64 tokens at a time.

    Args:
        query: $\mathbf{q}$, `(*batch, h_k, n, d_k)`.
        key: $\mathbf{k}$, of the same shape. It is taken as it is.
        value: $\mathbf{v}$, `(*batch, h, n, d_v)`; its heads are a multiple of those of `key`, and each
            head of keys serves as many neighboring heads of values (grouped heads).
        log_gates: $\mathbf{g}$, none above 0: one for each head of values, `(*batch, h, n)`, or one for
            each channel of its keys, `(*batch, h, n, d_k)`; 0 if not given.
        state: $\mathbf{S}$ before the first token, `(*batch, h, d_k, d_v)`; zeros if not given.
        mask: bool, `(n)` or `(*batch, n)`, True is a token. Others are treated as absent: they neither
            write nor let the state fade, and their outputs are zeros.
        documents: integers, `(n)` or `(*batch, n)`. Where the number changes, another document starts
            with an empty state. `state` belongs to the first document.
        scale: $c$, $1/\sqrt{d_k}$ if not given.

    Returns:
        The outputs $\mathbf{o}$, `(*batch, h, n, d_v)`, and the state after the last token, that of the
        last document.

    Examples:
        >>> key = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
        >>> value = np.array([[[2.0], [3.0], [5.0]]])
        >>> output, state = linear_attention(key, key, value, scale=1.0)
        >>> output[0, :, 0]
        array([2., 3., 7.])
        >>> state[0]
        array([[7.],
               [3.]])
        >>> linear_attention(key, key, value, np.log([[0.5, 0.5, 0.5]]), scale=1.0)[1][0]
        array([[5.5],
               [1.5]])

    References:
        :cite:t:`yang2025gated`, section 2.
    """
    sizes = contract.recurrence(query, key, value, log_gates, factor=scale, gates="either")
    tokens = Tokens(query, key, value, log_gates, state, mask, documents, sizes)
    return tokens.pass_through(lambda memory, key, value, _: value)


class Tokens:
    """What a recurrence reads, of which absent tokens are zeros."""

    def __init__(
        self, query, key, value, log_gates, state, mask, documents, sizes, beta=None
    ):
        contract.state(state, sizes.state)
        *batch, _, n, _ = value.shape
        contract.passed(mask, documents, batch, n)
        self.seen = np.broadcast_to(True if mask is None else mask, (*batch, n))
        self.starts = document_starts(documents, mask, (*batch, n))
        heads = self.seen[..., None, :]
        query, key = (np.repeat(x, sizes.groups, axis=-3) for x in (query, key))
        self.query, self.key, self.value = (
            np.where(heads[..., None], x, 0) for x in (query * sizes.scale, key, value)
        )
        self.beta = None if beta is None else np.where(heads, beta, 0)[..., None]
        if log_gates is None:
            log_gates = np.zeros(value.shape[:-1])
        if log_gates.ndim < query.ndim:
            log_gates = log_gates[..., None]
        self.decay = np.exp(np.where(heads[..., None], log_gates, 0))
        kinds = query, key, value, self.decay, *(x for x in (beta, state) if x is not None)
        state = np.zeros(sizes.state) if state is None else state
        self.state = state.astype(np.result_type(np.float64, *kinds))

    def pass_through(self, written):
        """Let one token after another decay the state, write to it and read from it."""
        state, outputs = self.state, np.zeros(self.value.shape, self.state.dtype)
        for t in range(self.value.shape[-2]):
            start = self.starts[..., t, None, None, None]
            beta = None if self.beta is None else self.beta[..., t, :]
            key = self.key[..., t, :, None]
            state = self.decay[..., t, :, None] * np.where(start, 0, state)
            new = written(state, key[..., 0], self.value[..., t, :], beta)
            state = state + key * new[..., None, :]
            outputs[..., t, :] = read(state, self.query[..., t, :])
        return outputs, state


def read(state, query):
    """What a state answers, $S^T q$."""
    return (query[..., None, :] @ state)[..., 0, :]
