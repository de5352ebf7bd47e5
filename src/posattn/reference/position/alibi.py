"""ALiBi: each head subtracts from its scores in proportion to the distance."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Real

from posattn import contract
from posattn.reference.attention.masks import relative_positions
from posattn.reference.cases import PAIRS, Cases, anywhere, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, Scheme
from posattn.reference.validated import validated

__all__ = ["ALiBi", "alibi_slopes"]


@validated
def alibi_slopes(num_heads: int) -> Float[np.ndarray, " h"]:
    r"""How steeply each head of ALiBi falls with the distance.

    For $H$ heads, $H$ a power of two, the slopes are a geometric sequence that ends at $2^{-8}$:

    .. math:: m_h = 2^{-8h/H}, \qquad h = 1, \ldots, H.

    For any other $H$ take the $P$ slopes of the next smaller power of two, $P$, and after them
    every second slope of $2P$, beginning with the steepest, until there are $H$.
    The new ones lie half a step (in the exponent) before the old ones.
    A common mistake is to use the formula for such an $H$ as well. In the second example it would begin
    with $2^{-8/3}$.

    Args:
        num_heads: $H$, at least 1.

    Returns:
        $m$, `(num_heads)`, between 0 and 1.

    Examples:
        >>> -np.log2(alibi_slopes(8))
        array([1., 2., 3., 4., 5., 6., 7., 8.])
        >>> -np.log2(alibi_slopes(3))
        array([4., 8., 2.])

    References:
        :cite:t:`press2022alibi`, section 3, and for other numbers of heads the authors' program
        (`get_slopes`).
    """
    num_heads = contract.integer("num_heads", num_heads, least=1)
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    between = [4 * h / power for h in range(1, 2 * power, 2)]
    return 2.0 ** -np.array([*exponents, *between][:num_heads])


@validated
@dataclass(frozen=True)
class ALiBi:
    r"""A linear penalty on distance, with its own slope in each head.

    .. math:: b_h(i, j) = -m_h \, \lvert j - i \rvert,

    where $i$ is the position of a query, $j$ that of a key and $m_h$ one of `alibi_slopes`.
    It acts on the scores and has no parameters.
    It depends only on $j - i$, so a model can run on sequences longer than those it was trained on.
    Near keys are always preferred. Past and future look the same.

    Under a causal mask there is no $j > i$, and the bias is $m_h (j - i)$, the form of the paper.
    That form differs from $m_h \, j$, a function of the key only, by $m_h \, i$. This is constant within a
    row, so the softmax ignores it, and some programs add $m_h \, j$ for that reason.
    Without the mask both are wrong, because they favour the distant future.
    For attention in both directions the authors suggest the absolute value used here.

    Args:
        num_heads: the number of heads $H$, at least 1.

    Examples:
        >>> bias = ALiBi(2)
        >>> bias(np.array([7]), np.array([4, 5, 6, 8]))
        array([[[-0.1875    , -0.125     , -0.0625    , -0.0625    ]],
        <BLANKLINE>
               [[-0.01171875, -0.0078125 , -0.00390625, -0.00390625]]])

    References:
        :cite:t:`press2022alibi`, section 3.
    """

    num_heads: int

    def __post_init__(self):
        contract.integer("num_heads", self.num_heads, least=1)

    def __call__(
        self,
        query_positions: Real[np.ndarray, "*#batch n_q"],
        key_positions: Real[np.ndarray, "*#batch n_k"],
    ) -> Float[np.ndarray, "*batch h n_q n_k"]:
        """What is added to the scores.

        Args:
            query_positions: any real numbers, `(n_q)` or `(*batch, n_q)`.
            key_positions: any real numbers, `(n_k)` or `(*batch, n_k)`.

        Returns:
            `(*batch, H, n_q, n_k)`.
        """
        distances = np.abs(relative_positions(query_positions, key_positions))
        return -alibi_slopes(self.num_heads)[:, None, None] * distances[..., None, :, :]


def alibi_slopes_cases():
    """The slopes of ALiBi, for any number of heads."""
    for num_heads in (8, 1, 2, 3, 5, 6, 7, 12, 16, 20, 32):
        yield f"{num_heads} heads", (num_heads,), {}


def alibi_cases():
    """The bias of ALiBi in both directions: minus the slope times the distance."""
    yield from anywhere(num_heads=4)
    for num_heads in (1, 3, 8, 12):
        yield f"{num_heads} heads", PAIRS["six tokens"], {"num_heads": num_heads}


CARDS = {
    "ALiBi": Card(
        title="ALiBi",
        year=2021,
        idea="Each head subtracts the distance times its own slope.",
        formula=r"s_{ij} - \lambda\,|i - j|",
        symbols=r"$\lambda$ is the slope of the head, which is not learned.",
        cites=("press2022alibi",),
        function="ALiBi",
        shows="strongest on the diagonal, fading evenly to both sides",
        models=("BLOOM", "MPT"),
        page="other/biases",
        make=lambda n, z=SMALL: Scheme(bias=ALiBi(HEADS)),
    ),
}

CASES = {
    "alibi_slopes": Cases(
        alibi_slopes, alibi_slopes_cases, "press2022alibi, section 3", relative=True
    ),
    "alibi": of_positions(ALiBi, alibi_cases, "press2022alibi, section 3", relative=True),
}
