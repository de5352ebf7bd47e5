"""DeBERTa's disentangled attention: content asks for positions, and positions ask for content."""

from bisect import bisect_right
from dataclasses import KW_ONLY, dataclass
from functools import cache

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.attention.heads import split_heads
from posattn.reference.attention.masks import relative_positions
from posattn.reference.cases import PAIRS, Cases, draw, everywhere, heads, of_content
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["DisentangledBias", "deberta_bucket"]


@validated
def deberta_bucket(
    relative_position: Integer[np.ndarray, "*shape"],
    *,
    num_buckets: int = 256,
    max_distance: int = 512,
) -> Integer[np.ndarray, "*shape"]:
    r"""The bucket of a relative position in DeBERTa's second and third version, with its sign.

    Of the $m$ buckets of one direction the first $E = m/2$ hold one distance each.
    The others grow geometrically, and beyond $D - 1$ there is one that no table has, $m$:

    .. math:: \operatorname{bucket}(\delta) = \operatorname{sign}(\delta) \begin{cases}
        \lvert\delta\rvert & \lvert\delta\rvert \le E \\
        \min\left(m,\; E + \left\lceil \dfrac{\ln(\lvert\delta\rvert/E)}{\ln((D - 1)/E)}\,
        (E - 1) \right\rceil\right) & \lvert\delta\rvert > E. \end{cases}

    Bucket $E + k$ begins at the first $\delta$ with
    $\delta^{E-1} > (D - 1)^{k-1} E^{E-k}$, which is decided in integers here.

    Args:
        relative_position: $\delta$, the difference of two positions, integers of any shape.
        num_buckets: $m$, even and at least 4: `position_buckets` of a configuration.
        max_distance: $D$, greater than $E + 1$: `max_relative_positions` of a configuration, or, if that
            is negative, its `max_position_embeddings`.

    Returns:
        Integers from `-num_buckets` to `num_buckets`, of the shape of `relative_position`.

    Examples:
        >>> deberta_bucket(np.array([-512, -129, -128, 5, 128, 129, 131, 511]))
        array([-256, -129, -128,    5,  128,  129,  131,  255])

    References:
        The authors' program (`make_log_bucket_position` of microsoft/DeBERTa), for :cite:t:`he2021deberta`.
    """
    contract.integer_array("relative_position", relative_position)
    alone, max_distance = contract.log_buckets(num_buckets, max_distance)
    relative = relative_position.astype(np.int64)
    starts = _starts(alone, max_distance)
    found = np.searchsorted(starts, np.abs(relative), side="right")
    return np.asarray(np.sign(relative) * found)


@cache
def _starts(alone, max_distance):
    """The first distance of each bucket but bucket 0."""
    bounds = [(max_distance - 1) ** k * alone ** (alone - 1 - k) for k in range(alone)]
    distances = range(max_distance)
    first = [
        bisect_right(distances, bound, key=lambda d: d ** (alone - 1)) for bound in bounds
    ]
    return (*range(1, alone + 1), *first)


