"""xPos: a rotation that also fades, so that scores fall with the distance."""

import numpy as np
from jaxtyping import Inexact, Real

from posattn import contract
from posattn.reference.cases import Cases, draw
from posattn.reference.position.card import SMALL, Card, Scheme
from posattn.reference.position.rotary import rotate_by
from posattn.reference.position.sinusoidal import frequencies
from posattn.reference.validated import validated

__all__ = ["xpos_key", "xpos_query"]


@validated
def xpos_query(
    x: Inexact[np.ndarray, "*batch n d"],
    positions: Real[np.ndarray, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
    gamma: float = 0.4,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Inexact[np.ndarray, "*batch n d"]:
    r"""Rotate each pair of entries of a query, and shrink it more the later it stands.

    .. math:: \begin{bmatrix} u \\ v \end{bmatrix} \mapsto
        \zeta_j^{\,p/\tau}
        \begin{bmatrix} \cos p\,\omega_j & -\sin p\,\omega_j \\
        \sin p\,\omega_j & \cos p\,\omega_j \end{bmatrix}
        \begin{bmatrix} u \\ v \end{bmatrix}, \qquad
        \omega_j = b^{-2j/d}, \qquad \zeta_j = \frac{2j/d + \gamma}{1 + \gamma}.

    The key has $\zeta_j^{-p/\tau}$, so that the product of a pair of the query at $p$ with that of
    a key at $p'$ has the factor $\zeta_j^{(p - p')/\tau}$: it depends only on the offset, and
    falls with the distance to the past, fastest for the pairs that rotate fastest.
    Use both: `MultiHeadAttention(rotate=(xpos_query, xpos_key))`.

    It is made for causal attention, because scores grow toward keys in the future.
    The query fades and the key grows with the position itself, not with the offset.
    With the defaults these factors are normal numbers while $|p|$ is below 35 600 in float32 and
    bfloat16, 3900 in float16 and 289 000 in float64: in general while
    $|p| \le \tau \ln M / \ln((1 + \gamma) / \gamma)$, where $1 / M$ is the smallest normal number.
    Beyond that keys become infinite and scores NaN. Large or small entries of `x` narrow the range.
    Only offsets matter, so if positions are larger, subtract the same number from all of them. The
    authors put 0 in the middle of the text, which doubles the range.

    The paper's algorithm has $\tau = 1$, which overflows every number format. The authors' code
    divides by 512, as is done here.

    Args:
        x: the queries of each head, `(*batch, n, d)`, $d$ even.
        positions: $p$, any real numbers: `(n)`, or with batch axes of which each is that of `x`
            or 1; $0, \ldots, n - 1$ if not given.
        base: $b$, positive.
        gamma: $\gamma$, positive; the larger, the less any pair fades.
        scale_base: $\tau$, positive: over so many positions pair $j$ fades by $\zeta_j$.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see :func:`rotate`.

    Returns:
        `(*batch, n, d)`.

    Raises:
        ValueError: if shapes do not fit, the width is odd, or a number lies outside its range.

    Examples:
        >>> x = np.ones((1, 2))
        >>> where = np.array([0.0]), np.array([512.0])
        >>> (xpos_query(x, where[1]) @ xpos_key(x, where[1]).T).round(4)
        array([[2.]])
        >>> score = xpos_query(x, where[1]) @ xpos_key(x, where[0]).T
        >>> bool(np.isclose(score.item(), 2 * np.cos(512.0) * 0.4 / 1.4))
        True

    References:
        :cite:t:`sun2023length`, section 3.2, algorithm 1; $\tau$: `XPOS` of `microsoft/torchscale`.
    """
    return _fading(x, positions, base, gamma, scale_base, layout, 1)


@validated
def xpos_key(
    x: Inexact[np.ndarray, "*batch n d"],
    positions: Real[np.ndarray, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
    gamma: float = 0.4,
    scale_base: float = 512.0,
    layout: str = "interleaved",
) -> Inexact[np.ndarray, "*batch n d"]:
    r"""Rotate each pair of entries of a key, and grow it more the later it stands.

    The other half of :func:`xpos_query`, with $\zeta_j^{-p/\tau}$ instead of
    $\zeta_j^{\,p/\tau}$.

    Args:
        x: the keys of each head, `(*batch, n, d)`, $d$ even.
        positions: as in :func:`xpos_query`, and so are the others.
        base: $b$, positive.
        gamma: $\gamma$, positive.
        scale_base: $\tau$, positive.
        layout: `"interleaved"` or `"half"`.

    Returns:
        `(*batch, n, d)`.

    Raises:
        ValueError: if shapes do not fit, the width is odd, or a number lies outside its range.

    Examples:
        >>> x = np.array([[1.0, 0.0]])
        >>> round(float(np.linalg.norm(xpos_key(x, np.array([512])))), 4)
        3.5

    References:
        :cite:t:`sun2023length`, section 3.2, algorithm 1.
    """
    return _fading(x, positions, base, gamma, scale_base, layout, -1)


def _fading(x, positions, base, gamma, scale_base, layout, sign):
    """Rotate `x`, and multiply its pairs by the power `sign` of what makes them fade."""
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.pair_frequencies(None, x.shape)
    gamma = contract.positive("gamma", gamma)
    scale_base = contract.positive("scale_base", scale_base)
    d = x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else positions
    where = positions.astype(np.float64)[..., None]
    zeta = (np.arange(0, d, 2) / d + gamma) / (1 + gamma)
    scale = zeta ** (sign * where / scale_base)
    angles = where * frequencies(d, base=base)
    return rotate_by(x, scale * np.cos(angles), scale * np.sin(angles), layout)


def xpos_query_cases():
    """The query of xPos: rotation, and a factor that falls with the position."""
    x, later = draw(0, 1, 5, 8), np.arange(7, 12)
    fine = np.array([257, 511, 999, 1021, 1500])
    both, per_example = draw(2, 2, 3, 8), np.array([[0, 0, 1], [5, 6, 7]])
    heads = draw(1, 3, 2, 3, 6), np.array([[[5, 6, 7]], [[0, 0, 1]], [[2, 3, 9]]])
    for layout in ("interleaved", "half"):
        said = "layout half, " * (layout == "half")
        options = {}
        if layout == "half":
            options = {"layout": layout}
        yield f"{said}positions that do not begin at 0", (x, later), options
        yield f"{said}positions 0 to 4", (x, np.arange(5)), options
        yield f"{said}no positions given", (x,), options
        apart = np.array([-700.5, -2.25, 0, 1, 512])
        yield f"{said}negative positions and fractions", (x, apart), options
        yield f"{said}positions that bfloat16 cannot hold", (x, fine), options
        yield f"{said}positions per example", (both, per_example), options
        yield f"{said}two heads", heads, options
        yield f"{said}another base", (x, later), {"base": 500.0, **options}
        yield f"{said}another gamma", (x, later), {"gamma": 1.5, **options}
        yield f"{said}another scale base", (x, later), {"scale_base": 64.0, **options}
        every = {"base": 500.0, "gamma": 1.5, "scale_base": 64.0, **options}
        yield f"{said}all options at once", (x, later), every
        yield f"{said}decoding: one token", (x[:, :1], np.array([41])), options
        one = both[:, :1], np.array([[41], [7]])
        yield f"{said}decoding: one token of each example", one, options


def xpos_key_cases():
    """The key of xPos: rotation, and a factor that grows with the position."""
    yield from xpos_query_cases()


CARDS = {
    "xPos": Card(
        title="xPos",
        year=2022,
        idea=(
            "Rotary that fades with distance. Queries shrink and keys grow with their "
            "positions, so the score of a distant earlier key gets smaller."
        ),
        formula=(
            r"\mathbf{q}_i \mapsto \zeta_c^{\,i/\tau}\,\mathbf{R}_i\,\mathbf{q}_i, \quad "
            r"\mathbf{k}_j \mapsto \zeta_c^{-j/\tau}\,\mathbf{R}_j\,\mathbf{k}_j"
        ),
        symbols=(
            r"$\mathbf{R}_i$ is the rotation of rotary, $\zeta_c$ a number below 1 for "
            r"each pair, and $\tau$ the number of positions over which pair $c$ fades by "
            r"$\zeta_c$."
        ),
        cites=("sun2023length",),
        function="xpos_query",
        shows="nearly the stripes of rotary, because little fades within 64 positions",
        make=lambda n, z=SMALL: Scheme(rotate=(xpos_query, xpos_key)),
    ),
}

SUN = "sun2023length, section 3.2, algorithm 1"
CASES = {
    "xpos_query": Cases(xpos_query, xpos_query_cases, SUN),
    "xpos_key": Cases(xpos_key, xpos_key_cases, SUN),
}
