"""A mixture of experts: a router picks a few of many feed-forward networks for each token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posattn.reference.models.block import FeedForward, added

__all__ = []


@dataclass(frozen=True, eq=False)
class Experts:
    r"""Feed-forward networks $f_e$ of which each token passes a few.

    .. math:: \sum_{e \in T} w_e f_e(\mathbf{x}) + \sigma(\mathbf{x}\mathbf{g})\, f(\mathbf{x}), \qquad
        w_e = c\, s_e \Big/ \sum_{i \in T} s_i, \qquad
        \mathbf{s} = \operatorname{softmax}(\mathbf{x}\mathbf{R}),

    where $T$ are the experts with the highest scores. Dividing by their sum gives the softmax of the logits
    of $T$; some models don't divide. Others have sigmoids for scores, add a correction $\mathbf{b}$ to find
    $T$, and look for it only in the groups of experts whose two best scores have the highest sums.
    Llama 4 has $f_e(w_e \mathbf{x})$ in place of $w_e f_e(\mathbf{x})$.
    A few models also have a network $f$ that every token passes, and fewer a gate $\mathbf{g}$ for it.

    Args:
        router_weight: $\mathbf{R}$, `(d, count)`.
        experts: the networks.
        mixture: what is mixed and how, a `posattn.configs.experts.Mixture`.
        router_bias: `(count)` or None.
        correction: $\mathbf{b}$, `(count)` or None.
        shared: $f$, or None.
        shared_gate_weight: $\mathbf{g}$, `(d, 1)`, or None.
    """

    router_weight: Any
    experts: Sequence[FeedForward]
    mixture: Any
    router_bias: Any = None
    correction: Any = None
    shared: FeedForward | None = None
    shared_gate_weight: Any = None

    def __call__(self, x):
        """What is added to `x`, `(*batch, n, d)`."""
        logits = added(x @ self.router_weight, self.router_bias)
        weights = routed(logits, self.correction, self.mixture)
        total = 0 if self.shared is None else self.shared(x)
        if self.shared_gate_weight is not None:
            total = total * sigmoid(x @ self.shared_gate_weight)
        for index, network in enumerate(self.experts):
            counts = weights[..., index, None]
            inward = self.mixture.inward
            total = total + (network(counts * x) if inward else counts * network(x))
        return total


def routed(logits, correction, mixture):
    """How much each expert counts, `(*batch, n, count)`: 0 unless it is chosen."""
    scores = sigmoid(logits)
    if mixture.score == "softmax":
        scores = np.exp(logits - logits.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
    ranks = added(scores, correction)
    if mixture.groups > 1:
        grouped = ranks.reshape(
            *ranks.shape[:-1], mixture.groups, mixture.count // mixture.groups
        )
        best = np.sort(grouped, axis=-1)[..., -2:].sum(-1)
        kept = among(best, mixture.kept_groups)
        ranks = np.where(kept[..., None], grouped, -np.inf).reshape(ranks.shape)
    weights = np.where(among(ranks, mixture.chosen), scores, 0)
    if mixture.normalized:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    return weights * mixture.scale


def among(x, count):
    """Whether an entry is among the `count` highest of its row."""
    return np.argsort(np.argsort(-x, axis=-1, kind="stable"), axis=-1) < count


def sigmoid(x):
    """The logistic function."""
    return 1 / (1 + np.exp(-x))
