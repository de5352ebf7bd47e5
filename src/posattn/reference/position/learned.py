"""Learned positional encoding: one row of parameters per position."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.cases import Cases, draw
from posattn.reference.position.card import SMALL, Card, generator, input_layer
from posattn.reference.validated import validated

__all__ = ["LearnedPositionalEncoding"]


@validated
@dataclass(frozen=True, eq=False)
class LearnedPositionalEncoding:
    r"""Add to each token a learned vector that belongs to its position.

    .. math:: \mathbf{y}_i = \mathbf{x}_i + \mathbf{t}_i, \qquad
        \mathbf{T} \in \mathbb{R}^{n_{\max} \times d}.

    The table ends. There is no vector for position $n_{\max}$, and asking for it is an error.

    Make a layer with `LearnedPositionalEncoding.init(rng, max_len, dim)`, or from a table that exists.

    Args:
        table: $\mathbf{T}$, `(max_len, d)` with $n_{\max}$ = `max_len`.

    Examples:
        >>> layer = LearnedPositionalEncoding(np.array([[0.5, 0.5], [1.0, 2.0]]))
        >>> layer(np.zeros((2, 2)))
        array([[0.5, 0.5],
               [1. , 2. ]])

    References:
        :cite:t:`gehring2017convolutional`, section 3.1; :cite:t:`devlin2019bert`, section 3.
    """

    table: Inexact[np.ndarray, "max_len d"]

    @classmethod
    def init(
        cls, rng: np.random.Generator, max_len: int, dim: int
    ) -> "LearnedPositionalEncoding":
        r"""Draw the table from a normal distribution with mean 0 and standard deviation 0.02.

        Args:
            rng: where the table is drawn from.
            max_len: $n_{\max}$, the number of positions, at least 1.
            dim: the width, at least 1.
        """
        max_len, dim = contract.sizes(max_len=max_len, dim=dim)
        return cls(rng.normal(0, 0.02, (max_len, dim)))

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        *,
        positions: Integer[np.ndarray, "*#batch n"] | None = None,
    ) -> Inexact[np.ndarray, "*batch n d"]:
        r"""Add the rows of the table to a sequence.

        Args:
            x: `(*batch, n, d)`, with $n \le n_{\max}$ unless `positions` are given.
            positions: where the tokens stand, integers from 0 to $n_{\max} - 1$, `(n)` or
                `(*batch, n)`; $0, \ldots, n - 1$ if not given.

        Returns:
            `(*batch, n, d)`.

        Raises:
            ValueError: if shapes do not fit, the sequence is longer than the table, or a position
                lies outside it.
        """
        max_len, dim = self.table.shape
        contract.sequence("x", x, dim)
        contract.positions_of(x.shape, positions)
        if positions is None:
            contract.table_length(x.shape[-2], max_len)
            return x + self.table[: x.shape[-2]]
        contract.table_rows(positions, max_len)
        return x + self.table[positions]


def learned_cases():
    """A learned table: its rows are added to tokens of shape `(*batch, n, d)`."""
    x = draw(0, 3, 4, 6)
    table = {"table": draw(1, 9, 6)}
    yield "three examples of four tokens", (x,), table
    yield "as many examples as tokens", (draw(2, 4, 4, 6),), table
    yield "as long as the table", (draw(3, 1, 9, 6),), table
    yield "positions that do not begin at 0", (x, np.array([5, 6, 7, 8])), table
    yield "an order of their own", (x, np.array([4, 0, 3, 3])), table
    yield "decoding: one token", (x[:1, :1], np.array([5])), table
    yield (
        "left padding: positions per example",
        (x[:2], np.array([[0, 0, 1, 2], [0, 1, 2, 3]])),
        table,
    )


def add_learned(x, positions=None, *, table):
    """The layer, as one function."""
    return LearnedPositionalEncoding(table)(x, positions=positions)


CARDS = {
    "learned": Card(
        title="Learned table",
        year=2017,
        idea=(
            "Give each position its own row of parameters and add it to the token. The "
            "table has a last row, and no text can be longer."
        ),
        formula=r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{t}_i",
        symbols=r"$\mathbf{t}_i$ is row $i$ of the table.",
        cites=("gehring2017convolutional", "devlin2019bert"),
        function="LearnedPositionalEncoding",
        shows=(
            "vertical and horizontal lines of noise, because the rows of the table are "
            "random before training"
        ),
        models=("BERT", "GPT-2", "OPT"),
        page="other/learned",
        make=lambda n, z=SMALL: input_layer(
            LearnedPositionalEncoding.init(generator(), z.trained, z.dim)
        ),
    ),
}

CASES = {
    "learned": Cases(
        add_learned,
        learned_cases,
        "gehring2017convolutional, section 3.1",
        name="LearnedPositionalEncoding",
    ),
}
