"""Sandwich: what remains of sinusoidal encodings when only positions meet positions."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Real

from posattn import contract
from posattn.reference.cases import PAIRS, anywhere, of_positions
from posattn.reference.position.card import HEADS, SMALL, Card, Scheme
from posattn.reference.position.sinusoidal import sinusoidal_encoding
from posattn.reference.validated import validated

__all__ = ["sandwich_bias"]


@validated
def sandwich_bias(num_heads: int, *, dim: int = 128, base: float = 10000.0) -> Callable:
    r"""The inner product of two sinusoidal encodings, scaled differently in each head.

    .. math:: b_h(i, j) = \frac{H}{8h}\,\mathbf{p}_i^\top\mathbf{p}_j
        = \frac{H}{8h} \sum_{k=0}^{d/2-1} \cos\bigl((j - i)\,\omega_k\bigr), \qquad
        \omega_k = b^{-2k/d}, \quad h = 1, \ldots, H,

    where $i$ is the position of a query, $j$ that of a key and $\mathbf{p}$ `sinusoidal_encoding`.
    When encodings are added to the input, a score contains this product between projections, and
    products of positions with content. Here both the projections and those products are left out.
    It acts on the scores and has no parameters.
    It depends only on $j - i$ and is defined at any distance. Past and future look the same.
    It falls roughly with the logarithm of the distance, from $\frac{H}{8h}\,\frac d2$ at the query. It
    swings on the way, so a far key may get more than a nearer one.
    Positions are counted from the first key, which changes nothing but keeps the angles small, and the
    product of two tables takes no cosine for each pair.

    NVIDIA's NeMo counts the frequencies from $k = 1$ to $d/2$, which leaves out the fastest and adds a
    slower one, and subtracts $d/2$, which the softmax ignores.

    Args:
        num_heads: $H$, at least 1.
        dim: the width $d$ of the encodings, even; it belongs to the scheme and is not the width of
            the model.
        base: $b$ of the frequencies, positive.

    Returns:
        A function `bias(query_positions, key_positions)` of positions `(*batch, n_q)` and
        `(*batch, n_k)`, which may be any real numbers; it returns `(*batch, H, n_q, n_k)`.

    Examples:
        >>> bias = sandwich_bias(2, dim=4)
        >>> bias(np.array([3]), np.arange(4)).round(4)
        array([[[0.0024, 0.1459, 0.3851, 0.5   ]],
        <BLANKLINE>
               [[0.0012, 0.073 , 0.1925, 0.25  ]]])

    References:
        :cite:t:`chi2023dissecting`, where the scheme is called Sandwich.
    """
    num_heads = contract.integer("num_heads", num_heads, least=1)
    dim = contract.integer("dim", dim, least=1, even=True)
    base = contract.base(base)
    scales = num_heads / (8 * np.arange(1, num_heads + 1))[:, None, None]

    def bias(
        query_positions: Real[np.ndarray, "*#batch n_q"],
        key_positions: Real[np.ndarray, "*#batch n_k"],
    ) -> Float[np.ndarray, "*batch h n_q n_k"]:
        contract.position_pair(query_positions, key_positions)
        query, key = query_positions.astype(np.float64), key_positions.astype(np.float64)
        first = key[..., :1].sum(-1, keepdims=True)  # 0 where there are no keys
        query, key = (sinusoidal_encoding(p - first, dim, base=base) for p in (query, key))
        return scales * (query @ key.mT)[..., None, :, :]

    return bias


def sandwich_cases():
    """The bias of Sandwich: products of sinusoids, scaled per head."""
    yield from anywhere(num_heads=3, dim=8)
    yield "another base", PAIRS["six tokens"], {"num_heads": 3, "dim": 8, "base": 500.0}
    yield "the default width", PAIRS["six tokens"], {"num_heads": 2}


CARDS = {
    "Sandwich": Card(
        title="Sandwich",
        year=2022,
        idea=(
            "Use the dot product of two rows of the sinusoid as a bias, with no word "
            "vectors in it."
        ),
        formula=r"s_{ij} + \tfrac{H}{8h}\,\mathbf{p}_i^\top\mathbf{p}_j",
        symbols=(
            r"$\mathbf{p}_i$ is the sinusoidal encoding of position $i$, $H$ the number "
            "of heads, and $h$ the number of this head, from 1."
        ),
        cites=("chi2023dissecting",),
        function="sandwich_bias",
        shows="strongest on the diagonal, fading to both sides in ripples",
        page="other/biases",
        make=lambda n, z=SMALL: Scheme(bias=sandwich_bias(HEADS)),
    )
}

CASES = {"sandwich": of_positions(sandwich_bias, sandwich_cases, "chi2023dissecting")}
