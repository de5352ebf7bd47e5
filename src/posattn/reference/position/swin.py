"""Swin's relative bias: one learned number per head and displacement inside a window of an image."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.cases import draw, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["SwinBias"]


@validated
@dataclass(frozen=True, eq=False)
class SwinBias:
    r"""A learned bias for each head and each displacement inside a two-dimensional window.

    .. math:: b_h(i, j) = t_{(y_i - y_j + M_y - 1)(2M_x - 1) + (x_i - x_j + M_x - 1),\,h}, \qquad
        \mathbf{T} \in \mathbb{R}^{(2M_y - 1)(2M_x - 1) \times H},

    where $i$ is the cell of a query and $j$ that of a key.
    The cells of the window, $M_y$ rows and $M_x$ columns, are numbered row by row:
    $i = y_i M_x + x_i$.
    It acts on the scores.
    It depends only on the displacement and tells all displacements apart, directions included.
    There is no bias for a cell outside the window, and asking for one is an error.
    The table counts the displacement from the key to the query, as the authors' program does, so its
    tables fit.

    Make a layer with `SwinBias.init(rng, num_heads, height, width)`, or from a table that exists.

    Args:
        table: $\mathbf{T}$, `((2 * height - 1) * (2 * width - 1), num_heads)`, for $H$ heads.
        height: $M_y$, at least 1.
        width: $M_x$, at least 1.

    Examples:
        >>> layer = SwinBias(np.arange(9.0)[:, None], height=2, width=2)
        >>> layer(np.arange(4), np.arange(4))
        array([[[4., 3., 1., 0.],
                [5., 4., 2., 1.],
                [7., 6., 4., 3.],
                [8., 7., 5., 4.]]])

    References:
        :cite:t:`liu2021swin`, section 3.2, equation 4; the order of the table is that of the authors'
        program (`relative_position_index`).
    """

    table: Inexact[np.ndarray, "displacements h"]
    height: int
    width: int

    def __post_init__(self):
        contract.integer("height", self.height, least=1)
        contract.integer("width", self.width, least=1)

    @classmethod
    def init(
        cls, rng: np.random.Generator, num_heads: int, height: int, width: int
    ) -> "SwinBias":
        """Draw the table from a normal distribution with mean 0 and standard deviation 0.02.

        Args:
            rng: where the table is drawn from.
            num_heads: the number of heads, at least 1.
            height: the number of rows of the window, at least 1.
            width: the number of columns of the window, at least 1.
        """
        num_heads, height, width = contract.sizes(
            num_heads=num_heads, height=height, width=width
        )
        shape = ((2 * height - 1) * (2 * width - 1), num_heads)
        return cls(rng.normal(0, 0.02, shape), height, width)

    def __call__(
        self,
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        """Look up the bias of each query and key.

        Args:
            query_positions: integers from 0 to `height * width - 1`, `(*batch, n_q)`.
            key_positions: integers from 0 to `height * width - 1`, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.

        Raises:
            ValueError: if a position lies outside the window, batch axes of positions differ, or the
                table does not fit.
        """
        height, width = self.height, self.width
        displacements = (2 * height - 1) * (2 * width - 1)
        contract.parameter("table", self.table, (displacements, "num_heads"))
        contract.position_pair(query_positions, key_positions, integers=True)
        contract.window_positions("query_positions", query_positions, height, width)
        contract.window_positions("key_positions", key_positions, height, width)
        y_query, x_query = np.divmod(query_positions.astype(np.int64)[..., :, None], width)
        y_key, x_key = np.divmod(key_positions.astype(np.int64)[..., None, :], width)
        row, column = y_query - y_key + height - 1, x_query - x_key + width - 1
        return np.moveaxis(self.table[row * (2 * width - 1) + column], -1, -3)


def swin_cases():
    """The bias of a window of an image, its cells numbered row by row."""
    table, wide = draw(0, 15, 3), draw(1, 25, 2)
    every = np.arange(6)
    yield (
        "two rows of three cells",
        (every, every),
        {"table": table, "height": 2, "width": 3},
    )
    yield (
        "three rows of two cells",
        (every, every),
        {"table": table, "height": 3, "width": 2},
    )
    yield "a square", (np.arange(9), np.arange(9)), {"table": wide, "height": 3, "width": 3}
    some = (np.array([4, 1]), np.array([0, 5, 2]))
    yield "some of the cells", some, {"table": table, "height": 2, "width": 3}
    one = np.array([4]), some[1]
    yield "one query", one, {"table": table, "height": 2, "width": 3}


CARDS = {
    "Swin": Card(
        title="Bias of Swin",
        year=2021,
        idea=(
            "For images: learn one number for each displacement of two patches within a "
            "window."
        ),
        formula=r"s_{ij} + t_{(y_i - y_j,\; x_i - x_j)}",
        symbols="patch $i$ is in row $y_i$ and column $x_i$, and $t$ is a learned table.",
        cites=("liu2021swin",),
        function="SwinBias",
        shows="blocks of 8 by 8 that repeat along the diagonals",
        models=("Swin",),
        make=lambda n, z=SMALL: learned_bias(SwinBias, HEADS, z.side, z.side),
    )
}

CASES = {"swin": of_positions(SwinBias, swin_cases, "liu2021swin, section 3.2, equation 4")}
