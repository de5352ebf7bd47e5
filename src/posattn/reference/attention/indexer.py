"""The indexer: cheap scores that say which keys an attention reads."""

import math

import numpy as np
from jaxtyping import Bool, Inexact, Integer

from posattn import contract
from posattn.reference.attention.attention import _double
from posattn.reference.validated import validated

__all__ = ["group_keys", "group_tokens", "indexer_scores"]


@validated
def indexer_scores(
    query: Inexact[np.ndarray, "*batch h n_q d"],
    key: Inexact[np.ndarray, "*batch n_k d"],
    weights: Inexact[np.ndarray, "*batch n_q h"] | None = None,
    *,
    scale: float | None = None,
) -> Inexact[np.ndarray, "*batch n_q n_k"]:
    r"""How much each query wants to read each key, in the eyes of an indexer.

    .. math:: s_{ij} = \sum_{h} w_{ih}
        \max\left(0, \frac{\mathbf{q}_{ih} \cdot \mathbf{k}_j}{\sqrt{d}}\right) .

    All heads share one key per token, and their sum is one number for each pair: so all heads of the
    attention read the same keys, which :func:`select_keys` picks.
    There is no softmax, since only the order of the scores counts. A weight may be negative.

    DeepSeek-V3.2 multiplies its weights by $1 / \sqrt{H}$ of its $H$ heads, which changes no order.
    Qwen4-Exp has no weights; its keys are means of neighbors (:func:`group_keys`).

    Args:
        query: $\mathbf{q}$, `(*batch, h, n_q, d)`, rotated where the model rotates them.
        key: $\mathbf{k}$, `(*batch, n_k, d)`: one head, which all heads of queries share.
        weights: $w$, one for each query and head, `(*batch, n_q, h)`; 1 if not given.
        scale: the factor on the products, $1/\sqrt{d}$ if not given.

    Returns:
        $s$, `(*batch, n_q, n_k)`.

    Examples:
        >>> query = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> key = np.array([[2.0, 1.0], [-1.0, 3.0]])
        >>> indexer_scores(query, key, np.array([[1.0, 10.0]]), scale=1.0)
        array([[12., 30.]])

    References:
        :cite:t:`deepseek2025v32`, section 2.1.
    """
    contract.indexer(query, key, weights)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    products = _double(query) @ _double(key)[..., None, :, :].mT * scale
    positive = np.where(products.real > 0, products, 0)
    if weights is None:
        return np.sum(positive, axis=-3)
    return np.sum(np.swapaxes(_double(weights), -1, -2)[..., None] * positive, axis=-3)


