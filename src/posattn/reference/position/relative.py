"""Relative representations: a learned vector for each offset between query and key."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.attention.masks import relative_positions
from posattn.reference.cases import PAIRS, Cases, draw, everywhere, flat, heads, of_content
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["RelativeGlobalAttention", "ShawRelative", "skew"]


@validated
@dataclass(frozen=True, eq=False)
class ShawRelative:
    r"""Shaw's relative representations: each offset has a vector that is added to keys, and one for values.

    .. math:: s_{ij} = \frac{\mathbf{q}_i^\top(\mathbf{k}_j + \mathbf{a}^{(k)}_{c(j-i)})}{\sqrt{d_h}},
        \qquad \mathbf{y}_i = \sum_j w_{ij}\,(\mathbf{v}_j + \mathbf{a}^{(v)}_{c(j-i)}), \qquad
        c(\delta) = \max(-m, \min(m, \delta)).

    Here $w_{ij}$ are the attention weights, the softmax of $s_{ij}$ over $j$.
    It acts on the scores and on the values of each head. As `MultiHeadAttention(bias=...)` it adds the
    terms with $\mathbf{a}$; the layer computes the other two itself.
    All heads share both tables, as in the paper.
    Table row $r$ belongs to the offset $r - m$, so keys of the past have the first rows.

    Only the offset $\delta = j - i$ matters, so a shift of all positions changes nothing. Its sign tells
    the two directions apart.
    Offsets are whole numbers, exact at any size and in every dtype.
    Beyond $m$ they are clipped. The scheme is defined for any length, but all distances out there look
    the same.

    The paper has both tables and found that the one for values is not needed (its table 3). Leave it
    out with `value_table=None`.

    Make it with `ShawRelative.init(rng, max_distance, head_dim)`, or from tables that exist.

    Args:
        key_table: $\mathbf{A}^{(k)}$, `(2 * max_distance + 1, d_h)` with $m$ = `max_distance`.
        value_table: $\mathbf{A}^{(v)}$, of the same shape, or None.

    Examples:
        >>> bias = ShawRelative(np.array([[1.0], [0.0], [10.0]]))
        >>> query = key = np.ones((1, 3, 1))
        >>> bias.scores(query, key, np.arange(3), np.arange(3))
        array([[[ 0., 10., 10.],
                [ 1.,  0., 10.],
                [ 1.,  1.,  0.]]])

    References:
        :cite:t:`shaw2018self`, equations 3 and 4 and section 3.2.
    """

    needs_all_keys = False  # a score needs only its own query and key

    key_table: Inexact[np.ndarray, "offsets d_h"]
    value_table: Inexact[np.ndarray, "offsets d_h"] | None = None

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        max_distance: int,
        head_dim: int,
        *,
        use_values: bool = True,
    ) -> "ShawRelative":
        r"""Draw the tables uniformly, within the bounds of Glorot, $\pm\sqrt{6/(2m + 1 + d_h)}$.

        Args:
            rng: where the tables are drawn from.
            max_distance: $m$, the largest offset that has its own vector, at least 0.
            head_dim: the width $d_h$ of a head, at least 1.
            use_values: whether offsets act on values, too.
        """
        rows = 2 * contract.integer("max_distance", max_distance) + 1
        head_dim = contract.integer("head_dim", head_dim, least=1)
        bound = np.sqrt(6 / (rows + head_dim))
        tables = rng.uniform(-bound, bound, (2, rows, head_dim))
        return cls(tables[0], tables[1] if use_values else None)

    def scores(
        self,
        query: Inexact[np.ndarray, "*batch h n_q d_h"],
        key: Inexact[np.ndarray, "*batch h n_k d_h"],
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        r"""What is added to the scores, $\mathbf{q}_i^\top\mathbf{a}^{(k)}_{c(j-i)} / \sqrt{d_h}$.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`; only their shape and dtype are looked at.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`.
        """
        head_dim = self.key_table.shape[-1]
        contract.tile(query, key, query_positions, key_positions, head_dim, integers=True)
        reach = contract.offset_table("key_table", self.key_table, odd=True)
        offsets = relative_positions(query_positions, key_positions)
        rows = np.clip(offsets, -reach, reach) + reach
        scaled = query / np.sqrt(head_dim)
        return np.einsum("...hid,...ijd->...hij", scaled, self.key_table[rows])

    def values(
        self,
        weights: Inexact[np.ndarray, "*batch h n_q n_k"],
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q d_h"]:
        r"""What is added to the output of the heads, $\sum_j w_{ij}\,\mathbf{a}^{(v)}_{c(j-i)}$.

        Args:
            weights: the attention weights $w$, `(*batch, h, n_q, n_k)`.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, d_h)`, zeros without a table of values.
        """
        contract.head_sequence("weights", weights)
        contract.tile_positions(
            query_positions, key_positions, weights.shape, integers=True
        )
        if self.value_table is None:
            return np.zeros((*weights.shape[:-1], self.key_table.shape[-1]))
        reach = contract.offset_table("value_table", self.value_table, odd=True)
        offsets = relative_positions(query_positions, key_positions)
        rows = np.clip(offsets, -reach, reach) + reach
        return np.einsum("...hij,...ijd->...hid", weights, self.value_table[rows])


@validated
def skew(x: Inexact[np.ndarray, "*batch n n"]) -> Inexact[np.ndarray, "*batch n n"]:
    r"""Move products with a table of distances to the keys at those distances.

    .. math:: \operatorname{skew}(\mathbf{X})_{ij} = x_{i,\,n-1-(i-j)} \qquad \text{for } j \le i.

    Column $m$ of $\mathbf{X} = \mathbf{Q}\mathbf{E}^\top$ belongs to the distance $n - 1 - m$: the rows
    of $\mathbf{E}$ are ordered from the farthest key to the query itself.
    Putting a column of zeros in front, reading the numbers as $n + 1$ rows of $n$, and dropping the
    first row shifts each row into place without an index: memory $O(n^2)$ per head instead of
    $O(n^2 d_h)$ for a gathered table.

    Above the diagonal, for keys in the future, the numbers mean nothing: 0 for $j = i + 1$, and
    $x_{i+1,\,j-i-2}$, which belongs to the next query, for $j \ge i + 2$.
    A causal mask must hide them.

    Args:
        x: $\mathbf{X}$, `(*batch, n, n)`, for the queries and keys of the same $n$ tokens.

    Returns:
        `(*batch, n, n)`.

    Raises:
        ValueError: if the last two axes differ.

    Examples:
        >>> x = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]])
        >>> skew(x)
        array([[2., 0., 3.],
               [4., 5., 0.],
               [6., 7., 8.]])

    References:
        :cite:t:`huang2019music`, the skewing procedure.
    """
    contract.square("x", x)
    *batch, n, _ = x.shape
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)])
    return padded.reshape(*batch, n + 1, n)[..., 1:, :]


@validated
@dataclass(frozen=True, eq=False)
class RelativeGlobalAttention:
    r"""The relative attention of the Music Transformer: each head has a vector for each distance.

    .. math:: s_{ij} = \frac{\mathbf{q}_i^\top(\mathbf{k}_j + \mathbf{e}_{i-j})}{\sqrt{d_h}}
        \quad \text{for } 0 \le i - j < n_{\max}.

    It acts on the scores. As `MultiHeadAttention(bias=...)` it adds the term with $\mathbf{e}$; the layer
    computes the other itself.
    The paper orders the table from the farthest key to the query itself: row $r$ of a head belongs to
    the distance $n_{\max} - 1 - r$.
    So for $n$ consecutive tokens, :func:`skew` of the products with the last $n$ rows gives the same.
    Here rows are looked up by position, which works for any positions and any number of queries.

    It was made for causal attention.
    Keys in the future have no vector, nor do keys at a distance of $n_{\max}$ or more. They get 0, as in
    the authors' code, which pads the table with zeros.
    (Shaw clips distances instead, see :class:`ShawRelative`, so that far keys keep a vector.)
    Only the offset matters, so a shift of all positions changes nothing. It is a whole number, exact at
    any size and in every dtype.

    Make it with `RelativeGlobalAttention.init(rng, max_len, num_heads, head_dim)`, or from a table.

    Args:
        table: $\mathbf{E}$, `(h, max_len, d_h)` with $n_{\max}$ = `max_len`.

    Examples:
        >>> bias = RelativeGlobalAttention(np.array([[[5.0], [2.0]]]))
        >>> query = key = np.ones((1, 3, 1))
        >>> bias.scores(query, key, np.arange(3), np.arange(3))
        array([[[2., 0., 0.],
                [5., 2., 0.],
                [0., 5., 2.]]])

    References:
        :cite:t:`huang2019music`, relative global attention.
    """

    needs_all_keys = False  # a score needs only its own query and key

    table: Inexact[np.ndarray, "h max_len d_h"]

    @classmethod
    def init(
        cls, rng: np.random.Generator, max_len: int, num_heads: int, head_dim: int
    ) -> "RelativeGlobalAttention":
        r"""Draw the table from a normal distribution with standard deviation $1/\sqrt{d_h}$.

        Args:
            rng: where the table is drawn from.
            max_len: $n_{\max}$, the number of distances with a vector, at least 1.
            num_heads: the number of heads, at least 1.
            head_dim: the width $d_h$ of a head, at least 1.
        """
        max_len, num_heads, head_dim = contract.sizes(
            max_len=max_len, num_heads=num_heads, head_dim=head_dim
        )
        return cls(rng.normal(0, head_dim**-0.5, (num_heads, max_len, head_dim)))

    def scores(
        self,
        query: Inexact[np.ndarray, "*batch h n_q d_h"],
        key: Inexact[np.ndarray, "*batch h n_k d_h"],
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        r"""What is added to the scores, $\mathbf{q}_i^\top\mathbf{e}_{i-j} / \sqrt{d_h}$.

        Args:
            query: the queries of each head, `(*batch, h, n_q, d_h)`.
            key: the keys, `(*batch, h, n_k, d_h)`; only their shape and dtype are looked at.
            query_positions: where the queries stand, integers, `(n_q)` or `(*batch, n_q)`.
            key_positions: where the keys stand, integers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, h, n_q, n_k)`, 0 for keys in the future and for those too far away.
        """
        num_heads, max_len, head_dim = self.table.shape
        contract.tile(query, key, query_positions, key_positions, head_dim,
                      num_heads=num_heads, integers=True)  # fmt: skip
        rows = max_len - 1 + relative_positions(query_positions, key_positions)
        rows = np.where((rows >= 0) & (rows < max_len), rows, max_len)
        padded = np.pad(self.table, [(0, 0), (0, 1), (0, 0)])
        vectors = np.moveaxis(padded[:, rows], 0, -4)
        return np.einsum("...hid,...hijd->...hij", query / np.sqrt(head_dim), vectors)


def shaw_cases():
    """Shaw's term of the scores: a vector for each offset, clipped."""
    yield from everywhere(key_table=draw(2, 5, 4))
    yield "far apart", heads(*PAIRS["six tokens"]), {"key_table": draw(3, 21, 4)}
    yield "one vector", heads(*PAIRS["six tokens"]), {"key_table": draw(4, 1, 4)}


