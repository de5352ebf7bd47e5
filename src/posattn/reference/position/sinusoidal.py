"""Sinusoidal positional encoding: each position becomes points on circles, from fast to slow."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from jaxtyping import Float, Inexact, Real

from posattn import contract
from posattn.reference.attention.attention import dropout
from posattn.reference.cases import Cases, draw
from posattn.reference.position.card import SMALL, Card, input_layer
from posattn.reference.validated import validated

__all__ = ["PositionalEncoding", "frequencies", "shift_matrix", "sinusoidal_encoding"]


@validated
def frequencies(dim: int, *, base: float = 10000.0) -> Float[np.ndarray, " m"]:
    r"""The frequencies of a sinusoidal encoding, from fast to slow.

    .. math:: \omega_j = b^{-2j/d}, \qquad j = 0, \ldots, \lceil d/2 \rceil - 1.

    Args:
        dim: the width $d$, at least 1.
        base: $b$, positive.

    Returns:
        $\omega$ in radians per position, $\lceil d/2 \rceil$ numbers.

    Raises:
        TypeError: if `dim` is not an integer or `base` not a number.

    Examples:
        >>> frequencies(4)
        array([1.  , 0.01])
        >>> frequencies(5, base=32.0)
        array([1.    , 0.25  , 0.0625])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.5.
    """
    dim = contract.integer("dim", dim, least=1)
    base = contract.base(base)
    return np.array([base ** (-j / dim) for j in range(0, dim, 2)])


@validated
def sinusoidal_encoding(
    length_or_positions: int | Real[np.ndarray, "*batch n"],
    dim: int,
    *,
    base: float = 10000.0,
) -> Float[np.ndarray, "*batch n d"]:
    r"""One row of sines and cosines per position.

    .. math:: p_{i,2j} = \sin(i\,\omega_j), \qquad p_{i,2j+1} = \cos(i\,\omega_j), \qquad
        \omega_j = b^{-2j/d}.

    The encoding is a function of position and not a table with an end.
    Positions may be any real numbers.
    An odd width ends with a sine that has no cosine.

    Sines and cosines alternate, as in the paper.
    The code that the paper's authors published, tensor2tensor, puts all sines before all cosines
    instead, and much code followed it: that order is :func:`to_half` of this one.
    For a model trained from scratch the order makes no difference. For a checkpoint it matters.
    tensor2tensor also spreads the frequencies differently, so that the slowest is exactly $1/b$:
    $\omega_j = b^{-2j/(d-2)}$, which is this function with the base $b^{d/(d-2)}$.

    Args:
        length_or_positions: $n$, for the positions $0, \ldots, n - 1$; or the positions
            themselves, `(*batch, n)`.
        dim: the width $d$, at least 1.
        base: $b$, positive.

    Returns:
        `(n, d)` or `(*batch, n, d)`.

    Raises:
        TypeError: if an argument is not of its kind; float16 and bfloat16 positions are rejected,
            because they cannot hold 2049 and 257.

    Examples:
        >>> sinusoidal_encoding(2, 4).round(4)
        array([[0.    , 1.    , 0.    , 1.    ],
               [0.8415, 0.5403, 0.01  , 1.    ]])
        >>> sinusoidal_encoding(np.array([-1, 1]), 3).round(4)
        array([[-0.8415,  0.5403, -0.0022],
               [ 0.8415,  0.5403,  0.0022]])

        All sines first, then with the frequencies of tensor2tensor too:

        >>> from posattn.reference import to_half
        >>> to_half(sinusoidal_encoding(2, 4)).round(4)
        array([[0.    , 0.    , 1.    , 1.    ],
               [0.8415, 0.01  , 0.5403, 1.    ]])
        >>> to_half(sinusoidal_encoding(np.array([100]), 4, base=10000.0 ** (4 / 2))).round(4)
        array([[-0.5064,  0.01  ,  0.8623,  1.    ]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.5; the other order:
        :cite:t:`vaswani2018tensor2tensor` and its function `get_timing_signal_1d`.
    """
    length = contract.length_or_positions(length_or_positions)
    positions = length_or_positions if length is None else np.arange(length)
    angles = positions.astype(np.float64)[..., None] * frequencies(dim, base=base)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return pairs.reshape(*positions.shape, 2 * angles.shape[-1])[..., :dim]


@validated
def shift_matrix(
    offset: float, dim: int, *, base: float = 10000.0
) -> Float[np.ndarray, "d d"]:
    r"""The rotation that takes each encoding to the one `offset` positions later.

    .. math:: \mathbf{p}_{i+\delta} = \mathbf{R}_\delta^\top\,\mathbf{p}_i \text{ for every } i, \qquad
        \mathbf{R}_\delta^\top = \operatorname{diag}_j
        \begin{bmatrix} \cos\delta\omega_j & \sin\delta\omega_j \\
        -\sin\delta\omega_j & \cos\delta\omega_j \end{bmatrix}.

    A pair here is sine and cosine, in this order, so the matrix is the transpose of the rotation
    $\mathbf{R}_\delta$ of rotary embedding.

    Args:
        offset: $\delta$ in positions, any finite number.
        dim: the width $d$, even: a sine without its cosine cannot be shifted.
        base: $b$ of the frequencies $\omega_j = b^{-2j/d}$, positive.

    Returns:
        $\mathbf{R}_\delta^\top$, `(d, d)`. It is orthogonal and has determinant 1.

    Raises:
        ValueError: if `dim` is odd or not positive, or `base` not positive.

    Examples:
        >>> shift = shift_matrix(3, 6)
        >>> table = sinusoidal_encoding(10, 6)
        >>> bool(np.allclose(table[:-3] @ shift.T, table[3:]))
        True

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, section 3.5, state that such a map exists.
    """
    offset = contract.offset(offset)
    dim = contract.integer("dim", dim, least=1, even=True)
    angles = offset * frequencies(dim, base=base)
    shift = np.zeros((dim, dim))
    even, odd = np.arange(0, dim, 2), np.arange(1, dim, 2)
    shift[even, even] = shift[odd, odd] = np.cos(angles)
    shift[even, odd], shift[odd, even] = np.sin(angles), -np.sin(angles)
    return shift


@validated
@dataclass(frozen=True)
class PositionalEncoding:
    r"""Add to each token the sinusoidal encoding of its position.

    .. math:: \mathbf{Y} = \operatorname{dropout}(\mathbf{X} + \mathbf{P}).

    Args:
        dim: the width $d$, at least 1.
        dropout_rate: probability in [0, 1) of dropping an entry of the sum.
        base: $b$ of the frequencies, positive.

    Examples:
        >>> layer = PositionalEncoding(4)
        >>> layer(np.zeros((1, 2, 4))).round(4)
        array([[[0.    , 1.    , 0.    , 1.    ],
                [0.8415, 0.5403, 0.01  , 1.    ]]])

    References:
        :cite:t:`Vaswani.Shazeer.Parmar.ea.2017`, sections 3.5 and 5.4.
    """

    dim: int
    _: KW_ONLY
    dropout_rate: float = 0.0
    base: float = 10000.0

    def __post_init__(self):
        contract.integer("dim", self.dim, least=1)
        contract.dropout_rate(self.dropout_rate)
        contract.base(self.base)

    def __call__(
        self,
        x: Inexact[np.ndarray, "*batch n d"],
        *,
        positions: Real[np.ndarray, "*#batch n"] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Inexact[np.ndarray, "*batch n d"]:
        r"""Add the encoding to a sequence of any length.

        Args:
            x: $\mathbf{X}$, `(*batch, n, d)`.
            positions: where the tokens stand, `(n)` or `(*batch, n)`; $0, \ldots, n - 1$ if not
                given.
            rng: where dropout draws from; None means no dropout.

        Returns:
            `(*batch, n, d)`.
        """
        contract.sequence("x", x, self.dim)
        contract.positions_of(x.shape, positions)
        where = x.shape[-2] if positions is None else positions
        return dropout(
            x + sinusoidal_encoding(where, self.dim, base=self.base), self.dropout_rate, rng
        )


def frequencies_cases():
    """Plain frequencies, and those of a larger base."""
    for dim in (128, 8, 2, 1, 7):
        yield f"width {dim}", (dim,), {}
    yield "the base of Llama 3", (128,), {"base": 500000.0}


def sinusoidal_cases():
    """The encoding itself, sine and cosine in turn: one row per position."""
    yield "four columns", (4, 4), {}
    yield "columns 6 to 9 of 60 positions", (60, 32), {}
    yield "odd width, the last column is a sine", (5, 7), {}
    yield "width 1", (3, 1), {}
    yield "width 2", (3, 2), {}
    yield "no positions", (0, 4), {}
    yield "another base", (6, 8), {"base": 500.0}
    yield "the first base again", (6, 8), {}
    yield "positions given, in an order of their own", (np.array([4, 0, 2]), 8), {}
    yield "large positions, up to 2**20", (np.array([7, 3, 2**20]), 6), {}
    yield (
        "positions that bfloat16 and float16 cannot hold",
        (np.array([257, 2049, 4095]), 6),
        {},
    )
    yield "positions per example", (np.array([[0, 1, 2], [5, 6, 7]]), 4), {}
    yield "fractions and negative positions", (np.array([-2.5, 0.25, 1000.75]), 6), {}
    yield "beyond a table of 1000", (np.arange(998, 1003), 8), {}
    yield "large positions and an odd width", (np.array([7, 3, 2**20]), 5), {"base": 500.0}


def sinusoidal_concatenated_cases():
    """The encoding in the order of older code: all sines, then all cosines."""
    yield from sinusoidal_cases()


def positional_encoding_cases():
    """The layer: the encoding is added to tokens of shape `(*batch, n, d)`."""
    x, odd = draw(0, 3, 4, 6), draw(1, 2, 3, 5)
    yield "three examples of four tokens", (x,), {}
    yield "as many examples as tokens", (draw(2, 4, 4, 6),), {}
    yield "one example", (x[:1],), {}
    yield "no batch", (x[0],), {}
    yield "odd width", (odd,), {}
    yield "positions that do not begin at 0", (x, np.arange(7, 11)), {}
    yield "an order of their own", (x, np.array([4, 0, 3, 3])), {}
    yield "decoding: one token", (x[:1, :1], np.array([41])), {}
    yield "left padding: positions per example", (odd, np.array([[0, 0, 1], [0, 1, 2]])), {}
    yield "large positions, up to 2**20", (x, np.array([2**20, 1, 65537, 4095])), {}
    yield "another base", (x,), {"base": 500.0}
    yield "longer than before", (draw(3, 1, 9, 6),), {}


def concatenated(length_or_positions, dim, *, base=10000.0):
    """The encoding in the order of older code."""
    rows = sinusoidal_encoding(length_or_positions, dim, base=base)
    return np.concatenate([rows[..., ::2], rows[..., 1::2]], axis=-1)


def encode(x, positions=None, *, base=10000.0):
    """The layer without parameters, as one function."""
    return PositionalEncoding(x.shape[-1], base=base)(x, positions=positions)


CARDS = {
    "sinusoidal": Card(
        title="Sinusoidal encoding",
        year=2017,
        idea="Add sines and cosines of the position to the token, at frequencies from fast to slow.",
        formula=(
            r"\mathbf{x}_i \mapsto \mathbf{x}_i + \mathbf{p}_i, \quad (p_{i,2c},\, "
            r"p_{i,2c+1}) = (\sin i\,\omega_c,\, \cos i\,\omega_c)"
        ),
        symbols=(
            r"$\mathbf{p}_i$ is the encoding of position $i$, and $\omega_c$ is the frequency "
            "of its pair $c$."
        ),
        cites=("Vaswani.Shazeer.Parmar.ea.2017",),
        function="PositionalEncoding",
        shows="waves along the rows and the columns, not only along the diagonal",
        models=("Whisper (encoder)", "OPUS-MT"),
        page="position/sinusoidal",
        make=lambda n, z=SMALL: input_layer(PositionalEncoding(z.dim)),
    ),
}

PAPER = "Vaswani.Shazeer.Parmar.ea.2017, section 3.5"
CASES = {
    "sinusoidal": Cases(sinusoidal_encoding, sinusoidal_cases, PAPER),
    "sinusoidal_concatenated": Cases(
        concatenated,
        sinusoidal_concatenated_cases,
        PAPER,
        name="to_half(sinusoidal_encoding(...))",
    ),
    "positional_encoding": Cases(
        encode, positional_encoding_cases, PAPER, name="PositionalEncoding(dim, base=base)"
    ),
    "frequencies": Cases(frequencies, frequencies_cases, PAPER, relative=True, exact=True),
}
