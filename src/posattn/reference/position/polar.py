"""PoPE: how large an entry is says what, and only the angle says where."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Inexact, Real

from posattn import contract
from posattn.reference.cases import Cases, draw
from posattn.reference.position.card import HEADS, SMALL, Card, Scheme
from posattn.reference.position.sinusoidal import frequencies
from posattn.reference.validated import validated

__all__ = ["PolarKey", "polar_query"]


@validated
def polar_query(
    x: Inexact[np.ndarray, "*batch n d"],
    positions: Real[np.ndarray, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
) -> Inexact[np.ndarray, "*batch n 2*d"]:
    r"""Make each entry of a query the length of an arrow, and let only the position rotate the arrow.

    .. math:: x_c \mapsto \mu(x_c)
        \begin{bmatrix} \cos p\,\omega_c \\ \sin p\,\omega_c \end{bmatrix}, \qquad
        \mu(x) = \ln(1 + e^x), \quad \omega_c = b^{-c/d}, \quad c = 0, \ldots, d - 1.

    With the keys of :class:`PolarKey`, whose arrows have an angle $\varphi_c$ more, the query
    $\mathbf{q}$ at position $i$ and the key $\mathbf{k}$ at position $j$ have the product

    .. math:: \sum_{c=0}^{d-1} \mu(q_c)\,\mu(k_c)\, \cos\bigl((j - i)\,\omega_c + \varphi_c\bigr) .

    In rotary embedding a pair of entries has its own length and angle, and the position rotates it
    further, so content and position share one angle.
    Here an entry has only a length, so content scales the cosine and cannot shift it.
    Each of the $d$ entries has its own frequency, twice as many as in rotary embedding.

    Use both: `MultiHeadAttention(rotate=(polar_query, PolarKey(...)), scale=head_dim**-0.5)`.
    The result is twice as wide, all cosines before all sines, so products and cached keys cost twice
    as much. Without `scale` the layer would divide by $\sqrt{2d}$.
    A `KVCache` has one width for keys and values: make it with `rotated=False`.

    What it guarantees: scores depend on positions only through the offset, any positions are
    defined, and keys can be cached once they are rotated.
    Where it fails: every length is positive, whatever the sign of the entry, so content cannot
    change the sign of a term. The lengths of vectors change.

    Args:
        x: the queries of each head, `(*batch, n, d)`, of any width $d$.
        positions: $p$, any real numbers: `(n)`, or with batch axes of which each is that of `x`
            or 1; $0, \ldots, n - 1$ if not given.
        base: $b$, positive.

    Returns:
        `(*batch, n, 2 d)`.

    Examples:
        >>> x = np.log(np.expm1(np.array([[1.0, 2.0]])))
        >>> polar_query(x, np.array([0])).round(4)
        array([[1., 2., 0., 0.]])
        >>> polar_query(x, np.array([np.pi / 2])).round(4)
        array([[0.    , 1.9998, 1.    , 0.0314]])

    References:
        :cite:t:`gopalakrishnan2025decoupling`.
    """
    return _turned(x, positions, base, 0)


@validated
@dataclass(frozen=True, eq=False)
class PolarKey:
    r"""Make each entry of a key the length of an arrow, which position and a learned angle rotate.

    .. math:: x_c \mapsto \mu(x_c)
        \begin{bmatrix} \cos(p\,\omega_c + \varphi_c) \\ \sin(p\,\omega_c + \varphi_c) \end{bmatrix}

    with $\mu$ and $\omega$ as in :func:`polar_query`, whose partner it is.
    The learned $\varphi$ of each head and entry decides which offset the entry prefers:
    $j - i = -\varphi_c / \omega_c$, or any number of full circles from it. At $\varphi = 0$ a key
    before the query counts the same as one after it.

    A $\varphi$ outside $[-2\pi, 0]$, one full circle, counts as the nearer end, and its gradient is
    zero there.

    Make a layer with `PolarKey.init(num_heads, head_dim)`, or from angles that exist.

    Args:
        phase: $\varphi$ in radians, `(h, d)`.
        base: $b$, positive.

    Examples:
        >>> x = np.log(np.expm1(np.array([[[1.0, 2.0]]])))
        >>> key = PolarKey(np.array([[0.0, -np.pi / 2]]))(x, np.array([3]))
        >>> query = polar_query(x, np.array([3]))
        >>> (query @ key.mT).round(4)
        array([[[1.]]])

    References:
        :cite:t:`gopalakrishnan2025decoupling`; the bounds of $\varphi$ and its zeros at the start are
        those of `lucidrains/PoPE-pytorch`.
    """

    phase: Inexact[np.ndarray, "h d"]
    base: float = 10000.0

    def __post_init__(self):
        contract.base(self.base)

    @classmethod
    def init(cls, num_heads: int, head_dim: int, *, base: float = 10000.0) -> "PolarKey":
        """Start from angles of zero.

        Args:
            num_heads: the number of heads of keys, at least 1.
            head_dim: the width of the heads, at least 1.
            base: the base of the frequencies, positive.
        """
        num_heads, head_dim = contract.sizes(num_heads=num_heads, head_dim=head_dim)
        return cls(np.zeros((num_heads, head_dim)), base)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch h n d"],
        positions: Real[np.ndarray, "*#batch_and_heads n"] | None = None,
    ) -> Inexact[np.ndarray, "*batch h n 2*d"]:
        r"""Rotate the keys of all heads.

        Args:
            x: the keys of each head, `(*batch, h, n, d)`.
            positions: any real numbers: `(n)`, or with batch axes of which each is that of `x`
                or 1; $0, \ldots, n - 1$ if not given.

        Returns:
            `(*batch, h, n, 2 d)`.
        """
        contract.head_sequence("x", x)
        contract.parameter("phase", self.phase, (x.shape[-3], x.shape[-1]))
        phase = np.where(self.phase.real > 0, 0, self.phase)
        phase = np.where(phase.real < -2 * math.pi, -2 * math.pi, phase)
        return _turned(x, positions, self.base, phase[:, None, :])


def _turned(x, positions, base, phase):
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    positions = np.arange(x.shape[-2]) if positions is None else positions
    omega = frequencies(2 * x.shape[-1], base=base)
    angles = positions.astype(np.float64)[..., None] * omega + phase
    positive = x.real > 0
    size = np.where(positive, x, 0) + np.log1p(np.exp(np.where(positive, -x, x)))
    return np.concatenate([size * np.cos(angles), size * np.sin(angles)], axis=-1)


def _polar(z):
    key, scale = PolarKey.init(HEADS, z.head_dim), z.head_dim**-0.5
    return Scheme(rotate=(polar_query, key), layer=key, scale=scale)


def polar_query_cases():
    """The query of PoPE: each entry is the length of an arrow, which the position rotates; cosines first."""
    x, later = draw(0, 2, 3, 5, 4), np.arange(7, 12)
    yield "positions that do not begin at 0", (x, later), {}
    yield "no positions given", (x,), {}
    yield "another base", (x, later), {"base": 500.0}
    yield "an odd width", (x[..., :3], later), {}
    yield "negative positions and fractions", (x, np.array([-700.5, -2.25, 0, 1, 512])), {}
    yield (
        "positions that bfloat16 cannot hold",
        (x, np.array([257, 511, 999, 1021, 1500])),
        {},
    )
    yield (
        "positions per example",
        (x, np.array([[[0, 0, 0, 1, 2]], [[0, 1, 2, 3, 4]]])),
        {},
    )
    yield "decoding: one token", (x[:1, :, :1], np.array([41])), {}


def polar_key_cases():
    """The key of PoPE: as the query, and rotated by a learned angle of each head and entry."""
    phase = -np.abs(draw(1, 3, 4)) / 4
    for name, (x, *where), options in polar_query_cases():
        yield name, (x, *where), {"phase": phase[:, : x.shape[-1]], **options}
    beyond = draw(2, 3, 4) * 7
    yield (
        "angles beyond a turn",
        (draw(0, 2, 3, 5, 4),),
        {"phase": np.clip(beyond, -16, 16)},
    )


def rotated_key(x, positions=None, *, phase, base=10000.0):
    """The layer, as one function."""
    return PolarKey(phase, base)(x, positions)


CARDS = {
    "PoPE": Card(
        title="Polar coordinates (PoPE)",
        year=2025,
        idea=(
            "Read every entry of a query or key as the length of an arrow. Only the "
            "position sets the angle of the arrow, plus a learned angle that says which "
            "offset the entry prefers."
        ),
        formula=(
            r"s_{ij} = \textstyle\sum_c \mu(q_{ic})\,\mu(k_{jc}) \cos\bigl((j - "
            r"i)\,\omega_c + \varphi_c\bigr) / \sqrt{d_h}, \quad \mu(x) = \ln(1 + e^x)"
        ),
        symbols=(
            r"$\omega_c$ is the frequency of entry $c$, $\varphi_c$ its learned angle, and "
            r"$\mu$ makes numbers positive."
        ),
        cites=("gopalakrishnan2025decoupling",),
        function="PolarKey",
        shows="stripes along the diagonal, strongest on it",
        make=lambda n, z=SMALL: _polar(z),
    ),
}

CASES = {
    "polar_query": Cases(polar_query, polar_query_cases, "gopalakrishnan2025decoupling"),
    "polar_key": Cases(
        rotated_key, polar_key_cases, "gopalakrishnan2025decoupling", name="PolarKey"
    ),
}
