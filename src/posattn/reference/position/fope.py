"""FoPE: each pair rotates with a sum of waves, and the slowest pairs stand still."""

import math
from functools import partial

import numpy as np
from jaxtyping import Float, Inexact, Real

from posattn import contract
from posattn.reference.cases import Cases, draw, single
from posattn.reference.position.card import SMALL, Card, Scheme, generator
from posattn.reference.position.rotary import rotate_by
from posattn.reference.position.sinusoidal import frequencies as sinusoidal_frequencies
from posattn.reference.validated import validated

__all__ = ["fope", "fope_frequencies"]


@validated
def fope_frequencies(
    head_dim: int, *, base: float = 10000.0, trained_length: int
) -> Float[np.ndarray, " k"]:
    r"""Keep the frequencies that complete a circle within the trained length.

    .. math:: \omega_l = b^{-2l/d} > \frac{2\pi}{L}, \qquad l = 0, \ldots, K - 1.

    A slower pair never completes a circle in training, so a model has seen only a part of its angles.
    :func:`fope` lets such pairs stand still.

    Args:
        head_dim: the width of a head, $d$, even.
        base: $b$, positive.
        trained_length: $L$ in tokens, at least 1.

    Returns:
        $\omega$ in radians per position, `(K)`, from fast to slow.

    Examples:
        >>> fope_frequencies(8, base=16.0, trained_length=20)
        array([1. , 0.5])

    References:
        :cite:t:`hua2025fourier`.
    """
    head_dim = contract.integer("head_dim", head_dim, least=1, even=True)
    trained_length = contract.integer("trained_length", trained_length, least=1)
    kept = sinusoidal_frequencies(head_dim, base=base)
    return kept[kept > 2 * math.pi / trained_length]


