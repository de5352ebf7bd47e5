"""Selective rotation: pairs rotate by angles that the tokens choose."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from posattn import contract
from posattn.jax.position.rotary import rotate_by
from posattn.jax.validated import validated

__all__ = ["selective_rotation"]

_TURN = 6.28125, math.tau - 6.28125, 2.4492935982947064e-16  # they add up to 2 pi


@validated
def selective_rotation(
    x: Float[Array, "*batch h n d"],
    steps: Float[Array, "*batch one_or_h n m"],
    *,
    layout: Literal["interleaved", "half"] = "interleaved",
    state: Float[Array, "*batch one_or_h m"] | None = None,
) -> tuple[Float[Array, "*batch h n d"], Float[Array, "*batch one_or_h m"]]:
    r"""Rotate each pair by the sum of the steps up to its token.

    Twin of :func:`posattn.reference.selective_rotation`.
    Steps are summed up to whole turns, in pairs of floats of which the second holds what the first rounds
    away. The returned angles are single floats, so each call rounds them once.

    Args:
        x: queries or keys, `(*batch, h, n, d)`, $d$ even.
        steps: $\theta$ in radians, `(*batch, h, n, d/2)` or `(*batch, 1, n, d/2)`.
        layout: `"interleaved"` or `"half"`.
        state: the angles of the token before the first, `(*batch, h, d/2)` or `(*batch, 1, d/2)`; zeros
            if not given.

    Returns:
        `x`, rotated, and the angles of the last token, between $-\pi$ and $\pi$.

    Examples:
        >>> x = jnp.array([[[1.0, 0.0], [1.0, 0.0]]])
        >>> selective_rotation(x, jnp.array([[[0.0], [jnp.pi / 2]]]))[0].round(4)
        Array([[[ 1.,  0.],
                [-0.,  1.]]], dtype=float32)
    """
    contract.turned(x, steps, layout, state)
    wide = jnp.promote_types(steps.dtype, jnp.float32)
    before = jnp.zeros((*steps.shape[:-2], steps.shape[-1]), wide)
    before = before if state is None else state.astype(wide)
    angles = _angles(before, steps.astype(wide))
    cos, sin = jnp.cos(angles[..., 1:, :]), jnp.sin(angles[..., 1:, :])
    return rotate_by(x, cos, sin, layout), angles[..., -1, :]


@jax.jit
def _angles(before, steps):
    """The angles before the first token and after each one."""
    terms = jnp.concatenate([before[..., None, :], steps], axis=-2)
    learned = jnp.cumsum(terms, axis=-2)
    terms = _less_turns(lax.stop_gradient(terms), 0.0)
    high, low = lax.associative_scan(_add, terms, axis=steps.ndim - 2)
    return high + low + (learned - lax.stop_gradient(learned))


def _add(one, other):
    """The sum of two angles, each a pair of floats, as such a pair, less whole turns."""
    high, low = _sum(one[0], other[0])
    return _less_turns(high, low + (one[1] + other[1]))


def _less_turns(high, low):
    """An angle, as a pair of floats, less as many turns as leave it between half a turn and minus that."""
    turns = jnp.round(high / math.tau)
    # the first product and difference are exact
    high, rest = _sum(high - turns * _TURN[0], -turns * _TURN[1])
    missing = _TURN[2] + (_TURN[1] - float(np.asarray(_TURN[1], high.dtype)))
    return _sum(high, low + (rest - turns * missing))


def _sum(a, b):
    """The sum of two floats, and what it rounds away."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
