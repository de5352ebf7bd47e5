"""TUPE: positions attend to positions, through their own projections."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.attention.heads import split_heads
from posattn.reference.cases import PAIRS, draw, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["TUPEBias"]


@validated
@dataclass(frozen=True, eq=False)
class TUPEBias:
    r"""TUPE's term of the score: absolute positions attend to each other, apart from the content.

    .. math:: s_{ij} = \frac{\mathbf{q}_i^\top\mathbf{k}_j}{\sqrt{2 d_h}} + b_{ij}, \qquad
        b_{ij} = \frac{(\mathbf{U}^{(q)\top}\mathbf{t}_i)^\top(\mathbf{U}^{(k)\top}\mathbf{t}_j)}
        {\sqrt{2 d_h}},

    where $i$ is the position of a query and $j$ that of a key.
    Adding a position to its token would also give products of a word and a position, which TUPE leaves
    out: *transformer with untied positional encoding*.

    It acts on the scores: as `MultiHeadAttention(bias=...)`, it adds the second term, $b_{ij}$.
    The layer computes the first itself. It needs the same factor, because two terms are summed:
    `MultiHeadAttention.init(rng, dim, num_heads, bias=bias, scale=bias.scale)`.
    Content plays no part in it, so one matrix of scores serves a whole batch. The authors share it among
    all layers, as one object used in several layers does.

    Position 0 may hold [CLS], which stands for the whole sequence and has no neighbours.
    With `cls_bias` its position scores are reset: the query at 0 gets $\theta_1$ for every key, and
    the key at 0 gets $\theta_2$ from every other query,

    .. math:: \operatorname{reset}_\theta(b, i, j) = \begin{cases} \theta_1 & i = 0, \\
        \theta_2 & i \ne 0, j = 0, \\ b & \text{otherwise.} \end{cases}

    Positions are whole numbers within the table, and a shift of all positions changes the scores.

    This is TUPE-A.
    TUPE-R adds the bias of T5 before the reset.
    The authors' code normalises the table first and has offsets in the projections: give the normalised
    table with one more column, of ones, and matrices with one more row, the offsets.
    Its $\theta$ are made and not free: $\theta_2$ is the score of position 0 with itself, whose row
    serves nothing else, and $\theta_1$ that of one more row of the table with itself.
    Here they are parameters of their own, as in the paper, and can hold what the code makes.

    Make it with `TUPEBias.init(rng, max_len, dim, num_heads)`, or from parameters that exist.

    Args:
        table: $\mathbf{T}$, `(max_len, d)` with $n_{\max}$ = `max_len`.
        query_weight: $\mathbf{U}^{(q)}$, `(d, h * d_h)`, the columns of head after head.
        key_weight: $\mathbf{U}^{(k)}$, `(d, h * d_h)`.
        cls_bias: $\theta_1$ and $\theta_2$ of each head, `(2, h)`, or None for no reset.
        num_heads: the number of heads, a divisor of the columns.

    Examples:
        >>> table, one = np.array([[1.0], [2.0], [3.0]]), np.ones((1, 1))
        >>> (2**0.5 * TUPEBias(table, one, one, num_heads=1)(np.arange(3), np.arange(3))).round(4)
        array([[[1., 2., 3.],
                [2., 4., 6.],
                [3., 6., 9.]]])
        >>> reset = TUPEBias(table, one, one, np.array([[7.0], [8.0]]), num_heads=1)
        >>> reset(np.arange(3), np.arange(3)).round(4)
        array([[[7.    , 7.    , 7.    ],
                [8.    , 2.8284, 4.2426],
                [8.    , 4.2426, 6.364 ]]])

    References:
        :cite:t:`ke2021rethinking`, sections 3.1 and 3.2.
    """

    table: Inexact[np.ndarray, "max_len d"]
    query_weight: Inexact[np.ndarray, "d width"]
    key_weight: Inexact[np.ndarray, "d width"]
    cls_bias: Inexact[np.ndarray, "2 h"] | None = None
    _: KW_ONLY
    num_heads: int

    def __post_init__(self):
        contract.integer("num_heads", self.num_heads, least=1)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        max_len: int,
        dim: int,
        num_heads: int,
        *,
        use_cls: bool = False,
    ) -> "TUPEBias":
        r"""Draw table and weights from a normal distribution with standard deviation 0.02.

        Args:
            rng: where the parameters are drawn from.
            max_len: $n_{\max}$, the number of positions, at least 1.
            dim: the width $d$ of the layer, and of the table, at least 1.
            num_heads: the number of heads, a divisor of `dim`.
            use_cls: whether position 0 holds [CLS]; $\theta$ starts at 0.

        Raises:
            ValueError: if a number lies outside its range or `num_heads` does not divide `dim`.
        """
        max_len, dim = contract.sizes(max_len=max_len, dim=dim)
        num_heads = contract.heads(num_heads, dim)
        table = rng.normal(0, 0.02, (max_len, dim))
        weights = rng.normal(0, 0.02, (2, dim, dim))
        cls_bias = np.zeros((2, num_heads)) if use_cls else None
        return cls(table, *weights, cls_bias, num_heads=num_heads)

    @property
    def scale(self) -> float:
        r"""The factor of both terms, $1/\sqrt{2 d_h}$, which the attention must be given."""
        return float((2 * self.key_weight.shape[1] / self.num_heads) ** -0.5)

    def __call__(
        self,
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch_and_heads n_q n_k"]:
        r"""What is added to the scores.

        Args:
            query_positions: where the queries stand, integers from 0 to $n_{\max} - 1$, `(n_q)` or
                `(*batch, n_q)`.
            key_positions: where the keys stand, likewise, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(h, n_q, n_k)`, or `(*batch, h, n_q, n_k)` if positions have batch axes.

        Raises:
            ValueError: if shapes do not fit, or a position lies outside the table.
        """
        contract.untied(
            self.table, self.query_weight, self.key_weight, self.cls_bias, self.num_heads
        )
        contract.position_pair(query_positions, key_positions, integers=True)
        for name, where in (
            ("query_positions", query_positions),
            ("key_positions", key_positions),
        ):
            contract.table_rows(where, len(self.table), name=name)
        queries = split_heads(
            self.table[query_positions] @ self.query_weight, self.num_heads
        )
        keys = split_heads(self.table[key_positions] @ self.key_weight, self.num_heads)
        scores = queries @ keys.mT * np.float64(self.scale)
        if self.cls_bias is None:
            return scores
        from_cls, to_cls = self.cls_bias[..., None, None]
        at_cls = (key_positions == 0)[..., None, None, :]
        scores = np.where(at_cls, to_cls, scores)
        return np.where((query_positions == 0)[..., None, :, None], from_cls, scores)


def tupe_cases():
    """TUPE's term of the score: positions attend to positions, at the scale of two terms."""
    given = {
        "table": draw(0, 10, 6),
        "query_weight": draw(1, 6, 12),
        "key_weight": draw(2, 6, 12),
        "num_heads": 3,
    }
    reset = {**given, "cls_bias": draw(3, 2, 3)}
    for name, pair in PAIRS.items():
        if max(map(np.max, pair)) < len(given["table"]):
            yield name, pair, given
            yield f"{name}, with a reset", pair, reset
    yield "an order of their own", (np.array([4, 0, 7]), np.array([1, 0, 5, 9])), given


CARDS = {
    "TUPE": Card(
        title="Untied positions (TUPE)",
        year=2020,
        idea="Give positions queries and keys of their own, separate from those of the words.",
        formula=(
            r"\left(\mathbf{q}_i^\top\mathbf{k}_j + "
            r"(\mathbf{U}^{(q)\top}\mathbf{t}_i)^\top(\mathbf{U}^{(k)\top}\mathbf{t}_j)\right) "
            r"/ \sqrt{2 d_h}"
        ),
        symbols=(
            r"$\mathbf{t}_i$ is a learned row for position $i$, and $\mathbf{U}^{(q)}$ "
            r"and $\mathbf{U}^{(k)}$ are projections for positions only."
        ),
        cites=("ke2021rethinking",),
        function="TUPEBias",
        shows="noise, because the rows of the table are random before training",
        make=lambda n, z=SMALL: learned_bias(TUPEBias, z.trained, z.dim, HEADS),
    ),
}

CASES = {
    "tupe": of_positions(TUPEBias, tupe_cases, "ke2021rethinking, sections 3.1 and 3.2"),
}
