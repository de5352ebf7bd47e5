"""FIRE: a small network that reads how far back a key lies on the way to the first token."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Real

from posattn import contract
from posattn.reference.attention.masks import relative_positions
from posattn.reference.cases import PAIRS, draw, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["FIRE"]

EPSILON = 1e-6  # of the authors, beside a divisor that may be 0


@validated
@dataclass(frozen=True, eq=False)
class FIRE:
    r"""A learned function of the distance, divided by the distance to the first token.

    .. math:: b_h(i, j) = f_h\!\left(\frac{\psi(\lvert j - i\rvert)}{\psi(\max(L, i)) + 10^{-6}}\right),
        \qquad \psi(x) = \ln(1 + \lvert c \rvert\, x), \qquad L = \lvert \mu \rvert\, L_0,

    .. math:: \mathbf{f}(x) = \mathbf{W}_2^\top \max(0,\, x\,\mathbf{w}_1 + \mathbf{b}_1)
        + \mathbf{b}_2 \in \mathbb{R}^H,

    where $i$ is the position of a query, counted from 0, and $j$ that of a key.
    It acts on the scores of all $H$ heads.
    For keys in the past the ratio lies between 0 and 1 at every length, so a longer sequence shows the
    network no input that it has not seen.
    Below $L$ the divisor is constant, which keeps short distances apart in short sequences.
    The logarithm gives near keys a larger part of the range than far ones.

    The divisor depends on the query's position. Unlike other biases, this one changes when all
    positions are shifted, unless all queries stay below $L$.
    Past and future look the same, and far into the future the ratio exceeds 1.
    The authors define it for keys in the past. The absolute value and the $10^{-6}$ are those of their
    program. Because of the latter the ratio is 0 if $c = 0$, or for a query at 0 with a threshold of 0.

    Make a layer with `FIRE.init(rng, num_heads)`, or from parameters that exist.

    Args:
        c: $c$, a number, `()`: how far the logarithm bends.
        multiplier: $\mu$, a number, `()`: the learned part of the threshold.
        hidden_weight: $\mathbf{w}_1$, `(m)`.
        hidden_bias: $\mathbf{b}_1$, `(m)`.
        output_weight: $\mathbf{W}_2$, `(m, num_heads)`.
        output_bias: $\mathbf{b}_2$, `(num_heads)`.
        threshold: $L_0$ in positions, the first value of $L$, positive.

    Examples:
        >>> one, zero = np.ones(1), np.zeros(1)
        >>> layer = FIRE(np.array(1.0), np.array(1.0), one, zero, -one[:, None], zero, threshold=3.0)
        >>> layer(np.array([3, 7]), np.array([0, 2, 3])).round(4)
        array([[[-1.    , -0.5   ,  0.    ],
                [-1.    , -0.8617, -0.774 ]]])

    References:
        :cite:t:`li2024fire`, and for the absolute values, the $10^{-6}$ and the first values of the
        parameters the program in its appendix.
    """

    c: Inexact[np.ndarray, ""]
    multiplier: Inexact[np.ndarray, ""]
    hidden_weight: Inexact[np.ndarray, " m"]
    hidden_bias: Inexact[np.ndarray, " m"]
    output_weight: Inexact[np.ndarray, "m h"]
    output_bias: Inexact[np.ndarray, " h"]
    threshold: float = 512.0

    def __post_init__(self):
        contract.positive("threshold", self.threshold)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        num_heads: int,
        *,
        hidden_dim: int = 32,
        threshold: float = 512.0,
    ) -> "FIRE":
        r"""Begin with $c = 0.1$, $\mu = 1$, and weights drawn uniformly from $\pm1/\sqrt{\text{fan-in}}$.

        Args:
            rng: where the weights are drawn from.
            num_heads: the number of heads, at least 1.
            hidden_dim: the width $m$ of the hidden layer, at least 1.
            threshold: $L_0$ in positions, positive.
        """
        num_heads, hidden_dim = contract.sizes(num_heads=num_heads, hidden_dim=hidden_dim)
        hidden = rng.uniform(-1, 1, (2, hidden_dim))
        output = rng.uniform(-1, 1, (hidden_dim + 1, num_heads)) / np.sqrt(hidden_dim)
        return cls(
            np.array(0.1), np.array(1.0), *hidden, output[:-1], output[-1], threshold
        )

    def __call__(
        self,
        query_positions: Real[np.ndarray, "*#batch n_q"],
        key_positions: Real[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        """Compute the bias of each query and key.

        Args:
            query_positions: any real numbers, `(*batch, n_q)`.
            key_positions: any real numbers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.network(
            self.hidden_weight, self.hidden_bias, self.output_weight, self.output_bias
        )
        distances = np.abs(relative_positions(query_positions, key_positions))
        least = _absolute(self.multiplier) * self.threshold
        furthest = np.where(query_positions > least.real, query_positions, least)
        c = _absolute(self.c)
        divisor = np.log1p(c * furthest) + EPSILON
        ratios = np.log1p(c * distances) / divisor[..., :, None]
        hidden = ratios[..., None] * self.hidden_weight + self.hidden_bias
        hidden = np.where(hidden.real <= 0, 0, hidden)  # and NaN stays
        return np.moveaxis(hidden @ self.output_weight + self.output_bias, -1, -3)


def _absolute(x):
    return x * np.sign(x.real)


def fire_cases():
    """The bias of FIRE: a small network reads the normalised logarithm of the distance."""
    weights = {
        "c": np.array(0.125),
        "multiplier": np.array(1.5),
        "hidden_weight": draw(0, 5),
        "hidden_bias": draw(1, 5),
        "output_weight": draw(2, 5, 3),
        "output_bias": draw(3, 3),
    }
    for name, pair in PAIRS.items():
        yield name, pair, weights
    yield "a threshold of 4", PAIRS["six tokens"], {**weights, "threshold": 4.0}
    far = PAIRS["decoding: three queries, five keys"]
    yield "decoding beyond a threshold of 2", far, {**weights, "threshold": 2.0}
    negative = {**weights, "c": np.array(-0.125), "multiplier": np.array(-1.5)}
    yield "negative c and multiplier", far, {**negative, "threshold": 2.0}
    yield "a c of 0", PAIRS["six tokens"], {**weights, "c": np.array(0.0)}
    yield "a multiplier of 0", PAIRS["six tokens"], {**weights, "multiplier": np.array(0.0)}


CARDS = {
    "FIRE": Card(
        title="FIRE",
        year=2023,
        idea=(
            "A small network reads the distance as a fraction of the query's position, "
            "or of a learned threshold if that is larger."
        ),
        formula=(
            r"s_{ij} + f\left(\psi(|i - j|) \,/\, \psi(\max(\ell, i))\right), \quad "
            r"\psi(x) = \ln(1 + a\,x)"
        ),
        symbols=(
            r"$f$ is the network, $\ell$ the threshold, and $\psi$ compresses large "
            "numbers with a learned $a$."
        ),
        cites=("li2024fire",),
        function="FIRE",
        shows="stripes that open like a fan from the upper left",
        page="other/biases",
        make=lambda n, z=SMALL: learned_bias(FIRE, HEADS, threshold=2.0),
    )
}

CASES = {"fire": of_positions(FIRE, fire_cases, "li2024fire")}
