"""FoPE: each pair rotates with a sum of waves, and the slowest pairs stand still."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from posattn import contract
from posattn.jax.position.rotary import rotate_by
from posattn.jax.position.sinusoidal import cos_sin
from posattn.jax.position.sinusoidal import frequencies as sinusoidal_frequencies
from posattn.jax.validated import validated

__all__ = ["fope", "fope_frequencies"]


@validated
def fope_frequencies(
    head_dim: int, *, base: float = 10000.0, trained_length: int
) -> Float[np.ndarray, " k"]:
    r"""Keep the frequencies that complete a circle within the trained length.

    Twin of :func:`posattn.reference.fope_frequencies`; a NumPy array in float64.

    Args:
        head_dim: the width of a head, $d$, even.
        base: $b$, positive.
        trained_length: $L$ in tokens, at least 1.

    Returns:
        $\omega$ in radians per position, `(K)`, from fast to slow.

    Examples:
        >>> fope_frequencies(8, base=16.0, trained_length=20)
        array([1. , 0.5])
    """
    head_dim = contract.integer("head_dim", head_dim, least=1, even=True)
    trained_length = contract.integer("trained_length", trained_length, least=1)
    kept = sinusoidal_frequencies(head_dim, base=base)
    return kept[kept > 2 * math.pi / trained_length]


@validated
def fope(
    x: Float[Array, "*batch h n d"],
    positions: Real[Array | np.ndarray, "*#batch_and_heads n"] | None = None,
    *,
    frequencies: Float[Array | np.ndarray, " k"],
    cos_weight: Float[Array, "h_w k m"],
    sin_weight: Float[Array, "h_w k m"],
    layout: str = "half",
    rest_sine: float = 1.0,
) -> Float[Array, "*batch h n d"]:
    r"""Rotate each pair of entries with a sum of waves instead of a single one.

    Twin of :func:`posattn.reference.fope`.
    Angles are as exact as those of :func:`rotate`; sines and cosines are weighted in the dtype of the
    weights, at least float32.

    Args:
        x: the queries or keys of each head, `(*batch, h, n, d)`, $d$ even.
        positions: $p$, any real numbers: `(n)`, or with batch axes of which each is that of `x` or 1;
            $0, \ldots, n - 1$ if not given.
        frequencies: $\omega$ in radians per position, `(K)`.
        cos_weight: $\mathbf{A}$, `(H, K, m)`, where $2m \le d$ and $H$ divides $h$.
        sin_weight: $\mathbf{B}$, of the same shape.
        layout: `"interleaved"` or `"half"`.
        rest_sine: the sine of the other $d/2 - m$ pairs, finite: 1 in the authors' program.

    Returns:
        `(*batch, h, n, d)`.

    Examples:
        >>> one, x = jnp.ones((1, 1, 1)), jnp.array([[[1.0, 1.0, 0.0, 0.0]] * 2])
        >>> still = {"cos_weight": one, "sin_weight": one, "rest_sine": 0.0}
        >>> abs(fope(x, frequencies=np.array([np.pi / 2]), **still)).round(4)
        Array([[[1., 1., 0., 0.],
                [0., 1., 1., 0.]]], dtype=float32)
    """
    contract.head_sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.layout(layout)
    groups = contract.waves(frequencies, cos_weight, sin_weight, x.shape)
    rest = contract.finite("rest_sine", rest_sine)
    positions = np.arange(x.shape[-2]) if positions is None else positions
    wide = jnp.promote_types(cos_weight.dtype, jnp.float32)
    waves = cos_sin([positions[..., None]], [frequencies], wide)
    cos, sin = (
        jnp.matmul(
            wave, jnp.repeat(weight.astype(wide), groups, axis=0), precision="highest"
        )
        for wave, weight in zip(waves, (cos_weight, sin_weight), strict=True)
    )
    others = [(0, 0)] * (cos.ndim - 1) + [(0, x.shape[-1] // 2 - cos.shape[-1])]
    cos = jnp.pad(cos, others, constant_values=1)
    return rotate_by(x, cos, jnp.pad(sin, others, constant_values=rest), layout)
