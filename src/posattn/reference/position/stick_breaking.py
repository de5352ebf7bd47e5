"""Stick-breaking: each key takes a share of what the keys after it have left."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Num

from posattn import contract
from posattn.reference.cases import PAIRS, everywhere, heads, of_content
from posattn.reference.position.card import SMALL, Card, Scheme
from posattn.reference.validated import validated

__all__ = ["StickBreaking"]


@validated
@dataclass(frozen=True)
class StickBreaking:
    r"""The bias that turns a softmax into breaking a stick, from the newest key to the oldest.

    .. math:: \alpha_{ij} = \sigma(s_{ij}) \prod_{l=j+1}^{i-1} \bigl(1 - \sigma(s_{il})\bigr)
        \quad (j < i), \qquad
        \alpha_{ii} = \prod_{l=0}^{i-1} \bigl(1 - \sigma(s_{il})\bigr), \qquad
        \sigma(z) = \frac{1}{1 + e^{-z}},

    with $s_{ij} = \mathbf{q}_i^\top\mathbf{k}_j / \sqrt{d_h}$.
    The query at $i$ starts with a stick of length 1. The key just before it breaks off the share
    $\sigma(s_{i,i-1})$, the key before that breaks off its share of the rest, and so on. The query keeps
    whatever remains.
    Of two keys that match equally well the nearer one gets more, so order needs no other encoding.

    These weights sum to one, so a softmax of their logarithms returns them. The difference to the
    scores is therefore a bias:

    .. math:: b_{ij} = \ln \alpha_{ij} - s_{ij} = \sum_{l=j}^{i-1} \ln\bigl(1 - \sigma(s_{il})\bigr)
        \quad (j < i), \qquad
        b_{ii} = \ln \alpha_{ii} - s_{ii} .

    It resembles :func:`forgetting_bias`, with gates that also depend on the query.
    Pass it to a layer as `MultiHeadAttention(bias=StickBreaking())`, with causal attention and the
    default `scale`.

    What it guarantees: only the order of the positions matters, so a common offset changes
    nothing, and every length is defined. Decoding with cached keys repeats prefill.

    Where it fails: a hidden key still breaks off its share. Give padding positions after all queries,
    and it breaks off nothing. Packed sequences need the mask inside the sum, and a bias does not see
    the mask.
    Keys after the query have the bias 0, because it is for causal attention.
    The sum over all keys in between rules out the usual fused kernels. The authors wrote their own.

    Accuracy: each entry is a sum of terms of one sign, with a relative error below $10^{-10}$ in
    float64 and $2 \cdot 10^{-6}$ in float32 for $2^{20}$ keys.

    Variants: in the paper nobody gets the remainder $\alpha_{ii}$, so weights sum to less than one. No
    bias can do that; it takes an extra key whose value is zero.
    The authors' tests add the remainder times the query's own value, as is done here; so did their
    training code at first (`sb_remainder` of IBM's `dolomite-engine`), and later it multiplied the
    remainder by a learned vector of each head.

    Examples:
        >>> query, key = np.zeros((1, 1, 4)), np.zeros((1, 4, 4))
        >>> bias = StickBreaking().scores(query, key, np.array([3]), np.arange(4))
        >>> np.exp(bias)  # of equal scores of 0 each key takes half of what is left
        array([[[0.125, 0.25 , 0.5  , 0.125]]])

    References:
        :cite:t:`tan2025scaling`, and `stickbreaking` of the authors' `sb_ref.py`.
    """

    needs_all_keys = True  # a score counts the other keys, too

    def scores(
        self,
        query: Inexact[np.ndarray, "*batch h n_q d_h"],
        key: Inexact[np.ndarray, "*batch h n_k d_h"],
        query_positions: Num[np.ndarray, "*#batch n_q"],
        key_positions: Num[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        r"""What is added to the scaled scores.

        Args:
            query: $\mathbf{q}$ of each head, not yet scaled, `(*batch, h, n_q, d_h)`.
            key: $\mathbf{k}$ of each head, `(*batch, h, n_k, d_h)`, in the order of their positions.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; the keys before a query
                break its stick, and the key at its own position gets what remains.

        Returns:
            $b$, `(*batch, h, n_q, n_k)`.
        """
        contract.head_sequence("query", query)
        contract.tile(query, key, query_positions, key_positions, query.shape[-1])
        query_positions = query_positions[..., :, None]
        before = (key_positions[..., None, :] < query_positions)[..., None, :, :]
        at = (key_positions[..., None, :] == query_positions)[..., None, :, :]
        products = query @ key.mT / math.sqrt(query.shape[-1])
        left = np.where(before, -_softplus(products), 0)
        kept = np.cumsum(left[..., ::-1], axis=-1)[..., ::-1]
        own = left.sum(axis=-1, keepdims=True) - products
        return np.where(before, kept, np.where(at, own, 0))


def _softplus(z):
    positive = z.real > 0
    return np.where(positive, z, 0) + np.log1p(np.exp(np.where(positive, -z, z)))


def stick_breaking_cases():
    """Stick-breaking, as what is added to the scores: each key takes a share of what is left."""
    yield from everywhere()
    query, key, *where = heads(*PAIRS["six tokens"])
    yield "large scores", (query, 6 * np.round(key), *where), {}


CARDS = {
    "stick-breaking": Card(
        title="Stick-breaking",
        year=2024,
        idea=(
            "Break a stick of weight. From the newest key to the oldest, each takes a "
            "share of what is left, so of equal keys the nearest gets most. The rest goes "
            "to the query's own value."
        ),
        formula=(
            r"s_{ij} + \textstyle\sum_{l=j}^{i-1} \ln\bigl(1 - \sigma(s_{il})\bigr), "
            r"\quad j < i"
        ),
        symbols=(
            r"$\sigma(s_{il})$ is the share that key $l$ takes, where $\sigma$ is the "
            "logistic function."
        ),
        cites=("tan2025scaling",),
        function="StickBreaking",
        shows=(
            "strongest next to the diagonal and evenly fainter into the past, with one "
            "shade above; the diagonal itself, which holds the rest, gets fainter further "
            "down"
        ),
        make=lambda n, z=SMALL: Scheme(bias=StickBreaking()),
    ),
}

CASES = {
    "stick_breaking": of_content(
        StickBreaking, stick_breaking_cases, "tan2025scaling, the remainder kept"
    ),
}
