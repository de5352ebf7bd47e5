"""Selective rotation: pairs rotate by angles that the tokens choose."""

from typing import Literal

import numpy as np
from jaxtyping import Inexact

from posattn import contract
from posattn.reference.cases import Cases, draw, first_of
from posattn.reference.position.rotary import rotate_by
from posattn.reference.validated import validated

__all__ = ["selective_rotation"]


@validated
def selective_rotation(
    x: Inexact[np.ndarray, "*batch h n d"],
    steps: Inexact[np.ndarray, "*batch one_or_h n m"],
    *,
    layout: Literal["interleaved", "half"] = "interleaved",
    state: Inexact[np.ndarray, "*batch one_or_h m"] | None = None,
) -> tuple[Inexact[np.ndarray, "*batch h n d"], Inexact[np.ndarray, "*batch one_or_h m"]]:
    r"""Rotate each pair by the sum of the steps up to its token.

    .. math:: \phi_{tj} = \sum_{l=0}^{t} \theta_{lj}, \qquad
        (x_{2j}, x_{2j+1}) \mapsto (x_{2j} \cos\phi_{tj} - x_{2j+1} \sin\phi_{tj},\;
        x_{2j} \sin\phi_{tj} + x_{2j+1} \cos\phi_{tj}) .

    The score of a query at $t$ and a key at $s$, both rotated, depends on
    $\phi_{tj} - \phi_{sj} = \sum_{l=s+1}^{t} \theta_{lj}$: the steps of the tokens between them, as the
    forgetting gate sums its log gates.
    RoPE is the case in which every token takes the same step $\theta_{lj} = \omega_j$, whatever it says.
    Its scores are those of `rotate`, whose angles start at 0, while these start at $\theta_{0j}$.

    What it guarantees: adding an angle to `state` changes no score. A text cut into several calls is
    rotated as in one.

    Args:
        x: queries or keys, `(*batch, h, n, d)`, $d$ even.
        steps: $\theta$ in radians, `(*batch, h, n, d/2)`, or with one head for all, `(*batch, 1, n, d/2)`.
        layout: `"interleaved"` for the pairs above, `"half"` for the pairs $(x_j, x_{j + d/2})$.
        state: the angles of the token before the first, `(*batch, h, d/2)` or `(*batch, 1, d/2)`; zeros
            if not given.

    Returns:
        `x`, rotated, and the angles of the last token, between $-\pi$ and $\pi$.

    Raises:
        ValueError: if $d$ is odd, or shapes do not fit.

    Examples:
        >>> x = np.array([[[1.0, 0.0], [1.0, 0.0]]])
        >>> output, state = selective_rotation(x, np.array([[[0.0], [np.pi / 2]]]))
        >>> output.round(4)
        array([[[1., 0.],
                [0., 1.]]])

    References:
        :cite:t:`movahedi2026selective`.
    """
    contract.turned(x, steps, layout, state)
    angles = np.cumsum(steps.astype(np.result_type(np.float64, steps)), axis=-2)
    if state is not None:
        angles = angles + state[..., None, :]
    elif steps.shape[-2] == 0:
        state = np.zeros((*steps.shape[:-2], steps.shape[-1]))
    last = angles[..., -1, :] if steps.shape[-2] else state
    turns = 2 * np.pi * np.round(last.real / (2 * np.pi))
    return rotate_by(x, np.cos(angles), np.sin(angles), layout), last - turns


def selective_rotation_cases():
    """A rotation by angles that the tokens choose: the sum of their steps so far."""
    x, steps = draw(80, 1, 2, 5, 4), draw(81, 1, 2, 5, 2) / 4
    yield "steps that tokens choose", (x, steps), {"layout": "interleaved"}
    yield "the other layout", (x, steps), {"layout": "half"}
    yield "one step for all heads", (x, steps[:, :1]), {"layout": "interleaved"}
    rope = np.zeros((1, 1, 5, 2)) + np.array([1.0, 0.125])
    yield "the same step for all tokens", (x, rope), {"layout": "interleaved"}
    before = {"state": draw(82, 1, 2, 2)}
    yield "an angle from before", (x, steps), {**before, "layout": "interleaved"}
    yield "an angle from before, the other layout", (x, steps), {**before, "layout": "half"}


CARDS = {}  # a Scheme rotates by positions only
CASES = {
    "selective_rotation": Cases(
        first_of(selective_rotation),
        selective_rotation_cases,
        "movahedi2026selective",
        name="selective_rotation(...)[0]",
        kept=("state",),
    )
}
