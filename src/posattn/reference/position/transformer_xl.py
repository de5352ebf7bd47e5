"""Transformer-XL: attention by content and by distance, with two queries that are the same everywhere."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Inexact, Real

from posattn import contract
from posattn.reference.cases import PAIRS, draw, everywhere, heads, of_content
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.position.sinusoidal import sinusoidal_encoding
from posattn.reference.validated import validated

__all__ = ["TransformerXLBias"]


@validated
@dataclass(frozen=True, eq=False)
class TransformerXLBias:
    r"""Transformer-XL's terms of the score: relative position, and preferences of every query.

    .. math:: s_{ij} = \frac{1}{\sqrt{d_h}}\left(\mathbf{q}_i^\top\mathbf{k}_j
        + \mathbf{q}_i^\top\mathbf{r}_{i-j} + \mathbf{u}^\top\mathbf{k}_j
        + \mathbf{v}^\top\mathbf{r}_{i-j}\right), \qquad
        \mathbf{r}_\delta = \mathbf{W}^\top\mathbf{p}_\delta,

    where $\mathbf{p}_\delta$ is the sinusoidal encoding of the distance $\delta = i - j$, which
    $\mathbf{W}$ projects to a key for each head.
    The four terms score the content of a key, its distance as this query sees it, the content that
    every query prefers, and the distance that every query prefers.

    It acts on the scores. The layer computes the first term itself, and `MultiHeadAttention(bias=...)`
    adds the other three.

    Distances may have any size and sign, may be fractions, and may exceed the trained length.
    Only distances matter, so a shift of all positions changes nothing. That is why keys can be cached
    from segment to segment.
    Past and future differ in the sign of the sines.

    The sinusoids are the paper's, sine and cosine in turn.
    The authors' code has all sines before all cosines: the rows of its `r_net.weight.T` belong here in
    the order `0, d / 2, 1, d / 2 + 1, ...`.
    That code shares $\mathbf{u}$ and $\mathbf{v}$ among layers by default; here one object
    used in several layers does the same.

    Make it with `TransformerXLBias.init(rng, dim, num_heads)`, or from parameters that exist.

    Args:
        content_bias: $\mathbf{u}$, `(h, d_h)`.
        position_bias: $\mathbf{v}$, `(h, d_h)`.
        weight: $\mathbf{W}$, `(d, h * d_h)`, the columns of head after head; $d$, the width of the
            sinusoids, is even.
        base: $b$ of the frequencies of the sinusoids, positive.

    Examples:
        >>> u, v, weight = np.array([[2.0]]), np.array([[1.0]]), np.array([[0.0], [3.0]])
        >>> bias = TransformerXLBias(u, v, weight)  # only cosines count
        >>> query, key = np.zeros((1, 2, 1)), np.array([[[1.0], [5.0]]])
        >>> bias.scores(query, key, np.arange(2), np.arange(2)).round(4)
        array([[[ 5.    , 11.6209],
                [ 3.6209, 13.    ]]])

    References:
        :cite:t:`dai2019transformerxl`, section 3.3.
    """

    needs_all_keys = False  # a score needs only its own query and key

    content_bias: Inexact[np.ndarray, "h d_h"]
    position_bias: Inexact[np.ndarray, "h d_h"]
    weight: Inexact[np.ndarray, "d width"]
    _: KW_ONLY
    base: float = 10000.0

    def __post_init__(self):
        contract.base(self.base)

    @classmethod
    def init(
        cls, rng: np.random.Generator, dim: int, num_heads: int, *, base: float = 10000.0
    ) -> "TransformerXLBias":
        """Draw all parameters from a normal distribution with standard deviation 0.02.

        Args:
            rng: where the parameters are drawn from.
            dim: the width $d$ of the layer, and of the sinusoids, even.
            num_heads: the number of heads, a divisor of `dim`.
            base: $b$ of the frequencies, positive.

        Raises:
            ValueError: if a number lies outside its range or `num_heads` does not divide `dim`.
        """
        dim = contract.integer("dim", dim, least=1, even=True)
        num_heads = contract.heads(num_heads, dim)
        biases = rng.normal(0, 0.02, (2, num_heads, dim // num_heads))
        return cls(*biases, rng.normal(0, 0.02, (dim, dim)), base=base)

    def scores(
        self,
        query: Inexact[np.ndarray, "*batch h n_q d_h"],
        key: Inexact[np.ndarray, "*batch h n_k d_h"],
        query_positions: Real[np.ndarray, "*#batch n_q"],
        key_positions: Real[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        r"""What is added to the scores, the last three terms.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        num_heads, head_dim = self.content_bias.shape
        contract.parameter("position_bias", self.position_bias, (num_heads, head_dim))
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=num_heads)  # fmt: skip
        dim = contract.sinusoid_weight(self.weight, num_heads * head_dim)
        where = query_positions.astype(float)[..., None]
        distances = where - key_positions.astype(float)[..., None, :]
        sinusoids = sinusoidal_encoding(distances, dim, base=self.base)
        projections = self.weight.reshape(dim, num_heads, head_dim)
        away = np.einsum("...ijc,chd->...hijd", sinusoids, projections)
        liked = np.einsum("hd,...hjd->...hj", self.content_bias, key)[..., None, :]
        asked = query + self.position_bias[:, None]
        return (liked + np.einsum("...hid,...hijd->...hij", asked, away)) / np.sqrt(
            head_dim
        )


def transformer_xl_cases():
    """Transformer-XL's terms of the score beside that of query and key."""
    given = {
        "content_bias": draw(2, 3, 4),
        "position_bias": draw(3, 3, 4),
        "weight": draw(4, 6, 12),
    }
    yield from everywhere(**given)
    yield "another base", heads(*PAIRS["six tokens"]), {**given, "base": 500.0}


CARDS = {
    "Transformer-XL": Card(
        title="Transformer-XL",
        year=2019,
        idea=(
            "Split the score into four terms, which compare a query or a learned vector "
            "with a key or an encoding of the offset."
        ),
        formula=(
            r"s_{ij} + \left(\mathbf{q}_i^\top\mathbf{r}_{i-j} + "
            r"\mathbf{u}^\top\mathbf{k}_j + \mathbf{u}'^\top\mathbf{r}_{i-j}\right) / "
            r"\sqrt{d_h}"
        ),
        symbols=(
            r"$\mathbf{r}_{i-j}$ is a projected sinusoid of the offset, and $\mathbf{u}$ "
            r"and $\mathbf{u}'$ are learned."
        ),
        cites=("dai2019transformerxl",),
        function="TransformerXLBias",
        shows="soft stripes along the diagonal",
        models=("Transformer-XL", "XLNet"),
        page="other/shaw",
        make=lambda n, z=SMALL: learned_bias(TransformerXLBias, z.dim, HEADS),
    ),
}

CASES = {
    "transformer_xl": of_content(
        TransformerXLBias, transformer_xl_cases, "dai2019transformerxl, section 3.3"
    ),
}
