"""T5's relative bias: one learned number per head and bucket of distances."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Integer

from posattn import contract
from posattn.reference.attention.masks import relative_positions
from posattn.reference.cases import PAIRS, Cases, draw, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, learned_bias
from posattn.reference.validated import validated

__all__ = ["T5Bias", "t5_bucket"]


@validated
def t5_bucket(
    relative_position: Integer[np.ndarray, "*shape"],
    *,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Integer[np.ndarray, "*shape"]:
    r"""The bucket of a relative position: narrow ones near the query, wide ones far from it.

    Of the $B$ buckets of one direction the first $E = \lfloor B/2 \rfloor$ hold one distance each.
    The others grow geometrically, and the last takes all distances from $D$ on.
    A distance $a \ge 0$ has the bucket

    .. math:: f(a) = \begin{cases} a & a < E \\
        \min\left(B - 1,\; E + \left\lfloor \dfrac{\ln(a/E)}{\ln(D/E)}\,(B - E)
        \right\rfloor\right) & a \ge E. \end{cases}

    If bidirectional, each direction has half of the buckets, $B$ is `num_buckets / 2`, and keys in the
    future use the upper half: the relative position $\delta$ has the bucket $f(\lvert\delta\rvert)$,
    plus $B$ where $\delta > 0$.
    Otherwise $B$ is `num_buckets`, and a key in the future counts as one at the query:
    $f(\max(-\delta, 0))$.

    Bucket $E + k$ begins at the first $a$ with $a^{B-E} \ge D^k E^{B-E-k}$, which is decided in
    integers here.
    Programs that take logarithms may put an $a$ at such a boundary into the wrong bucket. Some do so in
    float32 or float64 for unusual sizes, and all of them do in bfloat16 even for the default sizes.

    Args:
        relative_position: $\delta$, position of the key minus position of the query: integers of
            any shape.
        num_buckets: at least 2; even and at least 4 if `bidirectional`.
        max_distance: $D$, greater than $E$.
        bidirectional: use separate buckets for the two directions.

    Returns:
        Integers from 0 to `num_buckets - 1`, of the shape of `relative_position`.

    Examples:
        >>> t5_bucket(np.array([-128, -12, -11, -7, 0, 1, 8]))
        array([15,  9,  8,  7,  0, 17, 24])
        >>> t5_bucket(np.array([-19, -18, 0, 5]), bidirectional=False)
        array([17, 16,  0,  0])

    References:
        :cite:t:`raffel2020exploring`, section 2.1, and the authors' program
        (`_relative_position_bucket`).
    """
    contract.integer_array("relative_position", relative_position)
    one_way, max_distance = contract.buckets(num_buckets, max_distance, bidirectional)
    relative = relative_position.astype(np.int64)
    distance = np.abs(relative) if bidirectional else np.maximum(-relative, 0)
    bucket = np.searchsorted(_starts(one_way, max_distance), distance, side="right")
    return np.asarray(bucket + one_way * (relative > 0) if bidirectional else bucket)


def _starts(one_way, max_distance):
    """The first distance of each bucket but bucket 0."""
    exact = one_way // 2
    power = one_way - exact
    bounds = [max_distance**k * exact ** (power - k) for k in range(power)]
    distances = range(max_distance)
    first = [bisect_left(distances, bound, key=lambda d: d**power) for bound in bounds]
    return [*range(1, exact), *first]


@validated
@dataclass(frozen=True, eq=False)
class T5Bias:
    r"""A learned bias for each head and each bucket of relative positions.

    .. math:: b_h(i, j) = t_{\operatorname{bucket}(j - i),\,h}, \qquad
        \mathbf{T} \in \mathbb{R}^{N \times H},

    where $i$ is the position of a query, $j$ that of a key, bucket is `t5_bucket`, $N$ the number
    of all buckets and $H$ that of heads.
    It acts on the scores.
    It depends only on $j - i$ and is defined at any distance. Beyond `max_distance` all keys on one side
    have the same bias and cannot be told apart.
    T5 does not divide its scores by $\sqrt{d_h}$: to run its weights, give the attention `scale=1.0`.
    There one table serves all layers of a stack.

    Make a layer with `T5Bias.init(rng, num_heads)`, or from a table that exists.

    Args:
        table: $\mathbf{T}$, `(num_buckets, num_heads)`: $N$ and $H$.
        max_distance: where the last bucket begins.
        bidirectional: use separate buckets for the two directions.

    Examples:
        >>> layer = T5Bias(np.arange(8.0)[:, None], max_distance=8)
        >>> layer(np.arange(3, 6), np.arange(6))
        array([[[2., 2., 1., 0., 5., 6.],
                [3., 2., 2., 1., 0., 5.],
                [3., 3., 2., 2., 1., 0.]]])

    References:
        :cite:t:`raffel2020exploring`, section 2.1.
    """

    table: Inexact[np.ndarray, "num_buckets h"]
    max_distance: int = 128
    bidirectional: bool = True

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        num_heads: int,
        *,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> "T5Bias":
        r"""Draw the table uniformly, within the bounds of Glorot, $\pm\sqrt{6/(N + H)}$.

        As the authors' program does, which leaves the choice to TensorFlow; transformers draws from a
        normal distribution with standard deviation $1/\sqrt{d}$, for a width $d$ of the model.

        Args:
            rng: where the table is drawn from.
            num_heads: the number of heads $H$, at least 1.
            num_buckets: $N$, at least 2; even and at least 4 if `bidirectional`.
            max_distance: where the last bucket begins.
            bidirectional: use separate buckets for the two directions.
        """
        num_heads = contract.integer("num_heads", num_heads, least=1)
        contract.buckets(num_buckets, max_distance, bidirectional)
        bound = np.sqrt(6 / (num_buckets + num_heads))
        table = rng.uniform(-bound, bound, (num_buckets, num_heads))
        return cls(table, max_distance, bidirectional)

    def __call__(
        self,
        query_positions: Integer[np.ndarray, "*#batch n_q"],
        key_positions: Integer[np.ndarray, "*#batch n_k"],
    ) -> Inexact[np.ndarray, "*batch h n_q n_k"]:
        """Look up the bias of each query and key.

        Args:
            query_positions: integers, `(*batch, n_q)`.
            key_positions: integers, `(*batch, n_k)`.

        Returns:
            `(*batch, num_heads, n_q, n_k)`.
        """
        contract.position_pair(query_positions, key_positions, integers=True)
        bucket = t5_bucket(
            relative_positions(query_positions, key_positions),
            num_buckets=self.table.shape[0],
            max_distance=self.max_distance,
            bidirectional=self.bidirectional,
        )
        return np.moveaxis(self.table[bucket], -1, -3)


def t5_bucket_cases():
    """The bucket of a relative position, key minus query, exact at the boundaries."""
    fragile = [7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128]
    causal = [
        15,
        16,
        18,
        19,
        20,
        21,
        23,
        24,
        26,
        27,
        30,
        31,
        34,
        35,
        39,
        40,
        45,
        46,
        51,
        52,
    ]
    causal += [58, 59, 66, 67, 76, 77, 86, 87, 98, 99, 112, 113, 127, 128]
    one_way = {"bidirectional": False}
    yield "near, both directions", (np.arange(-12, 13),), {}
    yield "boundaries in the past", (-np.array(fragile),), {}
    yield "boundaries in the future", (np.array(fragile),), {}
    yield "a table of six tokens", (np.arange(6) - np.arange(6)[:, None],), {}
    yield "large distances, up to 2**20", (np.array([-(2**20), 2**20, 4095, -2049]),), {}
    yield "causal, near", (np.arange(-20, 4),), one_way
    yield "causal, boundaries", (-np.array(causal),), one_way
    yield "causal, large distances, up to 2**20", (np.array([-(2**20), 2**20]),), one_way
    few = {"num_buckets": 8, "max_distance": 20}
    yield "eight buckets", (np.arange(-25, 26),), few
    yield "eight buckets, causal", (np.arange(-25, 3),), {**few, **one_way}
    yield "a maximal distance of 1024", (-(2 ** np.arange(11)),), {"max_distance": 1024}


def t5_cases():
    """The bias of T5: a learned number per head and bucket."""
    table = draw(0, 32, 3)
    one_way = {"bidirectional": False}
    for name, pair in PAIRS.items():
        yield name, pair, {"table": table}
    edges = (
        np.array([200]),
        200 - np.array([128, 127, 91, 64, 32, 16, 8, 7, 0, -8, -16, -64]),
    )
    yield "boundaries of buckets", edges, {"table": table}
    yield "causal, six tokens", PAIRS["six tokens"], {"table": table, **one_way}
    yield "causal, boundaries of buckets", edges, {"table": table, **one_way}
    few = {"table": draw(1, 8, 5), "max_distance": 20}
    fewer = np.array([30]), np.arange(0, 60, 3)
    yield "eight buckets, five heads", fewer, few
    yield "eight buckets, causal", fewer, {**few, "bidirectional": False}


CARDS = {
    "T5": Card(
        title="Bias of T5",
        year=2019,
        idea=(
            "Learn one number for each offset. Distant offsets share buckets, which get "
            "wider with the distance."
        ),
        formula=r"s_{ij} + t_{\operatorname{bucket}(j - i)}",
        symbols="$t_b$ is the learned number of bucket $b$.",
        cites=("raffel2020exploring",),
        function="T5Bias",
        shows="stripes along the diagonal, narrow near it and broad far away",
        models=("T5",),
        page="other/biases",
        make=lambda n, z=SMALL: learned_bias(T5Bias, HEADS),
    ),
}

TABLE = "raffel2020exploring, section 2.1"
CASES = {
    "t5_bucket": Cases(t5_bucket, t5_bucket_cases, TABLE),
    "t5": of_positions(T5Bias, t5_cases, TABLE),
}
