"""DAPE: a bias that a small network adapts to the scores of the same pair of tokens."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Num

from posattn import contract
from posattn.reference.cases import PAIRS, Cases, draw, heads
from posattn.reference.position.alibi import ALiBi
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["DAPE"]


@validated
@dataclass(frozen=True, eq=False)
class DAPE:
    r"""A bias, corrected by a network that sees the scores and the bias of all heads.

    .. math:: \mathbf{b}_{ij} = \boldsymbol{\beta}_{ij} + \mathbf{W}_2^\top
        \operatorname{lrelu}\left(\mathbf{W}_1^\top
        \begin{bmatrix} \mathbf{s}_{ij} \\ \boldsymbol{\beta}_{ij} \end{bmatrix} + \mathbf{w}_1\right)
        + \mathbf{w}_2, \qquad
        \operatorname{lrelu}(z) = \max(z, z / 100),

    where $\mathbf{s}_{ij} = (\mathbf{q}_{i}^\top\mathbf{k}_{j} / \sqrt{d_h})_h$ are the scores of one
    pair of tokens in all $H$ heads, and $\boldsymbol{\beta}_{ij} = (\beta_h(i, j))_h$ any bias that is
    a function of positions: :class:`ALiBi`, :class:`KerpleLog` and :class:`FIRE` are the authors'.
    Each pair starts with the bias of its position, and the network raises or lowers it depending on the
    scores. So a far key that matches need not fade.

    Pass it to a layer as `MultiHeadAttention(bias=...)`, which adds $\mathbf{b}_{ij}$ to the scores.

    What it guarantees: the correction of a pair depends only on that pair. Tiles, cached keys, padding,
    shifts and far positions therefore work as they do for the bias that it adapts.
    Where it fails: every pair of tokens runs through the network. That takes $6 H m$ operations, where
    its scores take $2 H d_h$, and no fused kernel offers it. All heads must be computed together.
    The network sees $\mathbf{q}^\top\mathbf{k} / \sqrt{d_h}$, even if the layer has another `scale`.

    Make a layer with `DAPE.init(rng, num_heads, bias)`, or from parameters that exist.

    Args:
        bias: $\boldsymbol{\beta}$, a function `(query_positions, key_positions)` that returns
            `(h, n_q, n_k)` or `(*batch, h, n_q, n_k)`.
        hidden_weight: $\mathbf{W}_1$, `(2 h, m)`: the scores of all heads, then their biases.
        hidden_bias: $\mathbf{w}_1$, `(m)`.
        output_weight: $\mathbf{W}_2$, `(m, h)`.
        output_bias: $\mathbf{w}_2$, `(h)`.

    Examples:
        >>> from posattn.reference import ALiBi
        >>> weights = np.array([[0.0], [-1.0]]), np.zeros(1), np.ones((1, 1)), np.zeros(1)
        >>> layer = DAPE(ALiBi(1), *weights)  # takes the bias back
        >>> layer.scores(np.ones((1, 1, 4)), np.ones((1, 3, 4)), np.array([2]), np.arange(3))
        array([[[0., 0., 0.]]])

    References:
        :cite:t:`zheng2024dape`, section 3; the sum of the bias and its correction is that of the
        authors' program.
    """

    needs_all_keys = False  # a score needs only its own query and key

    bias: Callable
    hidden_weight: Inexact[np.ndarray, "two_h m"]
    hidden_bias: Inexact[np.ndarray, " m"]
    output_weight: Inexact[np.ndarray, "m h"]
    output_bias: Inexact[np.ndarray, " h"]

    def __post_init__(self):
        contract.function_of_positions("bias", self.bias)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        num_heads: int,
        bias: Callable,
        *,
        hidden_dim: int = 32,
    ) -> "DAPE":
        r"""Draw the network uniformly from $\pm 1 / \sqrt{2 H}$ and $\pm 1 / \sqrt{m}$, as the authors do.

        Args:
            rng: where the network is drawn from.
            num_heads: the number of heads $H$, at least 1.
            bias: the bias to adapt, `(query_positions, key_positions) -> (num_heads, n_q, n_k)`.
            hidden_dim: the width $m$ of the hidden layer, at least 1.
        """
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        hidden = rng.uniform(-1, 1, (2 * num_heads + 1, hidden_dim)) / np.sqrt(
            2 * num_heads
        )
        output = rng.uniform(-1, 1, (hidden_dim + 1, num_heads)) / np.sqrt(hidden_dim)
        return cls(bias, hidden[:-1], hidden[-1], output[:-1], output[-1])

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
            key: $\mathbf{k}$ of each head, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`.

        Returns:
            $b$, `(*batch, h, n_q, n_k)`.
        """
        network = self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias
        num_heads = contract.head_network(*network)
        contract.head_sequence("query", query)
        where = query_positions, key_positions
        contract.tile(query, key, *where, query.shape[-1], num_heads=num_heads)
        products = query @ key.mT / math.sqrt(query.shape[-1])
        bias = self.bias(*where)
        contract.base_bias(bias, products.shape)
        bias = np.broadcast_to(bias, products.shape)
        features = np.moveaxis(np.concatenate([products, bias], axis=-3), -3, -1)
        hidden = features @ self.hidden_weight + self.hidden_bias
        hidden = np.where(hidden.real > 0, hidden, hidden / 100)
        return bias + np.moveaxis(hidden @ self.output_weight + self.output_bias, -1, -3)


def dape_cases():
    """A bias, given as numbers, and what a network of it and of the scores of all heads adds."""
    network = {
        "hidden_weight": draw(3, 6, 5) / 4,
        "hidden_bias": draw(4, 5) / 4,
        "output_weight": draw(5, 5, 3) / 4,
        "output_bias": draw(6, 3) / 4,
    }
    for name in (
        "six tokens",
        "decoding: three queries, five keys",
        "positions per example",
    ):
        query, key, *_ = heads(*PAIRS[name])
        bias = draw(7, 3, query.shape[-2], key.shape[-2])
        yield name, (query, key, bias), network
    each = draw(8, *query.shape[:-1], key.shape[-2])
    yield "a bias per example", (query, key, each), network


def adapted(query, key, bias, *, hidden_weight, hidden_bias, output_weight, output_bias):
    """DAPE, given the numbers of the bias that it adapts."""
    network = hidden_weight, hidden_bias, output_weight, output_bias
    where = np.arange(query.shape[-2]), np.arange(key.shape[-2])
    return DAPE(lambda *positions: bias, *network).scores(query, key, *where)


CARDS = {
    "DAPE": Card(
        title="Data-adaptive encoding (DAPE)",
        year=2024,
        idea=(
            "A small network reads the scores and biases of all heads and corrects the "
            "bias. In the picture the bias is ALiBi's."
        ),
        formula=r"s_{ij} + \beta_{ij} + f(\mathbf{s}_{ij}, \boldsymbol{\beta}_{ij})",
        symbols=(
            r"$\mathbf{s}_{ij}$ and $\boldsymbol{\beta}_{ij}$ hold the scores and the "
            r"biases of all heads, $\beta_{ij}$ is the bias of this one, and $f$ is the "
            "network."
        ),
        cites=("zheng2024dape",),
        function="DAPE",
        shows="fading evenly to both sides of the diagonal",
        make=lambda n, z=SMALL: learned_bias(DAPE, HEADS, ALiBi(HEADS)),
    ),
}

CASES = {
    "dape": Cases(
        adapted, dape_cases, "zheng2024dape, section 3", name="DAPE(bias, ...).scores"
    ),
}