def shaw_values_cases():
    """Shaw's addition to the output of the heads."""
    for name, (query_positions, key_positions) in PAIRS.items():
        shape = *query_positions.shape[:-1], 3, query_positions.shape[-1]
        weights = np.abs(draw(0, *shape, key_positions.shape[-1]))
        tables = {"key_table": draw(1, 5, 4), "value_table": draw(2, 5, 4)}
        yield name, (weights, query_positions, key_positions), tables


def skew_cases():
    """The Music Transformer's skewing, the numbers above the diagonal included."""
    yield "four tokens", (draw(0, 4, 4),), {}
    yield "two examples of three heads", (draw(1, 2, 3, 5, 5),), {}
    yield "one token", (draw(2, 1, 1),), {}


def music_transformer_cases():
    """The Music Transformer's term of the scores: a vector for each head and distance."""
    yield from everywhere(table=draw(2, 3, 5, 4))


CARDS = {
    "Shaw": Card(
        title="Relative embeddings of Shaw",
        year=2018,
        idea=(
            "Learn a vector for each offset and add it to the key. A second set of "
            "vectors is added to the values."
        ),
        formula=(
            r"s_{ij} + \mathbf{q}_i^\top\mathbf{a}_{j-i} / \sqrt{d_h}, \quad |j - i| "
            r"\text{ clipped}"
        ),
        symbols=r"$\mathbf{a}_{j-i}$ is the vector of the offset, and distant offsets share one.",
        cites=("shaw2018self",),
        function="ShawRelative",
        shows="a band of stripes along the diagonal, and one shade on each side of it",
        models=("w2v-BERT 2.0 (without the vectors on values)",),
        page="other/shaw",
        make=lambda n, z=SMALL: learned_bias(ShawRelative, z.trained // 8, z.head_dim),
    ),
    "Music Transformer": Card(
        title="Music Transformer",
        year=2018,
        idea=(
            "Shaw's idea for the past only, with one vector for each distance and a "
            "trick that saves memory."
        ),
        formula=r"s_{ij} + \mathbf{q}_i^\top\mathbf{e}_{i-j} / \sqrt{d_h}, \quad j \le i",
        symbols=r"$\mathbf{e}_{i-j}$ is the learned vector of the distance.",
        cites=("huang2019music",),
        function="RelativeGlobalAttention",
        shows="stripes below the diagonal, one shade above it",
        models=("Music Transformer (by Magenta)",),
        make=lambda n, z=SMALL: learned_bias(
            RelativeGlobalAttention, z.trained, HEADS, z.head_dim
        ),
    ),
}

SHAW, MUSIC = "shaw2018self, equations 3 and 4", "huang2019music, the skewing procedure"
CASES = {
    "shaw": of_content(ShawRelative, shaw_cases, SHAW),
    "shaw_values": Cases(
        flat(ShawRelative, "weights", "query_positions", "key_positions", method="values"),
        shaw_values_cases,
        SHAW,
        name="ShawRelative",
        method="values",
    ),
    "skew": Cases(skew, skew_cases, MUSIC),
    "music_transformer": of_content(
        RelativeGlobalAttention, music_transformer_cases, MUSIC
    ),
}
