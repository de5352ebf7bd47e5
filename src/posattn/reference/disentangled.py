"""DeBERTa's disentangled attention: content asks for positions, and positions ask for content."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.multi_head import split_heads
from posattn.reference.relative import offsets

__all__ = ["DisentangledBias"]


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
    The table has $2m$ rows, and so the clipping is not symmetric: $i - j$ from $-m$ to $m - 1$ have
    rows of their own, and $m$ shares that of $m - 1$.

    It acts on the scores: as `MultiHeadAttention(bias=...)`, it adds the second and the third term.
    The first is the attention's own, and needs the same factor, because three terms are summed:
    `MultiHeadAttention.init(rng, dim, num_heads, bias=bias, scale=bias.scale)`.

    Only the offset matters, so a shift of all positions changes nothing, and its sign tells directions
    apart.
    Offsets are whole numbers, exact at any size and in every dtype; those out of reach look alike.

    This is the paper's equation.
    The authors' code reads the second row number as $\delta(i, j)$ too (microsoft/DeBERTa, issue
    162), so with their weights the third term differs; they also add an offset to $\mathbf{q}^{(r)}$.
    The issue takes transformers for the paper's equation. It is not: there the number is negated and
    the matrix then transposed, which gives $\delta(i, j)$ again, as `nox -s oracles` shows.
    DeBERTa's second version differs in more: distances beyond a quarter of the table share rows in
    buckets that grow with their logarithm, and positions are projected with the weights of content.

    Make it with `DisentangledBias.init(rng, max_distance, dim, num_heads)`, or from parameters.

    Args:
        table: $\mathbf{T}$, `(2 * max_distance, d)` with $m$ = `max_distance`; row
            $\delta$ belongs to the distance $i - j = \delta - m$.
        query_weight: $\mathbf{W}^{(q,r)}$, `(d, h * d_h)`, the columns of head after head.
        key_weight: $\mathbf{W}^{(k,r)}$, `(d, h * d_h)`.
        num_heads: the number of heads, a divisor of the columns.

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

    table: Inexact[np.ndarray, "rows d"]
    query_weight: Inexact[np.ndarray, "d width"]
    key_weight: Inexact[np.ndarray, "d width"]
    _: KW_ONLY
    num_heads: int

    def __post_init__(self):
        contract.integer("num_heads", self.num_heads, least=1)

    @classmethod
    def init(
        cls, rng: np.random.Generator, max_distance: int, dim: int, num_heads: int
    ) -> "DisentangledBias":
        """Draw all parameters from a normal distribution with standard deviation 0.02.

        Args:
            rng: where the parameters are drawn from.
            max_distance: $m$, half the number of rows of the table, at least 1.
            dim: the width $d$ of the layer, and of the table, at least 1.
            num_heads: the number of heads, a divisor of `dim`.

        Returns:
            The scheme.

        Raises:
            TypeError: if an argument is not of its kind.
            ValueError: if a number lies outside its range or `num_heads` does not divide `dim`.
        """
        max_distance = contract.integer("max_distance", max_distance, least=1)
        dim = contract.integer("dim", dim, least=1)
        num_heads = contract.heads(num_heads, dim)
        contract.rng(rng, isinstance(rng, np.random.Generator), "numpy.random.Generator")
        table = rng.normal(0, 0.02, (2 * max_distance, dim))
        return cls(table, *rng.normal(0, 0.02, (2, dim, dim)), num_heads=num_heads)

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

        Raises:
            TypeError: if an argument is not of its kind.
            ValueError: if shapes do not fit.
        """
        reach, head_dim = contract.projected_table(
            self.table, self.query_weight, self.key_weight, self.num_heads
        )
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=self.num_heads, integers=True)  # fmt: skip
        scaled = self.table * np.float64(self.scale)
        ahead = offsets(query_positions, key_positions)
        q_rows, k_rows = (
            np.moveaxis(split_heads(scaled @ weight, self.num_heads)[:, rows], 0, -4)
            for weight, rows in (
                (self.query_weight, np.clip(ahead + reach, 0, 2 * reach - 1)),
                (self.key_weight, np.clip(-ahead + reach, 0, 2 * reach - 1)),
            )
        )
        content_to_position = np.einsum("...hid,...hijd->...hij", query, k_rows)
        position_to_content = np.einsum("...hjd,...hijd->...hij", key, q_rows)
        return content_to_position + position_to_content
