"""CoPE: a position is a count of the tokens that the query holds for worth counting."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Num

from posattn import contract
from posattn.reference.cases import PAIRS, draw, everywhere, heads, of_content
from posattn.reference.position.card import SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["CoPE"]


@validated
@dataclass(frozen=True, eq=False)
class CoPE:
    r"""Contextual position encoding: gates count the tokens between a query and a key.

    .. math:: g_{il} = \sigma\left(\frac{\mathbf{q}_i^\top \mathbf{k}_l}{\sqrt{d_h}}\right), \qquad
        p_{ij} = \min\left(\sum_{l=j}^{i} g_{il},\ n_{\max} - 1\right),

    .. math:: b_{ij} = (1 - \lambda)\,\mathbf{q}_i^\top \mathbf{e}_{\lfloor p_{ij} \rfloor}
        + \lambda\,\mathbf{q}_i^\top \mathbf{e}_{\lceil p_{ij} \rceil},
        \qquad \lambda = p_{ij} - \lfloor p_{ij} \rfloor .

    Seen from the query at $i$, the key at $j$ has the position $p_{ij}$: how many tokens from $j$ to
    $i$ match the query, each counted by a gate between 0 and 1.
    If all gates are open, this is the distance plus one. If the query matches only the ends of
    sentences, it counts sentences.
    A count is not a whole number, so $b_{ij}$ interpolates between the products with the two rows
    of the table next to it.
    All heads share the table. They still count differently, because their gates differ.

    Pass it to a layer as `MultiHeadAttention(bias=...)`, with causal attention. $b_{ij}$ depends on
    content, so it comes from the method `scores`.

    What it guarantees: only the order of the positions matters, so a common offset changes
    nothing, and lengths beyond the trained one are defined.
    A query reads the keys from $j$ to itself and no others, so decoding with cached keys repeats
    prefill, and padding to the left changes nothing.

    Where it fails: counts end at $n_{\max} - 1$, and everything further back has the same position.
    The gradient of a count that has reached the end is zero.
    Keys after the query have the position 0, because CoPE is for causal attention.
    A hidden key between $j$ and $i$ is still counted. (The authors' code takes the mask into the count.)
    The same goes for keys of other documents if packed sequences restart their positions. Leave the
    positions out there, and the mask is enough.
    Every pair of query and key needs a gate, a sum and two look-ups, which no fused kernel offers.

    Accuracy: positions are only compared, which is exact. A count over $2^{20}$ keys has a relative
    error below $10^{-12}$ in float64 and $2 \cdot 10^{-6}$ in float32.
    Where a count is a whole number, the interpolation has a corner. Its gradient there is 0, as in
    the authors' code.

    Variants: this is the listing in the paper's appendix, in which the gates see
    the scaled scores and $b_{ij}$ is added as it is.
    The paper's equations leave the scale out.
    The authors' training code divides $b_{ij}$ by $\sqrt{d_h}$ too, unless told otherwise
    (`cope_nodiv`): divide the table by $\sqrt{d_h}$.
    It can also take the gates from separate keys or from the values, which is not done here.

    Make a table with `CoPE.init(rng, max_len, head_dim)`, or pass one that exists. The authors' table
    is its transpose, with a leading axis of 1.

    Args:
        table: $\mathbf{e}_0, \ldots, \mathbf{e}_{n_{\max}-1}$, `(max_len, d_h)`; $n_{\max}$ is one
            more than the largest count.

    Examples:
        >>> cope = CoPE(np.array([[0.0], [10.0], [20.0]]))
        >>> query, key = np.full((1, 1, 1), 1.0), np.array([[[99.0], [99.0], [-99.0], [0.0]]])
        >>> cope.scores(query, key, np.array([3]), np.arange(4))
        array([[[20., 15.,  5.,  5.]]])

    References:
        :cite:t:`golovneva2024contextual`, section 4 and the listing in the appendix.
    """

    needs_all_keys = True  # a score counts the other keys, too

    table: Inexact[np.ndarray, "max_len d_h"]

    @classmethod
    def init(cls, rng: np.random.Generator, max_len: int, head_dim: int) -> "CoPE":
        """Draw the table from a normal distribution with mean 0 and standard deviation 0.02.

        The authors start from zeros, which is a layer without positions.

        Args:
            rng: where the table is drawn from.
            max_len: the number of rows, one more than the largest count, at least 1.
            head_dim: the width of the heads, at least 1.

        Returns:
            The encoding.
        """
        max_len, head_dim = contract.sizes(max_len=max_len, head_dim=head_dim)
        return cls(rng.normal(0, 0.02, (max_len, head_dim)))

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
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`; a query counts
                the keys that stand at or before its own position.

        Returns:
            $b$, `(*batch, h, n_q, n_k)`.
        """
        max_len, head_dim = self.table.shape
        contract.tile(query, key, query_positions, key_positions, head_dim)
        passed = key_positions[..., None, :] <= query_positions[..., :, None]
        gates = _sigmoid(query @ key.mT / math.sqrt(head_dim))
        gates = np.where(passed[..., None, :, :], gates, 0)
        count = np.cumsum(gates[..., ::-1], axis=-1)[..., ::-1]
        count = np.where(count.real < max_len - 1, count, max_len - 1)
        below = np.floor(count.real).astype(int)
        above = np.ceil(count.real).astype(int)
        products = query @ self.table.T
        share = count - below
        return (1 - share) * np.take_along_axis(products, below, axis=-1) + (
            share * np.take_along_axis(products, above, axis=-1)
        )


def _sigmoid(z):
    negative = z.real < 0
    exp = np.exp(np.where(negative, z, -z))
    return np.where(negative, exp, 1) / (1 + exp)


def cope_cases():
    """CoPE's term of the scores: the position of a key is a count by gates."""
    yield from everywhere(table=draw(2, 4, 4))
    yield "counts below the end", heads(*PAIRS["six tokens"]), {"table": draw(3, 9, 4)}


CARDS = {
    "CoPE": Card(
        title="Contextual positions (CoPE)",
        year=2024,
        idea=(
            "Count only what the query chooses to count, such as ends of sentences, and "
            "use that count as the distance."
        ),
        formula=(
            r"s_{ij} + \mathbf{q}_i^\top\mathbf{e}_{p_{ij}}, \quad p_{ij} = "
            r"\textstyle\sum_{l=j}^{i} \sigma(s_{il})"
        ),
        symbols=(
            r"$p_{ij}$ is the count, $\sigma$ the logistic function, and $\mathbf{e}_p$ a "
            "learned vector, interpolated between whole numbers."
        ),
        cites=("golovneva2024contextual",),
        function="CoPE",
        shows="stripes below the diagonal, one shade above it",
        make=lambda n, z=SMALL: learned_bias(CoPE, z.trained, z.head_dim),
    )
}

CASES = {"cope": of_content(CoPE, cope_cases, "golovneva2024contextual, section 4")}