@validated
@dataclass(frozen=True, eq=False)
class DisentangledBias:
    r"""DeBERTa's terms of the score: content to position, and position to content.

    .. math:: s_{ij} = \frac{1}{\sqrt{3 d_h}}\left(\mathbf{q}_i^\top\mathbf{k}_j
        + \mathbf{q}_i^\top\mathbf{k}^{(r)}_{\delta(i,j)}
        + \mathbf{k}_j^\top\mathbf{q}^{(r)}_{\delta(j,i)}\right), \qquad
        \mathbf{q}^{(r)}_\delta = \mathbf{W}^{(q,r)\top}\mathbf{t}_\delta, \quad
        \mathbf{k}^{(r)}_\delta = \mathbf{W}^{(k,r)\top}\mathbf{t}_\delta,

    .. math:: \delta(i, j) = \max(0, \min(2m - 1, i - j + m)).

    One table of vectors for distances, $\mathbf{T}$, is projected to a query and to a key for each
    head.
    The table has $2m$ rows, so the clipping is not symmetric. Each $i - j$ from $-m$ to $m - 1$ has its
    own row, and $m$ shares the row of $m - 1$.

    It acts on the scores: as `MultiHeadAttention(bias=...)`, it adds the second and the third term.
    The layer computes the first itself. It needs the same factor, because three terms are summed:
    `MultiHeadAttention.init(rng, dim, num_heads, bias=bias, scale=bias.scale)`.

    Only the offset matters, so a shift of all positions changes nothing. Its sign tells the two
    directions apart.
    Offsets are whole numbers, exact at any size and in every dtype. Those out of reach look the same.

    This is the paper's equation, and no published weights belong to it.
    The authors' code, and transformers, read the row $\delta(i, j)$ in the third term, too
    (microsoft/DeBERTa, issue 162, says the opposite of transformers: there the number is negated and the
    matrix then transposed, which gives $\delta(i, j)$ again).
    `same_row=True` does what they do: query and key use the same distance, seen from the query.

    In DeBERTa's second and third version distant positions share rows: `bucketed_to=512` replaces
    $i - j$ by its :func:`deberta_bucket` with $D = 512$ and $m$ buckets.

    Published weights need `same_row=True` and the table after its layer norm. If the projections have
    offsets, add a column of ones to the table, and the offsets as one more row to each matrix.
    The second and third version project positions with the matrices of content.

    Make it with `DisentangledBias.init(rng, max_distance, dim, num_heads)`, or from parameters.

    Args:
        table: $\mathbf{T}$, `(2 * max_distance, d)` with $m$ = `max_distance`; row
            $\delta$ belongs to the distance $i - j = \delta - m$.
        query_weight: $\mathbf{W}^{(q,r)}$, `(d, h * d_h)`, the columns of head after head.
        key_weight: $\mathbf{W}^{(k,r)}$, `(d, h * d_h)`.
        num_heads: the number of heads, a divisor of the columns.
        same_row: whether position to content reads the row of $\delta(i, j)$.
        bucketed_to: $D$, from where distances have no bucket, or None for a row for each distance.

    Examples:
        >>> table, one, zero = np.array([[1.0], [10.0]]), np.ones((1, 1)), np.zeros((1, 1))
        >>> query = key = np.full((1, 3, 1), 3**0.5)
        >>> bias = DisentangledBias(table, query_weight=zero, key_weight=one, num_heads=1)
        >>> bias.scores(query, key, np.arange(3), np.arange(3)).round(4)
        array([[[10.,  1.,  1.],
                [10., 10.,  1.],
                [10., 10., 10.]]])
        >>> bias = DisentangledBias(table, query_weight=one, key_weight=zero, num_heads=1)
        >>> bias.scores(query, key, np.arange(3), np.arange(3)).round(4)
        array([[[10., 10., 10.],
                [ 1., 10., 10.],
                [ 1.,  1., 10.]]])

    References:
        :cite:t:`he2021deberta`, equations 3 and 4.
    """

    needs_all_keys = False  # a score needs only its own query and key

    table: Inexact[np.ndarray, "rows d"]
    query_weight: Inexact[np.ndarray, "d width"]
    key_weight: Inexact[np.ndarray, "d width"]
    _: KW_ONLY
    num_heads: int
    same_row: bool = False
    bucketed_to: int | None = None

    def __post_init__(self):
        contract.integer("num_heads", self.num_heads, least=1)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        max_distance: int,
        dim: int,
        num_heads: int,
        *,
        same_row: bool = False,
        bucketed_to: int | None = None,
    ) -> "DisentangledBias":
        r"""Draw all parameters from a normal distribution with standard deviation 0.02.

        Args:
            rng: where the parameters are drawn from.
            max_distance: $m$, half the number of rows of the table, at least 1.
            dim: the width $d$ of the layer, and of the table, at least 1.
            num_heads: the number of heads, a divisor of `dim`.
            same_row: whether position to content reads the row of $\delta(i, j)$, as the authors' code.
            bucketed_to: $D$, from where distances have no bucket, or None for a row for each distance.

        Raises:
            ValueError: if a number lies outside its range or `num_heads` does not divide `dim`.
        """
        max_distance, dim = contract.sizes(max_distance=max_distance, dim=dim)
        num_heads = contract.heads(num_heads, dim)
        contract.bucketed(max_distance, bucketed_to)
        table = rng.normal(0, 0.02, (2 * max_distance, dim))
        weights = rng.normal(0, 0.02, (2, dim, dim))
        return cls(
            table, *weights, num_heads=num_heads, same_row=same_row, bucketed_to=bucketed_to
        )

    @property
    def scale(self) -> float:
        r"""The factor of all terms, $1/\sqrt{3 d_h}$, which the attention must be given."""
        return float((3 * self.key_weight.shape[1] / self.num_heads) ** -0.5)

    def scores(
        self,
        query: Inexact[np.ndarray, "*batch h n_q d_h"],
        key: Inexact[np.ndarray, "*batch h n_k d_h"],
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        r"""What is added to the scores, content to position and position to content.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        reach, head_dim = contract.projected_table(
            self.table, self.query_weight, self.key_weight, self.num_heads
        )
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=self.num_heads, integers=True)  # fmt: skip
        scaled = self.table * np.float64(self.scale)
        behind = -relative_positions(query_positions, key_positions)
        if self.bucketed_to is not None:
            contract.bucketed(reach, self.bucketed_to)
            behind = deberta_bucket(
                behind, num_buckets=reach, max_distance=self.bucketed_to
            )
        q_rows, k_rows = (
            np.moveaxis(split_heads(scaled @ weight, self.num_heads)[:, rows], 0, -4)
            for weight, rows in (
                (self.query_weight, _row(behind if self.same_row else -behind, reach)),
                (self.key_weight, _row(behind, reach)),
            )
        )
        content_to_position = np.einsum("...hid,...hijd->...hij", query, k_rows)
        position_to_content = np.einsum("...hjd,...hijd->...hij", key, q_rows)
        return content_to_position + position_to_content


def _row(distance, reach):
    return np.clip(distance + reach, 0, 2 * reach - 1)


def disentangled_cases():
    """DeBERTa's content to position and position to content, at the scale of three terms."""
    weights = {"query_weight": draw(2, 6, 12), "key_weight": draw(3, 6, 12), "num_heads": 3}
    yield from everywhere(table=draw(4, 4, 6), **weights)
    yield (
        "a longer table",
        heads(*PAIRS["six tokens"]),
        {"table": draw(5, 14, 6), **weights},
    )
    given = {"table": draw(6, 8, 6), **weights}
    pair = heads(*PAIRS["six tokens"])
    yield "both terms read the row of the query", pair, {**given, "same_row": True}
    far = heads(np.array([9, 40]), np.array([0, 3, 6, 7, 9, 12, 40]))
    given = {"table": draw(6, 12, 6), **weights}
    options = {"same_row": True, "bucketed_to": 16}
    yield "buckets of distances up to 15", far, {**given, **options}
    yield "buckets and the paper's rows", far, {**given, "bucketed_to": 16}


def deberta_bucket_cases():
    """The bucket of a relative position in DeBERTa's second version, exact at the boundaries."""
    ends = [127, 128, 129, 130, 131, 132, 133, 134, 499, 500, 505, 506, 511, 512, 2**20]
    yield "near", (np.arange(-6, 7),), {}
    yield "boundaries", (np.array(ends),), {}
    yield "boundaries on the other side", (-np.array(ends),), {}
    yield "a table of six tokens", (np.arange(6)[:, None] - np.arange(6),), {}
    few = {"num_buckets": 8, "max_distance": 20}
    yield "eight buckets", (np.arange(-25, 26),), few


CARDS = {
    "DeBERTa": Card(
        title="Disentangled attention (DeBERTa)",
        year=2020,
        idea=(
            "Compare the words with each other, each query with a vector for the offset, "
            "and each key with another one."
        ),
        formula=(
            r"\left(\mathbf{q}_i^\top\mathbf{k}_j + "
            r"\mathbf{q}_i^\top\mathbf{k}^{(r)}_{i-j} + "
            r"\mathbf{k}_j^\top\mathbf{q}^{(r)}_{j-i}\right) / \sqrt{3 d_h}"
        ),
        symbols=(
            r"$\mathbf{q}^{(r)}$ and $\mathbf{k}^{(r)}$ are queries and keys made from a "
            "learned vector for each offset."
        ),
        cites=("he2021deberta",),
        function="DisentangledBias",
        shows="a band of stripes along the diagonal, and one shade on each side of it",
        models=("DeBERTa-v2",),
        make=lambda n, z=SMALL: learned_bias(
            DisentangledBias, z.trained // 4, z.dim, HEADS
        ),
    )
}

CASES = {
    "disentangled": of_content(
        DisentangledBias, disentangled_cases, "he2021deberta, equations 3 and 4"
    ),
    "deberta_bucket": Cases(
        deberta_bucket, deberta_bucket_cases, "he2021deberta, and the authors' program"
    ),
}
