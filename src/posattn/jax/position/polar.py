"""PoPE: how large an entry is says what, and only the angle says where."""

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.position import sinusoidal
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = ["PolarKey", "polar_query"]


@validated
def polar_query(
    x: Float[Array, "*batch n d"],
    positions: Real[Array | np.ndarray, "*#batch n"] | None = None,
    *,
    base: float = 10000.0,
) -> Float[Array, "*batch n 2*d"]:
    r"""Make each entry of a query the length of an arrow, and let only the position rotate the arrow.

    Twin of :func:`posattn.reference.polar_query`.
    Angles are exact, also of traced positions in the 32-bit mode; half precision is rotated in
    float32 and rounded once.

    Args:
        x: the queries of each head, `(*batch, n, d)`, of any width.
        positions: any real numbers: `(n)`, or with batch axes of which each is that of `x` or 1;
            $0, \ldots, n - 1$ if not given.
        base: the base of the frequencies, positive.

    Returns:
        `(*batch, n, 2 d)`, all cosines before all sines.

    Examples:
        >>> polar_query(jnp.log(jnp.expm1(jnp.ones((1, 2)))), jnp.array([0]))
        Array([[1., 1., 0., 0.]], dtype=float32)
    """
    size, cos, sin = _polar(x, positions, base)
    return jnp.concatenate([size * cos, size * sin], axis=-1).astype(x.dtype)


@validated
@register
@dataclass(frozen=True, eq=False)
class PolarKey:
    r"""Make each entry of a key the length of an arrow, which position and a learned angle rotate.

    Twin of :class:`posattn.reference.PolarKey`; a pytree.

    Args:
        phase: the learned angles in radians, `(h, d)`.
        base: the base of the frequencies, positive; static.

    Examples:
        >>> layer = PolarKey.init(2, 4)
        >>> layer(jnp.ones((3, 2, 5, 4))).shape
        (3, 2, 5, 8)
    """

    phase: Float[Array, "h d"]
    base: float = field(default=10000.0, metadata={"static": True})

    def __post_init__(self):
        contract.base(self.base)

    @classmethod
    def init(
        cls,
        num_heads: int,
        head_dim: int,
        *,
        base: float = 10000.0,
        dtype: DTypeLike | None = None,
    ) -> "PolarKey":
        """Start from angles of zero.

        Twin of :meth:`posattn.reference.PolarKey.init`.

        Args:
            num_heads: the number of heads of keys, at least 1.
            head_dim: the width of the heads, at least 1.
            base: the base of the frequencies, positive.
            dtype: of the angles, JAX's default one if not given.
        """
        num_heads, head_dim = contract.sizes(num_heads=num_heads, head_dim=head_dim)
        dtype = jnp.result_type(float if dtype is None else dtype)
        return cls(jnp.zeros((num_heads, head_dim), dtype), base)

    def __call__(
        self,
        x: Float[Array, "*batch h n d"],
        positions: Real[Array | np.ndarray, "*#batch_and_heads n"] | None = None,
    ) -> Float[Array, "*batch h n 2*d"]:
        r"""Rotate the keys of all heads.

        Twin of calling :class:`posattn.reference.PolarKey`.

        Args:
            x: the keys of each head, `(*batch, h, n, d)`.
            positions: any real numbers: `(n)`, or with batch axes of which each is that of `x`
                or 1; $0, \ldots, n - 1$ if not given.

        Returns:
            `(*batch, h, n, 2 d)`.
        """
        contract.head_sequence("x", x)
        contract.parameter("phase", self.phase, (x.shape[-3], x.shape[-1]))
        size, cos, sin = _polar(x, positions, self.base)
        # where, unlike clip, keeps the whole gradient at the bound
        phase = jnp.where(self.phase > 0, 0, self.phase).astype(size.dtype)
        phase = jnp.where(phase < -2 * math.pi, -2 * math.pi, phase)[:, None, :]
        cos_phase, sin_phase = jnp.cos(phase), jnp.sin(phase)
        rotated = [
            size * (cos * cos_phase - sin * sin_phase),
            size * (sin * cos_phase + cos * sin_phase),
        ]
        return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


def _polar(x, positions, base):
    """The lengths of the arrows of `x`, and cosine and sine of the angles of their positions."""
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    positions = np.arange(x.shape[-2]) if positions is None else positions
    omega = sinusoidal.frequencies(2 * x.shape[-1], base=base)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    cos, sin = sinusoidal.cos_sin([positions[..., None]], [omega], wide)
    return jax.nn.softplus(x.astype(wide)), cos, sin