@validated
def fope(
    x: Inexact[np.ndarray, "*batch h n d"],
    positions: Real[np.ndarray, "*#batch_and_heads n"] | None = None,
    *,
    frequencies: Inexact[np.ndarray, " k"],
    cos_weight: Inexact[np.ndarray, "h_w k m"],
    sin_weight: Inexact[np.ndarray, "h_w k m"],
    layout: str = "half",
    rest_sine: float = 1.0,
) -> Inexact[np.ndarray, "*batch h n d"]:
    r"""Rotate each pair of entries with a sum of waves instead of a single one.

    .. math:: \begin{bmatrix} u \\ v \end{bmatrix} \mapsto
        \begin{bmatrix} c & -s \\ s & c \end{bmatrix} \begin{bmatrix} u \\ v \end{bmatrix},
        \qquad c = \sum_{l=0}^{K-1} A_{h,l,j} \cos(p\,\omega_l),
        \qquad s = \sum_{l=0}^{K-1} B_{h,l,j} \sin(p\,\omega_l),

    for pair $j = 0, \ldots, m - 1$ of head $h$ at position $p$.
    In the other pairs $c = 1$, and $s$ is `rest_sine` at every position.
    It acts on queries and keys. :func:`rotate` is the case where $\mathbf{A}_h$ and $\mathbf{B}_h$ are
    the identity matrix and `rest_sine` is 0.

    The linear layers and activation functions around attention mix frequencies, so a pair that rotates
    with one frequency carries traces of others, say the authors.
    Sums of waves let the model expect that.
    Scores then depend on both positions, and not only on the difference between them.

    The authors draw $\mathbf{A}$ and $\mathbf{B}$ once, as the identity matrix plus noise, and keep them
    fixed. Intern-S1-Pro stores them in its checkpoint, a set for each head of keys.

    The authors set `rest_sine` to 1: the pairs that stand still are rotated by 45 degrees at every
    position and grow by $\sqrt2$. Rotating queries and keys alike changes no score, so all it does is
    double what these pairs add to it. With 0 they stay as they are.
    A model that was trained with one of them needs that one.

    Args:
        x: the queries or keys of each head, `(*batch, h, n, d)`, $d$ even.
        positions: $p$, any real numbers: `(n)`, or with batch axes of which each is that of `x` or 1;
            $0, \ldots, n - 1$ if not given.
        frequencies: $\omega$ in radians per position, `(K)`: see :func:`fope_frequencies`.
        cos_weight: $\mathbf{A}$, `(H, K, m)`, where $2m \le d$ and $H$ divides $h$: where queries share
            keys, each set serves as many neighboring heads of queries.
        sin_weight: $\mathbf{B}$, of the same shape.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see :func:`rotate`.
        rest_sine: the sine of the other $d/2 - m$ pairs, finite.

    Returns:
        `(*batch, h, n, d)`.

    Raises:
        TypeError: if an argument is not of its kind, or positions or frequencies are in half precision.

    Examples:
        >>> one, x = np.ones((1, 1, 1)), np.array([[[1.0, 1.0, 0.0, 0.0]] * 2])
        >>> still = {"cos_weight": one, "sin_weight": one, "rest_sine": 0.0}
        >>> fope(x, frequencies=np.array([np.pi / 2]), **still).round(4)
        array([[[1., 1., 0., 0.],
                [0., 1., 1., 0.]]])

    References:
        :cite:t:`hua2025fourier`; for `rest_sine` issue 6 of
        `TsinghuaC3I/Fourier-Position-Embedding`, and issue 55204 of `vllm-project/vllm`.
    """
    contract.head_sequence("x", x)
    contract.token_positions(positions, x.shape)
    groups = contract.waves(frequencies, cos_weight, sin_weight, x.shape)
    rest = contract.finite("rest_sine", rest_sine)
    positions = np.arange(x.shape[-2]) if positions is None else positions
    angles = positions.astype(np.float64)[..., None] * frequencies
    cos = np.cos(angles) @ np.repeat(cos_weight, groups, axis=0)
    sin = np.sin(angles) @ np.repeat(sin_weight, groups, axis=0)
    others = [(0, 0)] * (cos.ndim - 1) + [(0, x.shape[-1] // 2 - cos.shape[-1])]
    cos = np.pad(cos, others, constant_values=1)
    return rotate_by(x, cos, np.pad(sin, others, constant_values=rest), layout)


def _waves(z):
    kept = fope_frequencies(z.head_dim, trained_length=z.trained)
    noise = generator().normal(size=(2, 1, len(kept), len(kept))) / np.sqrt(len(kept))
    cos, sin = np.eye(len(kept)) + 0.3 * noise
    return Scheme(rotate=partial(fope, frequencies=kept, cos_weight=cos, sin_weight=sin))


def fope_cases():
    """FoPE: each pair rotates with a sum of waves, and the pairs without waves stand still."""
    x = draw(0, 2, 4, 5, 6)
    given = {"frequencies": single(np.array([1.0, 0.3, 0.01]))}
    given |= {"cos_weight": draw(1, 2, 3, 2), "sin_weight": draw(2, 2, 3, 2)}
    yield "two sets of waves for four heads", (x,), given
    yield "positions that do not begin at 0", (x, np.arange(7, 12)), given
    apart = np.array([[[0, 0, 0, 1, 2]], [[5, 6, 8, 9, 13]]])
    yield "positions per example", (x, apart), given
    yield "decoding: one token", (x[:, :, :1], np.array([41])), given
    yield "the pairs without waves stay as they are", (x,), given | {"rest_sine": 0.0}
    yield "layout interleaved", (x,), given | {"layout": "interleaved"}
    every = {"layout": "interleaved", "rest_sine": 0.0}
    yield "all options at once", (x, apart), given | every
    one = draw(1, 1, 3, 3)
    yield (
        "waves for every pair",
        (x,),
        given | {"cos_weight": one, "sin_weight": draw(3, 1, 3, 3)},
    )


def fope_frequencies_cases():
    """FoPE keeps the frequencies that complete a circle within the trained length."""
    yield "Intern-S1-Pro", (128,), {"base": 5e6, "trained_length": 262144}
    yield "a short text", (16,), {"trained_length": 20}
    yield "all complete a turn", (8,), {"base": 4.0, "trained_length": 512}
    yield "none does", (8,), {"trained_length": 6}


CARDS = {
    "FoPE": Card(
        title="Fourier position embedding (FoPE)",
        year=2024,
        idea=(
            "Rotate each pair with a weighted sum of waves instead of one, and stop the pairs that "
            "complete no circle in training."
        ),
        formula=r"\cos(i\,\omega_c) \mapsto {\textstyle\sum_l} A_{lc} \cos(i\,\omega_l)",
        symbols=(
            r"$\omega_l$ is a frequency that completes a circle in training, and $A$ holds fixed weights "
            "near the identity matrix. The sine has weights of its own."
        ),
        cites=("hua2025fourier",),
        function="fope",
        shows="the stripes of rotary with waves across them",
        models=("Intern-S1-Pro",),
        make=lambda n, z=SMALL: _waves(z),
    ),
}

CASES = {
    "fope": Cases(fope, fope_cases, "hua2025fourier"),
    "fope_frequencies": Cases(
        fope_frequencies,
        fope_frequencies_cases,
        "hua2025fourier",
        relative=True,
        exact=True,
    ),
}
