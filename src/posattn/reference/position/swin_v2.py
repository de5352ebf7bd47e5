"""Swin V2's continuous bias: a small network reads the displacement inside a window of an image."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.cases import draw, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.position.swin import SwinBias
from posattn.reference.validated import validated

__all__ = ["SwinV2Bias"]


@validated
@dataclass(frozen=True, eq=False)
class SwinV2Bias:
    r"""A learned function of the displacement inside a window, which also works for a larger window.

    .. math:: b_h(i, j) = 16\,\sigma\bigl(\operatorname{relu}(\hat{\mathbf{u}}_{ij}^\top\mathbf{W}_1
        + \mathbf{w}_1^\top)\,\mathbf{W}_2\bigr)_h, \qquad
        \hat{\mathbf{u}}_{ij} = \bigl(g(y_i - y_j,\, M'_y),\ g(x_i - x_j,\, M'_x)\bigr),

    .. math:: g(u, M) = \operatorname{sign}(u)\,
        \frac{\log_2\left(1 + 8\,|u| / (M - 1)\right)}{\log_2 8}, \qquad \sigma(z) = \frac{1}{1 + e^{-z}},

    where $i$ is the cell of a query and $j$ that of a key, in a window of $M_y$ rows and $M_x$
    columns numbered row by row as in :class:`SwinBias`, and $M'$ are its sides in training.
    It acts on the scores, and is between 0 and 16.

    A table has no rows for the displacements of a larger window. A function has a value for all of
    them. Give the sides of the training window as `trained_height` and `trained_width`, and the sides of
    the current one as `height` and `width`.
    In logarithms a window of twice the side is hardly beyond what was seen: from 8 cells to 16 the
    largest coordinate grows from 1.06 to 1.39, not from 1 to 2.14.
    For larger windows these two approach 1.36 and 2.

    The network runs once for each displacement and not for each pair of cells.

    The model scores by cosines, with a learned factor $\tau$ for each head: give the layer
    functions that divide queries and keys by their lengths, the first times
    $\exp(\min(\tau_h, \ln 100))$, as `rotate=(query, key)`, and `scale=1.0`.

    The paper's $\hat u$ is $\operatorname{sign}(u) \ln(1 + |u|)$, and it has no sigmoid: this is the
    authors' program, whose parameters fit.
    Where a side has only one cell, the program divides zero by zero. Here the coordinate is 0.

    Make a layer with `SwinV2Bias.init(rng, num_heads, height, width)`, or from parameters that exist.

    Args:
        hidden_weight: $\mathbf{W}_1$, `(2, m)`: rows, then columns of the image.
        hidden_bias: $\mathbf{w}_1$, `(m)`.
        output_weight: $\mathbf{W}_2$, `(m, num_heads)`.
        height: $M_y$, at least 1.
        width: $M_x$, at least 1.
        trained_height: $M'_y$, at least 1; `height` if not given.
        trained_width: $M'_x$, at least 1; `width` if not given.

    Examples:
        >>> layer = SwinV2Bias(np.array([[1.0], [0.0]]), np.zeros(1), np.ones((1, 1)), 2, 2)
        >>> layer(np.arange(4), np.arange(4))[0].round(4)  # log2(9) / 3 one row below, 0 beside
        array([[ 8.    ,  8.    ,  8.    ,  8.    ],
               [ 8.    ,  8.    ,  8.    ,  8.    ],
               [11.8728, 11.8728,  8.    ,  8.    ],
               [11.8728, 11.8728,  8.    ,  8.    ]])

    References:
        :cite:t:`liu2022swin`, section 3.3; the scales are those of the authors' program
        (`relative_coords_table`).
    """

    hidden_weight: Inexact[np.ndarray, "2 m"]
    hidden_bias: Inexact[np.ndarray, " m"]
    output_weight: Inexact[np.ndarray, "m h"]
    height: int
    width: int
    trained_height: int | None = None
    trained_width: int | None = None

    def __post_init__(self):
        contract.integer("height", self.height, least=1)
        contract.integer("width", self.width, least=1)
        for name in ("trained_height", "trained_width"):
            if getattr(self, name) is not None:
                contract.integer(name, getattr(self, name), least=1)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        num_heads: int,
        height: int,
        width: int,
        *,
        trained_height: int | None = None,
        trained_width: int | None = None,
        hidden_dim: int = 512,
    ) -> "SwinV2Bias":
        """Draw the weights from a normal distribution with standard deviation 0.02; the offset is zero.

        Every bias starts near 8.

        Args:
            rng: where the weights are drawn from.
            num_heads: the number of heads, at least 1.
            height: the number of rows of the window, at least 1.
            width: the number of columns of the window, at least 1.
            trained_height: the number of rows in training, `height` if not given.
            trained_width: the number of columns in training, `width` if not given.
            hidden_dim: the width of the hidden layer, at least 1.
        """
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        hidden_weight = rng.normal(0, 0.02, (2, hidden_dim))
        output_weight = rng.normal(0, 0.02, (hidden_dim, num_heads))
        sides = height, width, trained_height, trained_width
        return cls(hidden_weight, np.zeros(hidden_dim), output_weight, *sides)

    def __call__(
        self,
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Args:
            query_positions: integers from 0 to `height * width - 1`, `(*batch, n_q)`.
            key_positions: integers from 0 to `height * width - 1`, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.

        Raises:
            ValueError: if a position lies outside the window, batch axes of positions differ, or the
                parameters' shapes do not fit.
        """
        contract.window_network(self.hidden_weight, self.hidden_bias, self.output_weight)
        rows = _coordinates(self.height, self.trained_height)
        columns = _coordinates(self.width, self.trained_width)
        along, across = np.meshgrid(rows, columns, indexing="ij")
        displacements = np.stack([along.ravel(), across.ravel()], axis=-1)
        hidden = displacements @ self.hidden_weight + self.hidden_bias
        hidden = np.where(hidden.real <= 0, 0, hidden)  # and NaN stays
        table = 16 / (1 + np.exp(-hidden @ self.output_weight))
        return SwinBias(table, self.height, self.width)(query_positions, key_positions)