@validated
def group_tokens(
    n_k: int, size: int, *, mask: Bool[np.ndarray, "*batch n_k"] | None = None
) -> Integer[np.ndarray, "*batch groups size"]:
    r"""Which tokens make each group of neighbors: group $g$ holds tokens $mg, \ldots, mg + m - 1$.

    Masked tokens are left out before they are counted: a text has the same groups behind padding.
    Only complete groups count, so up to $m - 1$ tokens at the end belong to none.

    Args:
        n_k: the number of tokens.
        size: $m$, at least 1.
        mask: bool, True means a token and False padding, `(*batch, n_k)`.

    Returns:
        The place of each token in the row, `(*batch, n_k // size, size)`, and -1 in groups that are
        not complete because of the mask. The first token of each group is `[..., 0]`: there Qwen4-Exp
        rotates the key of the group.

    Examples:
        >>> group_tokens(5, 2)
        array([[0, 1],
               [2, 3]])
        >>> group_tokens(5, 2, mask=np.array([False, True, True, True, False]))
        array([[ 1,  2],
               [-1, -1]])
    """
    size, n_k = contract.group_size(size, n_k, mask)
    order, total = in_order(np.ones(n_k, bool) if mask is None else mask)
    count = n_k // size
    members = order[..., : count * size].reshape(*order.shape[:-1], count, size)
    complete = np.arange(count) < (total // size)[..., None]
    return np.where(complete[..., None], members, -1)


@validated
def group_keys(
    key: Inexact[np.ndarray, "*batch n_k d_in"],
    size: int,
    *,
    gates: Inexact[np.ndarray, "*#batch #n_k d_in"] | None = None,
    mask: Bool[np.ndarray, "*#batch n_k"] | None = None,
    overlap: bool = False,
) -> Inexact[np.ndarray, "*batch groups d"]:
    r"""One key for each complete group of neighboring tokens.

    .. math:: \mathbf{c}_g = \frac{1}{m} \sum_{i \in g} \mathbf{k}_i \qquad\text{or, with gates,}\qquad
        c_{gj} = \sum_{i \in g} \frac{e^{z_{ij}}}{\sum_{l \in g} e^{z_{lj}}}\, k_{ij} .

    The mean is that of Qwen4-Exp, which then normalises and rotates it. A softmax of gates for each
    channel $j$ is that of GLM-5-Next and of DeepSeek-V4; a learned number for each place in the group is
    added to the gates before.
    With `overlap` (DeepSeek-V4's blocks of 4) each token has two halves of keys and gates. A group then
    mixes the first halves of the group before it and the second halves of its own; the first group has
    only its own.

    Args:
        key: $\mathbf{k}$, `(*batch, n_k, d)`, or `(*batch, n_k, 2d)` with `overlap`.
        size: $m$, the tokens of a group, at least 1.
        gates: $z$, which broadcasts to the shape of `key`; all alike if not given.
        mask: bool, True means a token and False padding, `(*batch, n_k)`; see :func:`group_tokens`.
        overlap: whether a group reads the group before it, too.

    Returns:
        $\mathbf{c}$, `(*batch, n_k // size, d)`; zeros in groups that are not complete.

    Examples:
        >>> group_keys(np.array([[1.0], [3.0], [5.0], [9.0], [7.0]]), 2)
        array([[2.],
               [7.]])

    References:
        :cite:t:`deepseek2026v4`, section 2.3.
    """
    contract.group_keys(key, size, gates, mask, overlap)
    members = group_tokens(key.shape[-2], size, mask=mask)
    keys = _taken(_double(key), members)
    gates = np.zeros(1) if gates is None else _double(gates)
    gates = _taken(np.broadcast_to(gates, key.shape), members)
    complete = np.broadcast_to(members[..., :1] >= 0, keys.shape[:-1])
    if overlap:
        keys, gates = _before_and_own(keys), _before_and_own(gates)
        before = np.concatenate(
            [np.zeros_like(complete[..., :1, :]), complete[..., :-1, :]], -2
        )
        complete = np.concatenate([before & complete, complete], axis=-1)
    gates = np.where(complete[..., None], gates, -np.inf)
    peak = np.max(gates.real, axis=-2, keepdims=True, initial=np.finfo(float).min)
    exp = np.exp(gates - peak)
    total = np.sum(exp, axis=-2)
    keys = np.where(complete[..., None], keys, 0)
    return np.sum(exp * keys, axis=-2) / np.where(total == 0, 1, total)


def _taken(x, members):
    """The rows of `x`, `(*batch, n, d)`, of the tokens of each group: `(*batch, groups, size, d)`."""
    members = np.broadcast_to(members, (*x.shape[:-2], *members.shape[-2:]))
    rows = np.take_along_axis(x, members.reshape(*members.shape[:-2], -1, 1), axis=-2)
    return rows.reshape(*members.shape, x.shape[-1])


def _before_and_own(x):
    """The first half of the width of the group before, then the second half of each group's own."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    before = np.concatenate(
        [np.zeros_like(first[..., :1, :, :]), first[..., :-1, :, :]], -3
    )
    return np.concatenate([before, second], axis=-2)


def in_order(mask):
    """The places of tokens with those that are masked after all others, and how many are not."""
    return np.argsort(~mask, axis=-1, kind="stable"), np.sum(mask, axis=-1)
