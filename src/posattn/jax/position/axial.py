"""Rotation by several coordinates: images, video, and text between them."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float, Integer, Real

from posattn import contract
from posattn.jax.position.rotary import rotate_by
from posattn.jax.position.sinusoidal import cos_sin
from posattn.jax.position.sinusoidal import frequencies as sinusoidal_frequencies
from posattn.jax.trees import register
from posattn.jax.validated import validated

__all__ = [
    "MixedRotary",
    "RotaryAxes",
    "axial_frequencies",
    "grid_coordinates",
    "rotate_axes",
]


@validated
def rotate_axes(
    x: Float[Array, "*batch n d"],
    coordinates: Real[Array | np.ndarray, "*#batch n c"],
    frequencies: Float[Array | np.ndarray, "c *#h m"],
    *,
    layout: str = "interleaved",
    attention_factor: float = 1.0,
) -> Float[Array, "*batch n d"]:
    """Rotate each pair of entries of a token by an angle that is linear in the token's coordinates.

    Twin of :func:`posattn.reference.rotate_axes`, as exact as :func:`rotate`.

    Args:
        x: the queries or keys of each head, `(*batch, n, d)`.
        coordinates: p, any real numbers: `(n, c)`, or with batch axes of which each is that of
            `x` or 1.
        frequencies: omega in radians per step, `(c, m)`, or `(c, h, m)` with a set for each of
            the heads of `x`, `(*batch, h, n, d)`; 2m <= d, and the rest of a token passes
            through.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see `rotate`.
        attention_factor: alpha, positive, on the entries that rotate: it multiplies their part of the
            scores by alpha**2. A model whose frequencies YaRN has slowed needs it.

    Returns:
        `(*batch, n, d)`.

    Examples:
        >>> x = jnp.array([[1.0, 0.0, 1.0, 0.0]])
        >>> rotate_axes(x, jnp.array([[0, 1]]), jnp.eye(2)).round(4)
        Array([[1.    , 0.    , 0.5403, 0.8415]], dtype=float32)
    """
    contract.sequence("x", x)
    contract.axis_frequencies(frequencies, x.shape)
    contract.coordinates(coordinates, x.shape, frequencies.shape[0])
    factor = contract.positive("attention_factor", attention_factor)
    contract.layout(layout)
    places = [coordinates[..., k, None] for k in range(len(frequencies))]
    wide = jnp.promote_types(x.dtype, jnp.float32)
    cos, sin = cos_sin(places, [omega[..., None, :] for omega in frequencies], wide)
    return rotate_by(x, factor * cos, factor * sin, layout)


@validated
@register
@dataclass(frozen=True)
class RotaryAxes:
    """`rotate_axes` with its frequencies, as a value that a layer takes and a checkpoint keeps.

    Twin of :class:`posattn.reference.RotaryAxes`; a pytree without leaves.

    Args:
        frequencies: omega in radians per step, `(c, m)`: an array, or a row of numbers for each axis;
            kept as Python numbers.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see `rotate`.
        attention_factor: positive, on the entries that rotate.

    Examples:
        >>> rotary = RotaryAxes([[1.0, 0.0], [0.0, 1.0]], layout="half")
        >>> rotary == RotaryAxes(np.eye(2), layout="half")
        True
        >>> rotary(jnp.ones((3, 4)), jnp.zeros((3, 2))).shape
        (3, 4)
    """

    frequencies: Float[Array | np.ndarray, "c m"] | Sequence[Sequence[float]] = field(
        metadata={"static": True}
    )
    _: KW_ONLY
    layout: str = field(default="interleaved", metadata={"static": True})
    attention_factor: float = field(default=1.0, metadata={"static": True})

    def __post_init__(self):
        for name, value in contract.rotary_axes(**vars(self)).items():
            object.__setattr__(self, name, value)

    def __call__(
        self,
        x: Float[Array, "*batch n d"],
        coordinates: Real[Array | np.ndarray, "*#batch n c"],
    ) -> Float[Array, "*batch n d"]:
        """Rotate the pairs of `x`.

        Twin of calling :class:`posattn.reference.RotaryAxes`.

        Args:
            x: the queries or keys of each head, `(*batch, n, d)`.
            coordinates: where the tokens stand on each axis, any real numbers: `(n, c)`, or with batch
                axes of which each is that of `x` or 1.

        Returns:
            `(*batch, n, d)`.
        """
        return rotate_axes(
            x,
            coordinates,
            np.array(self.frequencies),
            layout=self.layout,
            attention_factor=self.attention_factor,
        )


@validated
def axial_frequencies(
    dim: int, num_axes: int = 2, *, base: float = 100.0
) -> Float[np.ndarray, "c m"]:
    """Give each axis an equal share of the pairs, from fast to slow.

    Twin of :func:`posattn.reference.axial_frequencies`; a NumPy array in float64.

    Args:
        dim: the number of entries that rotate, d, a multiple of 2c.
        num_axes: c, at least 1.
        base: b, positive.

    Returns:
        omega in radians per step, `(c, d / 2)`.

    Examples:
        >>> axial_frequencies(8)
        array([[1. , 0.1, 0. , 0. ],
               [0. , 0. , 1. , 0.1]])
    """
    num_axes = contract.integer("num_axes", num_axes, least=1)
    dim = contract.multiple("dim", dim, 2 * num_axes)
    return np.kron(np.eye(num_axes), sinusoidal_frequencies(dim // num_axes, base=base))


@validated
def grid_coordinates(height: int, width: int) -> Integer[Array, "n c"]:
    """Row and column of each cell of a grid, row by row.

    Twin of :func:`posattn.reference.grid_coordinates`.

    Args:
        height: the number of rows, at least 1.
        width: the number of columns, at least 1.

    Returns:
        `(height * width, 2)`, integers.

    Examples:
        >>> grid_coordinates(1, 2)
        Array([[0, 0],
               [0, 1]], dtype=int32)
    """
    height, width = contract.sizes(height=height, width=width)
    return jnp.indices((height, width)).reshape(2, -1).T


@validated
@register
@dataclass(frozen=True, eq=False)
class MixedRotary:
    """Rotate queries and keys by row and column, with learned frequencies for both in every pair.

    Twin of :class:`posattn.reference.MixedRotary`; a pytree.
    In the 32-bit mode angles are products of learned frequencies in float32, and off by up to 6e-8
    of themselves, which is nothing for the coordinates of an image.

    Args:
        frequencies: omega in radians per row and per column, `(2, H, m)`.
        width: w, the number of columns, at least 1.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see `rotate`.

    Examples:
        >>> layer = MixedRotary.init(jax.random.key(0), 8, 2, 14)
        >>> layer(jnp.ones((3, 2, 196, 8))).shape
        (3, 2, 196, 8)
    """

    frequencies: Float[Array, "c h m"]
    width: int = field(metadata={"static": True})
    layout: str = field(default="interleaved", metadata={"static": True})

    def __post_init__(self):
        contract.integer("width", self.width, least=1)
        contract.layout(self.layout)

    @classmethod
    def init(
        cls,
        rng: Array,
        head_dim: int,
        num_heads: int,
        width: int,
        *,
        base: float = 10.0,
        layout: str = "interleaved",
        dtype: DTypeLike | None = None,
    ) -> "MixedRotary":
        """Draw a direction for each head, and start its pairs along it and across.

        Twin of :meth:`posattn.reference.MixedRotary.init`; `rng` is a JAX key.

        Args:
            rng: a JAX key, where the parameters are drawn from.
            head_dim: the width of a head d_h, a multiple of 4.
            num_heads: the number of heads H, at least 1.
            width: the number of columns of the grid, at least 1.
            base: b, positive.
            layout: `"interleaved"` or `"half"`.
            dtype: of the parameters; JAX's default one if not given.
        """
        head_dim = contract.multiple("head_dim", head_dim, 4)
        num_heads = contract.integer("num_heads", num_heads, least=1)
        omega = sinusoidal_frequencies(head_dim // 2, base=base)
        direction = jax.random.uniform(rng, (num_heads, 1), maxval=math.tau)
        cos, sin = jnp.cos(direction), jnp.sin(direction)
        rotations = jnp.block([[cos * omega, -sin * omega], [sin * omega, cos * omega]])
        dtype = jnp.result_type(float if dtype is None else dtype)
        return cls(
            rotations.reshape(2, num_heads, head_dim // 2).astype(dtype), width, layout
        )

    def __call__(
        self,
        x: Float[Array, "*batch h n d"],
        positions: Integer[Array | np.ndarray, "*#batch_and_heads n"] | None = None,
    ) -> Float[Array, "*batch h n d"]:
        """Rotate the heads of a sequence of cells.

        Twin of calling :class:`posattn.reference.MixedRotary`.

        Args:
            x: the queries or keys of each head, `(*batch, H, n, d_h)`.
            positions: p, the numbers of the cells, row by row: integers, `(n)`, or with batch
                axes of which each is that of `x` or 1; 0, ..., n - 1 if not given.

        Returns:
            `(*batch, H, n, d_h)`.
        """
        contract.head_sequence("x", x)
        contract.token_positions(positions, x.shape, integers=True)
        where = np.arange(x.shape[-2]) if positions is None else positions
        numpy = jnp if isinstance(where, Array) else np
        coordinates = numpy.stack([where // self.width, where % self.width], axis=-1)
        wide = jnp.promote_types(self.frequencies.dtype, jnp.float32)
        return rotate_axes(
            x, coordinates, self.frequencies.astype(wide), layout=self.layout
        )