def _coordinates(side, trained):
    """The displacements along one side, as the network reads them."""
    trained = side if trained is None else trained
    steps = 8 * np.arange(1 - side, side) / max(trained - 1, 1)
    return np.sign(steps) * np.log2(1 + np.abs(steps)) / 3


def swin_v2_cases():
    """The bias of a window of an image as a network of its displacements, scaled by the trained window."""
    cells = np.arange(6), np.arange(6)
    given = {
        "hidden_weight": draw(0, 2, 5),
        "hidden_bias": draw(1, 5) / 4,
        "output_weight": draw(2, 5, 3) / 4,
        "height": 2,
        "width": 3,
    }
    yield "two rows of three cells", cells, given
    yield "three rows of two cells", cells, {**given, "height": 3, "width": 2}
    larger = {**given, "trained_height": 3, "trained_width": 2}
    yield "another window in training", cells, larger
    yield "one row", cells, {**given, "height": 1, "width": 6, "trained_height": 4}
    yield "some of the cells", (np.array([4, 1]), np.array([0, 5, 2])), given
    yield "one query", (np.array([4]), np.array([0, 5, 2])), given


CARDS = {
    "Swin V2": Card(
        title="Continuous bias of Swin V2",
        year=2021,
        idea=(
            "For images: a small network turns the displacement of two patches into a "
            "bias. It reads the displacement on a logarithmic scale, so it also serves "
            "larger windows."
        ),
        formula=(
            r"s_{ij} + 16\,\sigma\bigl(f(g(y_i - y_j),\, g(x_i - x_j))\bigr), \quad g(u) "
            r"= \operatorname{sign}(u) \log_8(1 + 8\,|u| / (M - 1))"
        ),
        symbols=(
            r"patch $i$ is in row $y_i$ and column $x_i$, $f$ is the network, $\sigma$ "
            "the logistic function, and $M$ the side of the window in training."
        ),
        cites=("liu2022swin",),
        function="SwinV2Bias",
        shows="blocks of 8 by 8 that repeat along the diagonals",
        models=("Swin V2",),
        make=lambda n, z=SMALL: learned_bias(SwinV2Bias, HEADS, z.side, z.side),
    ),
}

CASES = {
    "swin_v2": of_positions(
        SwinV2Bias, swin_v2_cases, "liu2022swin, section 3.3, as in the authors' program"
    ),
}
