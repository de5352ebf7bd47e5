"""Cases of the encodings that are added to the input."""

import numpy as np

from posattn import reference
from posattn.conformance.cases import Scheme, draw
from posattn.reference.position.rotary import to_half

FAR = np.array([7, 3, 2**20])
FINE = np.array([257, 2049, 4095])
PARTS = np.array([-2.5, 0.25, 1000.75])
EACH = np.array([[0, 1, 2], [5, 6, 7]])


def sinusoidal():
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
    yield "large positions, up to 2**20", (FAR, 6), {}
    yield "positions that bfloat16 and float16 cannot hold", (FINE, 6), {}
    yield "positions per example", (EACH, 4), {}
    yield "fractions and negative positions", (PARTS, 6), {}
    yield "beyond a table of 1000", (np.arange(998, 1003), 8), {}
    yield "large positions and an odd width", (FAR, 5), {"base": 500.0}


def concatenated(length_or_positions, dim, *, base=10000.0):
    """The encoding in the order of older code."""
    return to_half(reference.sinusoidal_encoding(length_or_positions, dim, base=base))


def sinusoidal_concatenated():
    """The encoding in the order of older code: all sines, then all cosines."""
    yield from sinusoidal()


def positional_encoding():
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


def encode(x, positions=None, *, base=10000.0):
    """The layer without parameters, as one function."""
    return reference.PositionalEncoding(x.shape[-1], base=base)(x, positions=positions)


def learned():
    """A learned table: its rows are added to tokens of shape `(*batch, n, d)`."""
    x, table = draw(0, 3, 4, 6), {"table": draw(1, 9, 6)}
    yield "three examples of four tokens", (x,), table
    yield "as many examples as tokens", (draw(2, 4, 4, 6),), table
    yield "as long as the table", (draw(3, 1, 9, 6),), table
    yield "positions that do not begin at 0", (x, np.array([5, 6, 7, 8])), table
    yield "an order of their own", (x, np.array([4, 0, 3, 3])), table
    yield "decoding: one token", (x[:1, :1], np.array([5])), table
    yield (
        "left padding: positions per example",
        (x[:2], np.array([[0, 0, 1, 2], [0, 1, 2, 3]])),
        table,
    )


def add_learned(x, positions=None, *, table):
    """The layer, as one function."""
    return reference.LearnedPositionalEncoding(table)(x, positions=positions)


PAPER = "Vaswani.Shazeer.Parmar.ea.2017, section 3.5"
SCHEMES = {
    "sinusoidal": Scheme(reference.sinusoidal_encoding, sinusoidal, PAPER),
    "sinusoidal_concatenated": Scheme(concatenated, sinusoidal_concatenated, PAPER),
    "positional_encoding": Scheme(
        encode, positional_encoding, PAPER, name="PositionalEncoding"
    ),
    "learned": Scheme(
        add_learned,
        learned,
        "gehring2017convolutional, section 3.1",
        name="LearnedPositionalEncoding",
    ),
}
