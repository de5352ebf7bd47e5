"""Proportional rotation: pairs lie across the whole head, and only the fast ones rotate."""

import numpy as np
from jaxtyping import Float

from posattn import contract
from posattn.reference.cases import Cases
from posattn.reference.position.card import SMALL, Card
from posattn.reference.position.rotary import rotation
from posattn.reference.position.sinusoidal import frequencies
from posattn.reference.validated import validated

__all__ = ["proportional_frequencies"]


@validated
def proportional_frequencies(
    head_dim: int, *, base: float = 10000.0, rotary_dim: int, factor: float = 1.0
) -> Float[np.ndarray, " m"]:
    r"""Keep the fast pairs of a whole head rotation, and stop the slow ones.

    .. math:: \omega_j = \begin{cases} b^{-2j/d} / s & \text{if } j < r/2 \\
        0 & \text{otherwise,} \end{cases} \qquad j = 0, \ldots, d/2 - 1.

    It gives frequencies for `Rotary(frequencies=..., layout="half")`.
    A pair with frequency 0 has the same score at every distance, so content can be compared across a
    whole context there.

    Configurations call two different rotations partial, and both have a `partial_rotary_factor`.
    Here, as in the global layers of Gemma 4 (`"rope_type": "proportional"`), the exponent divides by
    the whole width $d$, and in the layout `"half"` the pairs that rotate join entry $j$ with entry
    $j + d/2$.
    In GPT-NeoX, Phi and Qwen3-Next the first $r$ entries form a smaller head of their own.
    The exponent divides by $r$, and entry $j$ is joined with entry $j + r/2$: use
    `Rotary(rotary_dim=r, layout="half")`.
    With $r = d$ both are the rotation of the whole head.

    Args:
        head_dim: the width of a head, $d$, even.
        base: $b$, positive.
        rotary_dim: how many entries of a head rotate, $r$, even and at most $d$. A configuration's
            `partial_rotary_factor` $f$ means $r = 2 \lfloor f d / 2 \rfloor$.
        factor: $s$, how many times slower the pairs rotate, at least 1.

    Returns:
        $\omega$ in radians per position, `(d / 2)`.

    Examples:
        >>> proportional_frequencies(8, base=16.0, rotary_dim=4)
        array([1. , 0.5, 0. , 0. ])

    References:
        :cite:t:`barbero2025round`, who call it p-RoPE; function `_compute_proportional_rope_parameters` of
        transformers, which `nox -s oracles` compares with it.
    """
    head_dim = contract.integer("head_dim", head_dim, least=1, even=True)
    rotation = contract.rotary_dim(rotary_dim, head_dim) // 2
    omega = frequencies(head_dim, base=base) / contract.factor(factor)
    return np.where(np.arange(head_dim // 2) < rotation, omega, 0.0)


def proportional_cases():
    """Proportional rotation: pairs across the whole head, of which the first ones rotate."""
    yield "a global head of Gemma 4", (512,), {"base": 1e6, "rotary_dim": 128}
    yield "half of the pairs", (16,), {"rotary_dim": 8}
    yield "all pairs rotate", (8,), {"rotary_dim": 8}
    yield "an odd number of pairs, another base", (20,), {"base": 500.0, "rotary_dim": 6}
    yield "slowed down", (64,), {"rotary_dim": 32, "factor": 8.0}
    every = {"base": 500.0, "rotary_dim": 8, "factor": 8.0}
    yield "all options at once", (16,), every


CARDS = {
    "rotary, proportional": Card(
        title="Proportional rotary",
        year=2024,
        idea="Form the pairs across the whole head, and rotate only the fast ones.",
        formula=(
            r"\text{pair } c \text{ rotates by } i\,\omega_c \text{ if } c < m, \text{ "
            r"else not}, \quad \omega_c = b^{-2c/d_h}"
        ),
        symbols=(
            r"$m$ is the number of pairs that rotate, and $\omega_c$ the frequency that pair $c$ has "
            "where all pairs rotate, with the base $b$ and heads of width $d_h$."
        ),
        cites=("barbero2025round",),
        function="proportional_frequencies",
        shows="fine stripes along the diagonal, without the slow pairs",
        models=("Gemma 4",),
        page="build/conventions",
        make=lambda n, z=SMALL: rotation(
            proportional_frequencies(z.head_dim, rotary_dim=8)
        ),
    ),
}

CASES = {
    "proportional": Cases(
        proportional_frequencies,
        proportional_cases,
        "barbero2025round, as in Gemma 4",
        relative=True,
        exact=True,
    ),
}
