"""KERPLE: learned penalties on distance, from kernels that are positive definite up to a constant."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Real

from posattn import contract
from posattn.reference.attention.masks import relative_positions
from posattn.reference.cases import anywhere, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["KerpleLog", "KerplePower"]

LEAST, MOST = 0.01, np.inf  # a parameter outside counts as the nearer of these


@validated
@dataclass(frozen=True, eq=False)
class KerpleLog:
    r"""A penalty that grows with the logarithm of the distance, with learned strengths for each head.

    .. math:: b_h(i, j) = -r_{1,h} \, \ln(1 + r_{2,h} \, \lvert j - i \rvert), \qquad r_1, r_2 > 0,

    where $i$ is the position of a query and $j$ that of a key. It acts on the scores.
    Up to a constant that the softmax ignores, the bias is an inner product of features of the two
    positions.
    It depends only on $j - i$ and is defined at any distance. Past and future look the same.
    It multiplies a weight, before normalisation, by $(1 + r_2\lvert j - i\rvert)^{-r_1}$. This factor
    falls like a power of the distance, whereas ALiBi's falls exponentially.

    As in the authors' program a parameter below 0.01 counts as 0.01, and the gradient passes as if it
    did not.
    Their program also sets the parameter itself to the bound at each use, so an update that would lower
    it further is forgotten. Call `clamped` after each update to train as they do.

    Make a layer with `KerpleLog.init(rng, num_heads)`, or from parameters that exist.

    Args:
        r1: $r_1$, `(num_heads)`: the strength.
        r2: $r_2$, `(num_heads)`: the inverse of the distance at which the logarithm begins to bend.

    Examples:
        >>> layer = KerpleLog(np.array([1.0]), np.array([1.0]))
        >>> layer(np.array([3]), np.array([1, 2, 4, 6])).round(4)
        array([[[-1.0986, -0.6931, -0.6931, -1.3863]]])

    References:
        :cite:t:`chi2022kerple`, the logarithmic variant; the bounds and the first values of the
        parameters are those of the authors' program (`ParallelKerpleLog`, whose `p` is $r_1$ and
        whose `a` is $r_2$).
    """

    r1: Inexact[np.ndarray, " h"]
    r2: Inexact[np.ndarray, " h"]

    @classmethod
    def init(cls, rng: np.random.Generator, num_heads: int) -> "KerpleLog":
        """Draw `r1` uniformly from 0 to 2 and `r2` from 0 to 1.

        Args:
            rng: where the parameters are drawn from.
            num_heads: the number of heads, at least 1.
        """
        uniform = _uniform(rng, num_heads)
        return cls(2 * uniform[0], uniform[1])

    def clamped(self) -> "KerpleLog":
        """Set parameters outside their bounds to the bounds.

        Returns:
            The layer, as the authors have it after an update.
        """
        return KerpleLog(*_bounded(self.r1, self.r2))

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
        r1, r2 = _bounded(self.r1, self.r2)
        distances = _distances(query_positions, key_positions)
        return -_wide(r1) * np.log1p(_wide(r2) * distances)


@validated
@dataclass(frozen=True, eq=False)
class KerplePower:
    r"""A penalty that grows with a power of the distance, with learned strengths for each head.

    .. math:: b_h(i, j) = -r_{1,h} \, \lvert j - i \rvert^{\,r_{2,h}}, \qquad
        r_1 > 0, \quad 0 < r_2 \le 2,

    where $i$ is the position of a query and $j$ that of a key. It acts on the scores.
    An exponent of 1 gives ALiBi with learned slopes of at least 0.01. An exponent of 2 gives a Gaussian
    window.
    For an exponent above 2 the bias would no longer be an inner product of features of the two
    positions up to a constant.
    It depends only on $j - i$ and is defined at any distance. Past and future look the same.

    As in the authors' program a parameter below 0.01 counts as 0.01, and an exponent above 2 as 2, and
    the gradient passes as if they did not.
    Their program also sets the parameters themselves to their bounds: see :class:`KerpleLog`.

    Make a layer with `KerplePower.init(rng, num_heads)`, or from parameters that exist.

    Args:
        r1: $r_1$, `(num_heads)`: the strength.
        r2: $r_2$, `(num_heads)`: the exponent.

    Examples:
        >>> layer = KerplePower(np.array([0.5]), np.array([2.0]))
        >>> layer(np.array([3]), np.array([1, 2, 4, 6]))
        array([[[-2. , -0.5, -0.5, -4.5]]])

    References:
        :cite:t:`chi2022kerple`, the power variant; the bounds and the first values of the
        parameters are those of the authors' program (`ParallelKerplePower`, whose `a` is $r_1$ and
        whose `p` is $r_2$).
    """

    r1: Inexact[np.ndarray, " h"]
    r2: Inexact[np.ndarray, " h"]

    @classmethod
    def init(cls, rng: np.random.Generator, num_heads: int) -> "KerplePower":
        """Draw `r1` uniformly from 0 to 1 and `r2` from 0 to 2.

        Args:
            rng: where the parameters are drawn from.
            num_heads: the number of heads, at least 1.
        """
        uniform = _uniform(rng, num_heads)
        return cls(uniform[0], 2 * uniform[1])

    def clamped(self) -> "KerplePower":
        """Set parameters outside their bounds to the bounds.

        Returns:
            The layer, as the authors have it after an update.
        """
        return KerplePower(*_bounded(self.r1, self.r2, 2))

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
        r1, r2 = _bounded(self.r1, self.r2, 2)
        distances = _distances(query_positions, key_positions)
        here = distances == 0
        powers = np.where(here, 1, distances) ** _wide(r2)
        return -_wide(r1) * np.where(here, 0, powers)


def _uniform(rng, num_heads):
    num_heads = contract.integer("num_heads", num_heads, least=1)
    return rng.uniform(0, 1, (2, num_heads))


def _bounded(r1, r2, most=MOST):
    """Both parameters, of which the second is at most `most`; the derivative passes unbounded."""
    contract.parameter("r2", r2, r1.shape)
    return (
        np.clip(r.real, LEAST, bound) + (r - r.real)
        for r, bound in ((r1, MOST), (r2, most))
    )


def _wide(r):
    """With axes for queries and keys."""
    return r[:, None, None]


def _distances(query_positions, key_positions):
    """For every head, `(*batch, 1, n_q, n_k)`."""
    distances = np.abs(relative_positions(query_positions, key_positions))
    return distances[..., None, :, :].astype(np.float64)


def kerple_log_cases():
    """The logarithmic kernel of KERPLE, with two parameters per head."""
    yield from anywhere(r1=np.array([0.5, 1.0, 2.0]), r2=np.array([1.0, 0.25, 0.0625]))


def kerple_power_cases():
    """The power kernel of KERPLE, with two parameters per head."""
    yield from anywhere(r1=np.array([0.5, 1.0, 2.0]), r2=np.array([1.0, 2.0, 0.5]))


CARDS = {
    "KERPLE, logarithmic": Card(
        title="KERPLE, logarithmic",
        year=2022,
        idea="Subtract a penalty that grows with the logarithm of the distance.",
        formula=r"s_{ij} - r_1 \ln(1 + r_2\,|i - j|)",
        symbols="$r_1$ and $r_2$ are learned and positive.",
        cites=("chi2022kerple",),
        function="KerpleLog",
        shows="strongest on the diagonal, fading to both sides, first fast and then slowly",
        page="other/biases",
        make=lambda n, z=SMALL: learned_bias(KerpleLog, HEADS),
    ),
    "KERPLE, power": Card(
        title="KERPLE, power",
        year=2022,
        idea="Subtract a penalty that grows with a power of the distance.",
        formula=r"s_{ij} - r_1\,|i - j|^{r_2}",
        symbols="$r_1$ and $r_2$ are learned and positive.",
        cites=("chi2022kerple",),
        function="KerplePower",
        shows="strongest on the diagonal, and faint right next to it",
        page="other/biases",
        make=lambda n, z=SMALL: learned_bias(KerplePower, HEADS),
    ),
}

CASES = {
    "kerple_log": of_positions(
        KerpleLog, kerple_log_cases, "chi2022kerple, the logarithmic variant"
    ),
    "kerple_power": of_positions(
        KerplePower, kerple_power_cases, "chi2022kerple, the power variant", relative=True
    ),
}
