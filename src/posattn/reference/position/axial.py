"""Rotation by several coordinates: images, video, and text between them."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float, Inexact, Integer, Real

from posattn import contract
from posattn.reference.position.card import Scheme
from posattn.reference.position.rotary import rotate_by
from posattn.reference.position.sinusoidal import frequencies as sinusoidal_frequencies
from posattn.reference.validated import validated

__all__ = [
    "MixedRotary",
    "RotaryAxes",
    "axial_frequencies",
    "grid_coordinates",
    "rotate_axes",
]


@validated
def rotate_axes(
    x: Inexact[np.ndarray, "*batch n d"],
    coordinates: Real[np.ndarray, "*#batch n c"],
    frequencies: Inexact[np.ndarray, "c *#h m"],
    *,
    layout: str = "interleaved",
    attention_factor: float = 1.0,
) -> Inexact[np.ndarray, "*batch n d"]:
    r"""Rotate each pair of entries of a token by an angle that is linear in the token's coordinates.

    .. math:: \begin{bmatrix} u \\ v \end{bmatrix} \mapsto
        \alpha \begin{bmatrix} \cos \varphi_j & -\sin \varphi_j \\
        \sin \varphi_j & \cos \varphi_j \end{bmatrix}
        \begin{bmatrix} u \\ v \end{bmatrix}, \qquad
        \varphi_j = \sum_{k=0}^{c-1} p_k\,\omega_{k,j}, \qquad j = 0, \ldots, m - 1.

    It acts on queries and keys, and their scores depend on the coordinates only through the
    differences between them. :func:`rotate` is the case $c = 1$.
    The frequencies decide which axes a pair sees: one axis per pair in :func:`axial_frequencies` and
    :func:`mrope_frequencies`, all of them in :class:`MixedRotary`.

    A layer takes it as a value, :class:`RotaryAxes`.
    A token without a place, such as a class token, gets coordinates of zero and does not rotate.

    Args:
        x: the queries or keys of each head, `(*batch, n, d)`.
        coordinates: $p$, any real numbers: `(n, c)`, or with batch axes of which each is that of
            `x` or 1.
        frequencies: $\omega$ in radians per step, `(c, m)`, or `(c, h, m)` with a set for each of
            the heads of `x`, `(*batch, h, n, d)`; $2m \le d$, and the rest of a token passes
            through.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see :func:`rotate`.
        attention_factor: $\alpha$, positive, on the entries that rotate: it multiplies their part of the
            scores by $\alpha^2$. A model whose frequencies YaRN has slowed needs it.

    Returns:
        `(*batch, n, d)`.

    Raises:
        TypeError: if an argument is not of its kind, or coordinates or frequencies are in half
            precision.

    Examples:
        >>> frequencies = np.array([[np.pi / 2, 0.0], [0.0, np.pi]])
        >>> x = np.array([[1.0, 0.0, 1.0, 0.0]] * 2)
        >>> rotate_axes(x, np.array([[1, 0], [2, 1]]), frequencies).round(4)
        array([[ 0.,  1.,  1.,  0.],
               [-1.,  0., -1.,  0.]])

    References:
        :cite:t:`heo2024rotary`, section 3.2.
    """
    contract.sequence("x", x)
    contract.axis_frequencies(frequencies, x.shape)
    contract.coordinates(coordinates, x.shape, frequencies.shape[0])
    factor = contract.positive("attention_factor", attention_factor)
    places = np.moveaxis(coordinates.astype(np.float64), -1, 0)
    angles = sum(
        p[..., None] * omega[..., None, :]
        for p, omega in zip(places, frequencies, strict=True)
    )
    return rotate_by(x, factor * np.cos(angles), factor * np.sin(angles), layout)


@validated
@dataclass(frozen=True)
class RotaryAxes:
    r"""`rotate_axes` with its frequencies, as a value that a layer takes and a checkpoint keeps.

    Two of them are equal if they were made equal, and they can be hashed, pickled, copied and printed.
    A layer passes it the coordinates of the tokens in place of their positions:

    `MultiHeadAttention(rotate=RotaryAxes(frequencies, layout="half"))(x, coordinates=coordinates)`

    Make the frequencies with :func:`axial_frequencies` or :func:`mrope_frequencies`.
    Those of a longer context are spread over the axes by
    `(mrope_frequencies(d, sections) > 0) * yarn(d, factor=4.0, trained_length=32768)[0]`.
    For frequencies that are learned, see :class:`MixedRotary`.

    Args:
        frequencies: $\omega$ in radians per step, `(c, m)`: an array, or a row of numbers for each axis;
            kept as Python numbers.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see :func:`rotate`.
        attention_factor: positive, on the entries that rotate.

    Raises:
        ValueError: if rows differ in length, or a number lies outside its range.

    Examples:
        >>> rotary = RotaryAxes(np.pi / 2 * np.eye(2))
        >>> rotary == RotaryAxes(np.pi / 2 * np.eye(2))
        True
        >>> rotary(np.array([[1.0, 0.0, 1.0, 0.0]]), np.array([[1, 2]])).round(4)
        array([[ 0.,  1., -1.,  0.]])
    """

    frequencies: Inexact[np.ndarray, "c m"] | Sequence[Sequence[float]]
    _: KW_ONLY
    layout: str = "interleaved"
    attention_factor: float = 1.0

    def __post_init__(self):
        for name, value in contract.rotary_axes(**vars(self)).items():
            object.__setattr__(self, name, value)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        coordinates: Real[np.ndarray, "*#batch n c"],
    ) -> Inexact[np.ndarray, "*batch n d"]:
        """Rotate the pairs of `x`.

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
    r"""Give each axis an equal share of the pairs, from fast to slow.

    .. math:: \omega_{k,\,k d / 2c + j} = b^{-2cj/d}, \qquad j = 0, \ldots, d / 2c - 1,
        \qquad\text{and } 0 \text{ elsewhere}, \qquad k = 0, \ldots, c - 1.

    The first $d/2c$ pairs rotate with the first coordinate, the next with the second, and so on.
    A pair sees one axis, so no pair has a frequency along a diagonal of the image.
    :class:`MixedRotary` has such pairs.

    This is RoPE-Axial of the authors' code.
    Their first coordinate is the column and ours (:func:`grid_coordinates`) is the row. For their
    checkpoints, reverse the last axis of the coordinates.
    The paper's formula lets the axes alternate from pair to pair instead of giving each a block.
    The base is small because the sides of an image are short.

    Args:
        dim: the number of entries that rotate, $d$, a multiple of $2c$.
        num_axes: $c$, at least 1.
        base: $b$, positive.

    Returns:
        $\omega$ in radians per step, `(c, d / 2)`.

    Raises:
        ValueError: if `dim` is no multiple of `2 * num_axes`, or a number is not positive.

    Examples:
        >>> axial_frequencies(8)
        array([[1. , 0.1, 0. , 0. ],
               [0. , 0. , 1. , 0.1]])

    References:
        :cite:t:`heo2024rotary`, section 3.2; function `compute_axial_cis` of `naver-ai/rope-vit`.
    """
    num_axes = contract.integer("num_axes", num_axes, least=1)
    dim = contract.multiple("dim", dim, 2 * num_axes)
    return np.kron(np.eye(num_axes), sinusoidal_frequencies(dim // num_axes, base=base))


@validated
def grid_coordinates(height: int, width: int) -> Integer[np.ndarray, "n c"]:
    r"""Row and column of each cell of a grid, row by row.

    Cell $p$ of a grid with $w$ columns is at $(\lfloor p / w \rfloor,\; p \bmod w)$.

    Args:
        height: the number of rows, at least 1.
        width: the number of columns, at least 1.

    Returns:
        `(height * width, 2)`, integers.

    Examples:
        >>> grid_coordinates(2, 2)
        array([[0, 0],
               [0, 1],
               [1, 0],
               [1, 1]])
    """
    height, width = contract.sizes(height=height, width=width)
    return np.indices((height, width)).reshape(2, -1).T


@validated
@dataclass(frozen=True, eq=False)
class MixedRotary:
    r"""Rotate queries and keys by row and column, with learned frequencies for both in every pair.

    .. math:: \varphi_{h,j} = p_0\,\omega_{0,h,j} + p_1\,\omega_{1,h,j}, \qquad
        (p_0, p_1) = (\lfloor p / w \rfloor,\; p \bmod w).

    Each pair of each head has its own direction in the image, and a frequency along it.
    It acts on the heads of a grid that is read row by row: `MultiHeadAttention(rotate=layer)`.
    The frequencies do not depend on the size of the image. For images of another width, make a layer
    with the same frequencies and another `width`.
    For other coordinates, or for tokens without a place, call :func:`rotate_axes` with `frequencies`.

    Make a layer with `MixedRotary.init(rng, head_dim, num_heads, width)`, or from frequencies that
    exist.

    Args:
        frequencies: $\omega$ in radians per row and per column, `(2, H, m)`.
        width: $w$, the number of columns, at least 1.
        layout: which entries make a pair, `"interleaved"` or `"half"`: see :func:`rotate`.

    Examples:
        >>> layer = MixedRotary(np.array([[[np.pi / 2]], [[np.pi]]]), 2)
        >>> layer(np.array([[[1.0, 0.0]] * 4])).round(4)
        array([[[ 1.,  0.],
                [-1.,  0.],
                [ 0.,  1.],
                [-0., -1.]]])

    References:
        :cite:t:`heo2024rotary`, section 3.2: RoPE-Mixed.
    """

    frequencies: Inexact[np.ndarray, "c h m"]
    width: int
    layout: str = "interleaved"

    def __post_init__(self):
        contract.integer("width", self.width, least=1)
        contract.layout(self.layout)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        head_dim: int,
        num_heads: int,
        width: int,
        *,
        base: float = 10.0,
        layout: str = "interleaved",
    ) -> "MixedRotary":
        r"""Draw a direction for each head, and start its pairs along it and across.

        .. math:: \omega_{\cdot,h,j} = b^{-4j/d_h} (\cos\theta_h, \sin\theta_h), \qquad
            \omega_{\cdot,h,j+d_h/4} = b^{-4j/d_h} (-\sin\theta_h, \cos\theta_h), \qquad
            j = 0, \ldots, d_h / 4 - 1,

        with $\theta_h$ uniform in $[0, 2\pi)$, as in the authors' `init_random_2d_freqs`.

        Args:
            rng: where the directions are drawn from.
            head_dim: the width of a head $d_h$, a multiple of 4.
            num_heads: the number of heads $H$, at least 1.
            width: the number of columns of the grid, at least 1.
            base: $b$, positive.
            layout: `"interleaved"` or `"half"`.

        Returns:
            The layer, with frequencies `(2, H, d_h / 2)`.

        Raises:
            ValueError: if `head_dim` is no multiple of 4, or a number is not positive.
        """
        head_dim = contract.multiple("head_dim", head_dim, 4)
        num_heads = contract.integer("num_heads", num_heads, least=1)
        omega = sinusoidal_frequencies(head_dim // 2, base=base)
        direction = rng.uniform(0, 2 * np.pi, (num_heads, 1))
        cos, sin = np.cos(direction), np.sin(direction)
        rotations = np.block([[cos * omega, -sin * omega], [sin * omega, cos * omega]])
        return cls(rotations.reshape(2, num_heads, head_dim // 2), width, layout)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch h n d"],
        positions: Integer[np.ndarray, "*#batch_and_heads n"] | None = None,
    ) -> Inexact[np.ndarray, "*batch h n d"]:
        r"""Rotate the heads of a sequence of cells.

        Args:
            x: the queries or keys of each head, `(*batch, H, n, d_h)`.
            positions: $p$, the numbers of the cells, row by row: integers, `(n)`, or with batch
                axes of which each is that of `x` or 1; $0, \ldots, n - 1$ if not given.

        Returns:
            `(*batch, H, n, d_h)`.
        """
        contract.head_sequence("x", x)
        contract.token_positions(positions, x.shape, integers=True)
        positions = np.arange(x.shape[-2]) if positions is None else positions
        coordinates = np.stack([positions // self.width, positions % self.width], axis=-1)
        return rotate_axes(x, coordinates, self.frequencies, layout=self.layout)


def rotation_on_grid(frequencies, side):
    """The scheme that rotates by row and column, and by time where there are frequencies for it too."""
    axes = len(frequencies)
    return Scheme(
        rotate=lambda x, p: rotate_axes(
            x, np.stack([p // side] * (axes - 1) + [p % side], axis=-1), frequencies
        )
    )
