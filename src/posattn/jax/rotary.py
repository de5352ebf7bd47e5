"""Rotary position embedding: queries and keys turn with their position."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real, Shaped

from posattn import contract
from posattn.jax import sinusoidal

__all__ = ["rotate", "to_half", "to_interleaved", "weight_to_half", "weight_to_interleaved"]


def rotate(
    x: Float[Array, "*batch n d"],
    positions: Real[Array | np.ndarray, "*#batch n"] | None = None,
    *,
    frequencies: Float[Array | np.ndarray, " m"] | None = None,
    base: float = 10000.0,
    layout: str = "interleaved",
    attention_factor: float = 1.0,
) -> Float[Array, "*batch n d"]:
    """Turn each pair of entries of a token by an angle that grows with the token's position.

    Twin of :func:`posattn.reference.rotate`.
    Angles are exact, also of traced positions in the 32-bit mode, so that float32 results are right
    to 5e-7 of the largest entry at any position that int32 holds; half precision is turned in
    float32 and rounded once.
    Traced frequencies are an exception: in the 32-bit mode their angles are products in float32,
    off by up to 6e-8 of the angle.
    Where they are not learned, keep them out of the tree, as
    `MultiHeadAttention.init(..., rotate=functools.partial(rotate, frequencies=...))` does.

    Examples:
        >>> x = jnp.array([[1.0, 0.0, 1.0, 0.0]] * 2)
        >>> rotate(x).round(4)
        Array([[1.    , 0.    , 1.    , 0.    ],
               [0.5403, 0.8415, 1.    , 0.01  ]], dtype=float32)
    """
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.pair_frequencies(frequencies, x.shape)
    factor = contract.positive("attention_factor", attention_factor)
    if frequencies is None:
        frequencies = sinusoidal.frequencies(x.shape[-1], base=base)
    if positions is None:
        positions = np.arange(x.shape[-2])
    wide = jnp.promote_types(x.dtype, jnp.float32)
    cos, sin = sinusoidal.cos_sin([positions[..., None]], [frequencies], wide)
    return turn(x, factor * cos, factor * sin, layout)


def turn(x, cos, sin, layout):
    """Multiply the first pairs of `x` by rotations, as many as there are, and pass the rest through."""
    contract.layout(layout)
    m = cos.shape[-1]
    axis, pairs = (-2, (2, m)) if layout == "half" else (-1, (m, 2))
    turning = x[..., : 2 * m].astype(cos.dtype).reshape(*x.shape[:-1], *pairs)
    a, b = jnp.moveaxis(turning, axis, 0)
    turned = jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=axis)
    turned = turned.reshape(*x.shape[:-1], 2 * m).astype(x.dtype)
    return jnp.concatenate([turned, x[..., 2 * m :]], axis=-1)


def to_half(x: Shaped[Array, "*batch d"]) -> Shaped[Array, "*batch d"]:
    """Put the even columns before the odd ones: from the layout `"interleaved"` to `"half"`.

    Twin of :func:`posattn.reference.to_half`.

    Examples:
        >>> to_half(jnp.arange(5))
        Array([0, 2, 4, 1, 3], dtype=int32)
    """
    contract.columns(x)
    return jnp.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def to_interleaved(x: Shaped[Array, "*batch d"]) -> Shaped[Array, "*batch d"]:
    """Alternate the columns of the first half with those of the second: the inverse of `to_half`.

    Twin of :func:`posattn.reference.to_interleaved`.

    Examples:
        >>> to_interleaved(jnp.array([0, 2, 4, 1, 3]))
        Array([0, 1, 2, 3, 4], dtype=int32)
    """
    contract.columns(x)
    return x[..., jnp.argsort(to_half(jnp.arange(x.shape[-1])))]


def weight_to_half(
    weight: Float[Array, "*d_in d_out"], num_heads: int, rotary_dim: int | None = None
) -> Float[Array, "*d_in d_out"]:
    """Convert the projection of queries or keys of a model made for the layout `"interleaved"`.

    Twin of :func:`posattn.reference.weight_to_half`.

    Examples:
        >>> weight_to_half(jnp.arange(8.0), 2)
        Array([0., 2., 1., 3., 4., 6., 5., 7.], dtype=float32)
    """
    return _of_each_head(to_half, weight, num_heads, rotary_dim)


def weight_to_interleaved(
    weight: Float[Array, "*d_in d_out"], num_heads: int, rotary_dim: int | None = None
) -> Float[Array, "*d_in d_out"]:
    """Convert the projection of queries or keys of a model made for the layout `"half"`.

    Twin of :func:`posattn.reference.weight_to_interleaved`.

    Examples:
        >>> weight_to_interleaved(jnp.array([0.0, 2.0, 1.0, 3.0]), 1)
        Array([0., 1., 2., 3.], dtype=float32)
    """
    return _of_each_head(to_interleaved, weight, num_heads, rotary_dim)


def _of_each_head(convert, weight, num_heads, rotary_dim):
    """Convert the outputs of each head that turn."""
    contract.projection(weight)
    num_heads = contract.heads(num_heads, weight.shape[-1])
    heads = weight.reshape(*weight.shape[:-1], num_heads, -1)
    turning = contract.rotary_dim(rotary_dim, heads.shape[-1])
    parts = [convert(heads[..., :turning]), heads[..., turning:]]
    return jnp.concatenate(parts, axis=-1).reshape(weight.shape)
