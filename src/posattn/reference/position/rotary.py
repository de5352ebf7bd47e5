"""Rotary position embedding: queries and keys rotate with their position."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float, Inexact, Real, Shaped

from posattn import contract
from posattn.reference.position import sinusoidal
from posattn.reference.position.card import Scheme
from posattn.reference.validated import validated

__all__ = [
    "Rotary",
    "rotate",
    "to_half",
    "to_interleaved",
    "weight_to_half",
    "weight_to_interleaved",
]


@validated
def rotate(
    x: Inexact[np.ndarray, "*batch n d"],
    positions: Real[np.ndarray, "*#batch n"] | None = None,
    *,
    frequencies: Inexact[np.ndarray, " m"] | None = None,
    base: float = 10000.0,
    layout: Literal["interleaved", "half"] = "interleaved",
    attention_factor: float = 1.0,
) -> Inexact[np.ndarray, "*batch n d"]:
    r"""Rotate each pair of entries of a token by an angle that grows with the token's position.

    Tokens are the axis before the last, and heads stand before them: of `(b, n, h, d)` the heads would count
    as positions. Fewer than d/2 `frequencies` rotate the first entries only.

    .. math:: \begin{bmatrix} u \\ v \end{bmatrix} \mapsto
        c \begin{bmatrix} \cos p\,\omega_j & -\sin p\,\omega_j \\
        \sin p\,\omega_j & \cos p\,\omega_j \end{bmatrix}
        \begin{bmatrix} u \\ v \end{bmatrix}
        \quad\text{for pair } j = 0, \ldots, m - 1 \text{ of a token at position } p.

    It acts on queries and keys, inside each head: `MultiHeadAttention(rotate=rotate)`.
    Each rotates by its own position, so the angle between them changes by the difference. Scores therefore
    depend on positions only through the offset, and keys can be cached once they are rotated.
    With $c = 1$ vectors keep their lengths, and negative positions rotate them back:
    `rotate(rotate(x, p), -p)` is `x`.
    DeepSeek-V4 uses one vector as key and value, so its values are rotated too. It rotates the output of
    each query back by the query's position, and then the output depends only on offsets, as the scores do.
    Scores do not fall steadily with the distance. Beyond the trained length the slow pairs reach angles
    that training never showed: see :func:`position_interpolation`, :func:`yarn` and the other ways.

    Implementations differ in which entries make a pair.
    `"interleaved"` joins neighbors, $(x_{2j}, x_{2j+1})$: the paper, GPT-J, Meta's Llama.
    `"half"` joins $(x_j, x_{j+m})$: GPT-NeoX, the Llama of Hugging Face, and most models since.
    A model computes nonsense in the other layout. :func:`weight_to_half` and
    :func:`weight_to_interleaved` convert it exactly.

    With $m < d/2$ frequencies the rotation is partial: it acts on the first $2m$ entries (whose
    halves the layout `"half"` joins), and the others pass through.

    An angle is one product in float64 of a rounded frequency, off by up to $2.2 \cdot
    10^{-16}\,p\,\omega_j$: 2.2e-10 after a million tokens.

    Args:
        x: the queries or keys of each head, `(*batch, n, d)`.
        positions: $p$, any real numbers: `(n)`, or with batch axes of which each is that of `x`
            or 1; $0, \ldots, n - 1$ if not given.
        frequencies: $\omega$ in radians per position, `(m)`, with $2m \le d$. If not given,
            $\omega_j = b^{-2j/d}$ with $m = d/2$, the paper's.
        base: $b$, positive; unused where `frequencies` are given.
        layout: `"interleaved"` or `"half"`.
        attention_factor: $c$, positive, on the entries that rotate: it multiplies their part of the
            scores by $c^2$. YaRN and LongRoPE need it.

    Returns:
        `(*batch, n, d)`.

    Raises:
        TypeError: if an argument is not of its kind; positions and frequencies in float16 or
            bfloat16 are rejected, because their angles are off by radians within a few thousand tokens.
        ValueError: if shapes do not fit, a number lies outside its range, or the width is odd and
            no frequencies say which part rotates.

    Examples:
        >>> x = np.array([[1.0, 0.0, 1.0, 0.0]] * 2)
        >>> rotate(x).round(4)
        array([[1.    , 0.    , 1.    , 0.    ],
               [0.5403, 0.8415, 1.    , 0.01  ]])
        >>> rotate(to_half(x), layout="half").round(4)
        array([[1.    , 1.    , 0.    , 0.    ],
               [0.5403, 1.    , 0.8415, 0.01  ]])
        >>> rotate(x, np.array([3, 7]), frequencies=np.array([np.pi / 2])).round(4)
        array([[-0., -1.,  1.,  0.],
               [-0., -1.,  1.,  0.]])

    References:
        :cite:t:`su2024roformer`, sections 3.2.2 and 3.4.2; partial rotation and the layouts:
        :cite:t:`biderman2021rotary`, :cite:t:`wang2021gptj` and :cite:t:`black2022gptneox`.
    """
    contract.sequence("x", x)
    contract.token_positions(positions, x.shape)
    contract.pair_frequencies(frequencies, x.shape)
    factor = contract.positive("attention_factor", attention_factor)
    if frequencies is None:
        frequencies = sinusoidal.frequencies(x.shape[-1], base=base)
    if positions is None:
        positions = np.arange(x.shape[-2])
    angles = positions.astype(np.float64)[..., None] * frequencies
    return rotate_by(x, factor * np.cos(angles), factor * np.sin(angles), layout)


@validated
@dataclass(frozen=True, kw_only=True)
class Rotary:
    r"""`rotate` with its options, as a value that a layer takes and a checkpoint keeps.

    Two of them are equal if they were made equal, and they can be hashed, pickled, copied and printed.

    Args:
        rotary_dim: how many entries of a head rotate, a positive even number: twice the number of
            frequencies if they are given, otherwise all if not given.
        base: $b$ of $\omega_j = b^{-2j/m}$ for `rotary_dim` $m$, positive; unused where
            `frequencies` are given.
        layout: `"interleaved"` or `"half"`.
        frequencies: $\omega$ in radians per position, numbers or an array; kept as Python numbers.
        attention_factor: $c$, positive, on the entries that rotate.

    Raises:
        ValueError: if a number lies outside its range, or `frequencies` are not half of `rotary_dim`.

    Examples:
        >>> rotary = Rotary(base=500000.0, layout="half")
        >>> rotary == Rotary(base=500000.0, layout="half")
        True
        >>> rotary(np.ones((2, 4))).shape
        (2, 4)
        >>> Rotary(rotary_dim=2)(np.array([[1.0, 0.0, 7.0]]), np.array([1])).round(4)
        array([[0.5403, 0.8415, 7.    ]])
    """

    rotary_dim: int | None = None
    base: float = 10000.0
    layout: Literal["interleaved", "half"] = "interleaved"
    frequencies: Sequence[float] | Float[np.ndarray, " m"] | None = None
    attention_factor: float = 1.0

    def __post_init__(self):
        for name, value in contract.rotary(**vars(self)).items():
            object.__setattr__(self, name, value)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        positions: Real[np.ndarray, "*#batch n"] | None = None,
    ) -> Inexact[np.ndarray, "*batch n d"]:
        r"""Rotate the pairs of `x`.

        Args:
            x: the queries or keys of each head, `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or with batch axes, of which each is that of
                `x` or 1; $0, \ldots, n - 1$ if not given. Negative ones rotate `x` back.

        Returns:
            `(*batch, n, d)`.
        """
        frequencies = self.frequencies
        if frequencies is None and self.rotary_dim is not None:
            frequencies = sinusoidal.frequencies(self.rotary_dim, base=self.base)
        return rotate(
            x,
            positions,
            frequencies=None if frequencies is None else np.array(frequencies),
            base=self.base,
            layout=self.layout,
            attention_factor=self.attention_factor,
        )


def rotate_by(x, cos, sin, layout):
    """Multiply the first pairs of `x` by rotations, as many as there are, and pass the rest through."""
    contract.layout(layout)
    m = cos.shape[-1]
    axis, pairs = (-2, (2, m)) if layout == "half" else (-1, (m, 2))
    a, b = np.moveaxis(x[..., : 2 * m].reshape(*x.shape[:-1], *pairs), axis, 0)
    rotated = np.stack([a * cos - b * sin, a * sin + b * cos], axis=axis)
    return np.concatenate([rotated.reshape(*x.shape[:-1], 2 * m), x[..., 2 * m :]], axis=-1)


@validated
def to_half(x: Shaped[np.ndarray, "*batch d"]) -> Shaped[np.ndarray, "*batch d"]:
    r"""Put the even columns before the odd ones: from the layout `"interleaved"` to `"half"`.

    .. math:: (x_0, x_1, x_2, x_3, \ldots) \mapsto (x_0, x_2, \ldots, x_1, x_3, \ldots).

    It commutes with the rotation: `rotate(to_half(x), layout="half")` is `to_half(rotate(x))`.
    Convert both queries and keys. Scores then stay the same, because permuting both changes no inner
    product.
    Where the rotation is partial, convert the entries that rotate, `x[..., :2 * m]`.

    It also leads from the paper's sinusoidal encoding to the concatenated order of older code:
    see :func:`sinusoidal_encoding`.

    Args:
        x: `(*batch, d)`, of any dtype; $d$ may be odd.

    Returns:
        The same entries in another order.

    Examples:
        >>> to_half(np.arange(5))
        array([0, 2, 4, 1, 3])

    References:
        The two layouts: :cite:t:`biderman2021rotary`.
    """
    contract.columns(x)
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


@validated
def to_interleaved(x: Shaped[np.ndarray, "*batch d"]) -> Shaped[np.ndarray, "*batch d"]:
    r"""Alternate the columns of the first half with those of the second: the inverse of `to_half`.

    Args:
        x: `(*batch, d)`, of any dtype; if $d$ is odd, the first half is the larger one.

    Returns:
        The same entries in another order.

    Examples:
        >>> to_interleaved(np.array([0, 2, 4, 1, 3]))
        array([0, 1, 2, 3, 4])
    """
    contract.columns(x)
    return x[..., np.argsort(to_half(np.arange(x.shape[-1])))]


@validated
def weight_to_half(
    weight: Inexact[np.ndarray, "*d_in d_out"],
    num_heads: int,
    rotary_dim: int | None = None,
) -> Inexact[np.ndarray, "*d_in d_out"]:
    r"""Convert the projection of queries or keys of a model made for the layout `"interleaved"`.

    The outputs of each head are reordered as in :func:`to_half`, so that
    `split_heads(x @ weight_to_half(weight, H), H)` is `to_half(split_heads(x @ weight, H))`.
    Convert the weights and offsets of both the queries and the keys, and leave those of the values
    and the output as they are. Then `layout="half"` gives the scores that `"interleaved"` gave.
    This is what turns Meta's Llama into the Llama of Hugging Face.

    Args:
        weight: `(d_in, d_out)` for `x @ weight`, or an offset, `(d_out)`.
        num_heads: the number of heads in `weight`, which divides $d_{out}$; where queries share
            keys, the keys have fewer.
        rotary_dim: how many entries of each head rotate, even; all if not given.

    Returns:
        An array of the same shape and the same numbers.

    Raises:
        ValueError: if `weight` has not 1 or 2 axes, `num_heads` does not divide the last one, or
            `rotary_dim` is odd, not positive or larger than a head.

    Examples:
        >>> weight_to_half(np.arange(8.0), 2)
        array([0., 2., 1., 3., 4., 6., 5., 7.])
        >>> weight_to_half(np.arange(6.0), 1, rotary_dim=4)
        array([0., 2., 1., 3., 4., 5.])

    References:
        The two layouts: :cite:t:`biderman2021rotary`.
    """
    return _of_each_head(to_half, weight, num_heads, rotary_dim)


@validated
def weight_to_interleaved(
    weight: Inexact[np.ndarray, "*d_in d_out"],
    num_heads: int,
    rotary_dim: int | None = None,
) -> Inexact[np.ndarray, "*d_in d_out"]:
    r"""Convert the projection of queries or keys of a model made for the layout `"half"`.

    The inverse of :func:`weight_to_half`.

    Args:
        weight: `(d_in, d_out)` for `x @ weight`, or an offset, `(d_out)`.
        num_heads: the number of heads in `weight`, which divides $d_{out}$.
        rotary_dim: how many entries of each head rotate, even; all if not given.

    Returns:
        An array of the same shape and the same numbers.

    Raises:
        ValueError: as :func:`weight_to_half`.

    Examples:
        >>> weight_to_interleaved(np.array([0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]), 2)
        array([0., 1., 2., 3., 4., 5., 6., 7.])
    """
    return _of_each_head(to_interleaved, weight, num_heads, rotary_dim)


def _of_each_head(convert, weight, num_heads, rotary_dim):
    """Convert the outputs of each head that rotate."""
    contract.projection(weight)
    num_heads = contract.heads(num_heads, weight.shape[-1])
    *rows, width = weight.shape
    heads = weight.reshape(*rows, num_heads, width // num_heads)
    rotation = contract.rotary_dim(rotary_dim, heads.shape[-1])
    parts = [convert(heads[..., :rotation]), heads[..., rotation:]]
    return np.concatenate(parts, axis=-1).reshape(weight.shape)


def rotation(frequencies, attention_factor=1.0):
    """The scheme that rotates by these frequencies."""
    return Scheme(
        rotate=partial(rotate, frequencies=frequencies, attention_factor=attention_factor)
    )
