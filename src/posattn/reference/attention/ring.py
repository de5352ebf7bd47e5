"""Ring attention: a sequence spread over workers, whose keys and values travel around it."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Inexact, Integer, Num

from posattn import contract
from posattn.reference.attention.attention import (
    _double,
    biases,
    by_head,
    total_bias,
    zero_unattended,
)
from posattn.reference.attention.masks import of_pairs
from posattn.reference.validated import validated

__all__ = ["balanced_order", "ring_attention"]

Bias = contract.PositionBias | contract.ContentBias


@validated
def balanced_order(n: int, workers: int) -> Integer[np.ndarray, " n"]:
    r"""The order in which tokens are spread over workers so that causal attention costs each the same.

    The sequence is cut into $2W$ pieces, and worker $r$ gets the pieces $r$ and $2W - 1 - r$.
    Its first piece sees $r$ pieces before itself and its second one $2W - 1 - r$, so each worker
    computes $2W - 1$ pairs of whole pieces and two on the diagonal.
    In the order of the sequence the last worker would do $2W - 1$ times the work of the first.

    The shard of worker $r$ is entry $r n / W$ and those after it, $n / W$ of them, and they are the
    positions of its tokens.
    `x[order]` spreads a sequence, and `argsort(order)` puts it together again.

    Args:
        n: $n$, the number of tokens, a multiple of $2W$.
        workers: $W$, at least 1.

    Returns:
        `(n)`, the positions 0 to $n - 1$.

    Raises:
        ValueError: if a number is too small, or `n` is no multiple of `2 * workers`.

    Examples:
        >>> balanced_order(8, 2)
        array([0, 1, 6, 7, 2, 3, 4, 5])

    References:
        :cite:t:`grattafiori2024llama`, section 3.3.2.
    """
    n, workers = contract.balanced(n, workers)
    pieces = np.arange(n).reshape(2 * workers, n // (2 * workers))
    return np.concatenate([pieces[:workers], pieces[: workers - 1 : -1]], axis=1).reshape(n)


@validated
def ring_attention(
    query: Inexact[np.ndarray, "*batch n_q d"],
    key: Inexact[np.ndarray, "*groups n_k d"],
    value: Inexact[np.ndarray, "*groups n_k d_v"],
    *,
    across: int,
    mask: Bool[np.ndarray, "*#batch 1 n_k"] | contract.PositionMask | None = None,
    causal: bool = False,
    bias: Bias | Sequence[Bias | None] | None = None,
    query_positions: Num[np.ndarray, "... n_q"] | None = None,
    key_positions: Num[np.ndarray, "... n_k"] | None = None,
    scale: float | None = None,
) -> Inexact[np.ndarray, "*batch n_q d_v"]:
    r"""Attention to a sequence that no worker holds as a whole.

    Worker $r$ of $W$ holds the $r$-th shard of the queries, and of the keys and values.
    In step $t = 0, \ldots, W - 1$ it reads shard $(r - t) \bmod W$ of the keys, then it hands
    this shard to worker $r + 1$ and takes the next one from worker $r - 1$.
    Of the keys $T$ that a query has read, with scores $s_j$, it remembers the largest score, the
    sum, and the weighted sum of values,

    .. math:: \mu = \max_{j \in T} s_j, \qquad Z = \sum_{j \in T} e^{s_j - \mu}, \qquad
        \mathbf{a} = \sum_{j \in T} e^{s_j - \mu}\, \mathbf{v}_j,

    and with those of the next shard, $\mu'$, $Z'$ and $\mathbf{a}'$, they become

    .. math:: \hat\mu = \max(\mu, \mu'), \qquad
        \hat Z = e^{\mu - \hat\mu}\, Z + e^{\mu' - \hat\mu}\, Z', \qquad
        \hat{\mathbf{a}} = e^{\mu - \hat\mu}\, \mathbf{a} + e^{\mu' - \hat\mu}\, \mathbf{a}'.

    After $W$ steps $\mathbf{a} / Z$ is what :func:`scaled_dot_product_attention` returns.

    What it guarantees: no worker holds more than two shards of keys, and scores of one shard
    with another; each sends $W - 1$ shards of keys and values, whatever it computes meanwhile.
    With `causal` a query attends to the keys whose *position* is not larger than its own, wherever
    they are held: by :func:`balanced_order` all workers have the same to do.

    Here one program plays all workers, and the arrays are those of the whole sequence.
    The other columns run on each worker, which gives its own shard of every array.
    Unlike `scaled_dot_product_attention`, it takes no sinks, no soft cap and no selection.

    Args:
        query: $\mathbf{Q}$, `(*batch, n_q, d)`.
        key: $\mathbf{K}$, `(*batch, n_k, d)`, of the same batch axes, width and dtype. The last
            batch axis is that of heads, and keys may have fewer: each head of keys then serves
            as many neighboring heads of queries (grouped heads).
        value: $\mathbf{V}$, `(*batch, n_k, d_v)`, of the same batch axes as the keys and of
            the same dtype.
        across: $W$, the number of workers, which divides $n_q$ and $n_k$.
        mask: bool, True means may attend: which keys all queries may attend to, of a shape that
            broadcasts to `(*batch, 1, n_k)`, or a function of the positions of queries and keys
            that returns `(n_q, n_k)`, or one for each example if its positions are.
        causal: hide the keys whose position is larger than that of the query.
        bias: what is added to the scores: a function of the positions of queries and keys, an
            object with a method `scores` that needs no other keys (see
            :class:`MultiHeadAttention`), or a list of those, which are added up.
        query_positions: where the queries stand, `(n_q)`, or one row for each example, all heads
            alike. If not given, they stand where the keys do, and fewer queries at the last
            of $0, \ldots, n_k - 1$.
        key_positions: where the keys stand, likewise; $0, \ldots, n_k - 1$ if not given.
        scale: the factor on the scores, $1/\sqrt{d}$ if not given.

    Returns:
        One row per query, `(*batch, n_q, d_v)`; zeros where a query may attend to nothing.

    Raises:
        ValueError: if shapes do not fit or differ between workers, `scale` is not finite, `across`
            does not name workers, or `bias` needs all keys.

    Examples:
        >>> value = np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> ring_attention(np.eye(2), np.eye(2), value, across=2, causal=True, scale=np.log(3.0))
        array([[1.  , 0.  ],
               [0.25, 1.5 ]])

    References:
        :cite:t:`liu2024ring`, section 3; the merge is that of :cite:t:`milakov2018online`.
    """
    contract.attention(query, key, value, grouped=True)
    n_q, n_k = query.shape[-2], key.shape[-2]
    workers = contract.shards(across, n_q, n_k)
    contract.shard_mask(mask, query.shape, n_k)
    parts = biases(bias)
    for part in parts:
        contract.shard_bias(part)
    here, there = _places(query, n_k, query_positions, key_positions)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else contract.scale(scale)
    known = mask if isinstance(mask, np.ndarray) else np.ones((1, n_k), bool)
    rules = [rule for rule in (mask, _past if causal else None) if callable(rule)]

    def read(asking, held):
        """The state of queries after one shard of keys: largest scores, sums and weighted sums."""
        (query, here), (key, value, there, known) = asking, held
        seen = known
        for rule in rules:
            seen = seen & of_pairs(rule, (here, there), (*query.shape[:-1], key.shape[-2]))
        key, value = zero_unattended(key, seen), zero_unattended(value, seen)
        scores = by_head(query, key.mT) * scale
        added = total_bias(parts, query, key, (here, there))
        scores = np.where(seen, scores if added is None else scores + added, -np.inf)
        peak = np.max(scores.real, axis=-1, keepdims=True, initial=np.finfo(float).min)
        exp = np.exp(scores - peak)
        return peak, np.sum(exp, axis=-1, keepdims=True), by_head(exp, value)

    asking = _shards(workers, (_double(query), -2), (here, -1))
    held = _shards(
        workers, (_double(key), -2), (_double(value), -2), (there, -1), (known, -1)
    )
    states = [read(asking[r], held[r]) for r in range(workers)]
    for _ in range(1, workers):
        held = held[-1:] + held[:-1]  # each from the worker before, the first from the last
        states = [_merge(states[r], read(asking[r], held[r])) for r in range(workers)]
    outs = [mixed / np.where(total == 0, 1, total) for _, total, mixed in states]
    return np.concatenate(outs, axis=-2)


def _places(query, n_k, query_positions, key_positions):
    """Where queries and keys stand: fewer queries at the last keys, unless something else is given."""
    n_q = query.shape[-2]
    contract.shard_positions(query_positions, key_positions, query.shape[:-3], n_q, n_k)
    if query_positions is None:
        query_positions = (
            np.arange(n_k - n_q, n_k) if key_positions is None else key_positions
        )
    return query_positions, np.arange(n_k) if key_positions is None else key_positions


def _shards(workers, *arrays):
    """What each worker holds: its shard of every array, which is cut along the given axis."""
    return list(zip(*(np.split(x, workers, axis) for x, axis in arrays), strict=True))


def _past(here, there):
    """A mask that lets each query see the keys whose position is not larger than its own."""
    return there[..., None, :] <= here[..., :, None]


def _merge(state, tile):
    """The state of queries that have read the keys of both."""
    peak = np.maximum(state[0], tile[0])
    first, second = (np.exp(each - peak) for each, *_ in (state, tile))
    return peak, *(first * a + second * b for a, b in zip(state[1:], tile[1:], strict=True))
