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
        w_e = c\, s_e \Big/ \sum_{e \in T} s_e, \qquad \mathbf{s} = \operatorname{softmax}(\mathbf{x}\mathbf{R}),

    where $T$ are the experts with the highest scores. Dividing by the sum is the softmax of their logits only;
    some models leave it out. In others the scores are sigmoids, a correction $\mathbf{b}$ is added to them
    where $T$ is found, and $T$ comes from the groups whose best two have the highest sum.
    Few models have a network $f$ that every token passes, and fewer its gate $\mathbf{g}$.

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
        total = sum(
            weights[..., e, None] * network(x) for e, network in enumerate(self.experts)
        )
        if self.shared is None:
            return total
        shared = self.shared(x)
        if self.shared_gate_weight is not None:
            shared = shared * sigmoid(x @ self.shared_gate_weight)
        return total + shared


def routed(logits, correction, mixture):
    """How much each expert counts, `(*batch, n, count)`: 0 unless it is chosen."""
    scores = softmax(logits) if mixture.score == "softmax" else sigmoid(logits)
    ranks = added(scores, correction)
    if mixture.groups > 1:
        grouped = ranks.reshape(*ranks.shape[:-1], mixture.groups, -1)
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


def softmax(x):
    """Exponentials, divided by their sum."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x):
    """The logistic function."""
    return 1 / (1 + np.exp(-x))
