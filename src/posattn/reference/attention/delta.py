"""The delta rule: a token replaces what the state said about its key."""

import numpy as np
from jaxtyping import Inexact

from posattn import contract
from posattn.reference.attention.linear import Documents, Mask, State, Tokens, read
from posattn.reference.validated import validated

__all__ = ["gated_delta", "kimi_delta"]


@validated
def gated_delta(
    query: Inexact[np.ndarray, "*batch h_k n d_k"],
    key: Inexact[np.ndarray, "*batch h_k n d_k"],
    value: Inexact[np.ndarray, "*batch h n d_v"],
    log_gates: Inexact[np.ndarray, "*batch h n"],
    beta: Inexact[np.ndarray, "*batch h n"],
    *,
    state: State | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
    scale: float | None = None,
) -> tuple[Inexact[np.ndarray, "*batch h n d_v"], State]:
    r"""The gated delta rule: the state fades, then the token corrects what it says about its key.

    .. math:: \bar{\mathbf{S}}_t = e^{g_t}\,\mathbf{S}_{t-1}, \qquad
        \mathbf{S}_t = \bar{\mathbf{S}}_t
        + \mathbf{k}_t\,\beta_t\,(\mathbf{v}_t - \bar{\mathbf{S}}_t^\top\mathbf{k}_t)^\top, \qquad
        \mathbf{o}_t = c\,\mathbf{S}_t^\top\mathbf{q}_t .

    Linear attention only adds: two values written to one key come back as their sum.
    Here $\bar{\mathbf{S}}_t^\top\mathbf{k}_t$ is what the state would answer for the key, and the token
    writes the difference to its own value. It is one step of gradient descent with learning rate
    $\beta_t$ on $\tfrac{1}{2}\|\mathbf{S}^\top\mathbf{k}_t - \mathbf{v}_t\|^2$.
    For a unit key and $\beta_t = 1$ the old value is replaced, so the order of two writes to one key
    decides the answer. Keys that are orthogonal to it keep theirs.

    The step multiplies what the state says about $\mathbf{k}_t$ by $1 - \beta_t\|\mathbf{k}_t\|^2$.
    The state therefore cannot grow without bound if $\beta_t\|\mathbf{k}_t\|^2 \le 2$. Layers make their
    keys unit vectors first; this function takes them as they are.

    What it guarantees, its options and its cost are those of :func:`linear_attention`.

    Args:
        query: $\mathbf{q}$, `(*batch, h_k, n, d_k)`.
        key: $\mathbf{k}$, of the same shape.
        value: $\mathbf{v}$, `(*batch, h, n, d_v)`; each head of keys serves as many neighboring heads of
            values.
        log_gates: $g$, `(*batch, h, n)`, none above 0.
        beta: $\beta$, how much of the difference is written, `(*batch, h, n)`, from 0 to 1, or to 2.
        state: $\mathbf{S}$ before the first token, `(*batch, h, d_k, d_v)`; zeros if not given.
        mask: bool, `(n)` or `(*batch, n)`, True is a token. Others are treated as absent.
        documents: integers, `(n)` or `(*batch, n)`. Where the number changes, another document starts
            with an empty state.
        scale: $c$, $1/\sqrt{d_k}$ if not given.

    Returns:
        The outputs $\mathbf{o}$, `(*batch, h, n, d_v)`, and the state after the last token.

    Examples:
        The second token overwrites what the first has said about the same key:

        >>> key = np.array([[[1.0, 0.0], [1.0, 0.0]]])
        >>> value = np.array([[[2.0], [5.0]]])
        >>> gated_delta(key, key, value, np.zeros((1, 2)), np.ones((1, 2)), scale=1.0)[0][0, :, 0]
        array([2., 5.])

    References:
        :cite:t:`yang2025gated`, section 3.
    """
    sizes = contract.recurrence(query, key, value, log_gates, beta, scale)
    tokens = Tokens(query, key, value, log_gates, state, mask, documents, sizes, beta)
    return tokens.pass_through(correction)


@validated
def kimi_delta(
    query: Inexact[np.ndarray, "*batch h_k n d_k"],
    key: Inexact[np.ndarray, "*batch h_k n d_k"],
    value: Inexact[np.ndarray, "*batch h n d_v"],
    log_gates: Inexact[np.ndarray, "*batch h n d_k"],
    beta: Inexact[np.ndarray, "*batch h n"],
    *,
    state: State | None = None,
    mask: Mask | None = None,
    documents: Documents | None = None,
    scale: float | None = None,
) -> tuple[Inexact[np.ndarray, "*batch h n d_v"], State]:
    r"""Kimi's delta rule: the gated delta rule with a gate for each channel of the keys.

    .. math:: \bar{\mathbf{S}}_t = \operatorname{diag}(e^{\mathbf{g}_t})\,\mathbf{S}_{t-1}, \qquad
        \mathbf{S}_t = \bar{\mathbf{S}}_t
        + \mathbf{k}_t\,\beta_t\,(\mathbf{v}_t - \bar{\mathbf{S}}_t^\top\mathbf{k}_t)^\top, \qquad
        \mathbf{o}_t = c\,\mathbf{S}_t^\top\mathbf{q}_t .

    Row $i$ of the state fades by a gate of its own, so some channels forget within a few tokens and
    others keep what they hold. As the rotations of RoPE do, the gates give a distance many scales.
    Equal gates in all channels make it :func:`gated_delta`.

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
        The outputs $\mathbf{o}$, `(*batch, h, n, d_v)`, and the state after the last token.

    Examples:
        The first channel forgets all before the second token, the other one nothing:

        >>> key = np.array([[[1.0, 1.0], [1.0, 1.0]]])
        >>> gates = np.array([[[0.0, 0.0], [-np.inf, 0.0]]])
        >>> value, beta = np.array([[[3.0], [0.0]]]), np.array([[1.0, 0.0]])
        >>> kimi_delta(key, key, value, gates, beta, scale=1.0)[1][0, :, 0]
        array([0., 3.])

    References:
        :cite:t:`kimi2025linear`.
    """
    sizes = contract.recurrence(query, key, value, log_gates, beta, scale, gates="channel")
    tokens = Tokens(query, key, value, log_gates, state, mask, documents, sizes, beta)
    return tokens.pass_through(correction)


def correction(state, key, value, beta):
    """What the delta rule writes: the difference to what the state says about the key."""
    return beta * (value - read(state, key))
