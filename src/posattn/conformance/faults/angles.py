"""Faults of angles: of their frequencies, of their precision, and of how entries are paired."""

import numpy as np

from posattn import reference
from posattn.conformance.faults.registry import (
    Near,
    fault,
    half_precision,
    misuse,
    named_as,
    rows,
    tokens,
)
from posattn.reference.position.rotary import rotate_by, to_half
from posattn.reference.position.rotary_cases import rotated

ENCODINGS = ("sinusoidal", "sinusoidal_concatenated", "positional_encoding")
CAST = "EleutherAI/gpt-neox #1003, huggingface/transformers #25681, #29496"


def of_the_angles(*, seen=""):
    """Enter wrong angles, `angles(positions, dim, base)`, for rotations and for encodings.

    An encoding of them has sine and cosine in turn, or apart, or is added to its input; the rotation
    may have frequencies that are given, which come in the place of the width.
    """

    def enter(angles):
        def rotation(x, positions=None, *, frequencies=None, base=10000.0, **keywords):
            width = keywords.get("rotary_dim") or x.shape[-1]
            given = width if frequencies is None else frequencies
            factor = keywords.get("attention_factor", 1.0)
            made = angles(tokens(x, positions), given, base)
            layout = keywords.get("layout", "interleaved")
            return rotate_by(x, factor * np.cos(made), factor * np.sin(made), layout)

        def encoding(length_or_positions, dim, *, base=10000.0):
            made = angles(rows(length_or_positions), dim, base)
            both = np.stack([np.sin(made), np.cos(made)], -1)
            return both.reshape(*made.shape[:-1], 2 * made.shape[-1])[..., :dim]

        def apart(length_or_positions, dim, *, base=10000.0):
            return to_half(encoding(length_or_positions, dim, base=base))

        def added(x, positions=None, *, base=10000.0):
            return x + encoding(tokens(x, positions), x.shape[-1], base=base)

        schemes = {"rotary": rotation, "sinusoidal": encoding}
        schemes |= {"sinusoidal_concatenated": apart, "positional_encoding": added}
        for scheme, made in schemes.items():
            fault(scheme, seen=seen)(named_as(angles)(made))
        return angles

    return enter


def frequencies(given, base, exponents):
    """The frequencies that are given, or else those with wrong exponents of the width."""
    if hasattr(given, "shape"):
        return given
    return base ** -exponents(np.arange(0, given, 2), given)


@of_the_angles()
def exponent_of_the_pair(positions, given, base):
    """The exponent j / d where 2j / d should be: the frequencies fall half as fast."""
    return positions[..., None] * frequencies(given, base, lambda even, dim: even / 2 / dim)


@of_the_angles()
def exponent_doubled(positions, given, base):
    """The exponent 4j / d where 2j / d should be: an index that steps by two is doubled once more."""
    return positions[..., None] * frequencies(given, base, lambda even, dim: 2 * even / dim)


@of_the_angles()
def exponent_up_to_one(positions, given, base):
    """The exponent 2j / (d - 2) where 2j / d should be: the slowest frequency is 1 / base."""
    by = frequencies(given, base, lambda even, dim: even / max(dim - 2, 1))
    return positions[..., None] * by


def of_a_half_precision(name, seen, sentence, parts, dtype, lost):
    """Enter angles of which some parts, positions, frequencies or products, are rounded."""
    to_dtype = half_precision(dtype)

    def angles(positions, given, base):
        by = frequencies(given, base, lambda even, dim: even / dim)
        by = to_dtype(by) if "frequencies" in parts else by
        where = to_dtype(positions) if "positions" in parts else positions
        made = where[..., None] * by
        return to_dtype(made) if "products" in parts else made

    angles.__name__, angles.__doc__ = f"{name}_in_{dtype}", sentence.format(dtype, lost)
    of_the_angles(seen=seen)(angles)


# fmt: off
for row in (
    ("angles", CAST, "Low-precision angles: positions, frequencies and their products are {}.",
     ("positions", "frequencies", "products")),
    ("positions", CAST, "Low-precision angles: the positions are {}, which has no {}.", ("positions",)),
    ("products", "", "Low-precision angles: positions and frequencies are exact, and their products {}.",
     ("products",)),
):
    of_a_half_precision(*row, "bfloat16", 257)
    of_a_half_precision(*row, "float16", 2049)
ALONE = "Low-precision frequencies: they alone are {}, and positions are exact.", ("frequencies",)
of_a_half_precision("frequencies", "sgl-project/sglang-jax #1472, Modalities/modalities #462", *ALONE,
                    "bfloat16", 257)
of_a_half_precision("frequencies", "", *ALONE, "float16", 2049)
# fmt: on


@of_the_angles(seen="ml-explore/mlx-lm #1189")
def frequencies_inverted(positions, given, base):
    """The frequencies are inverted: positions are multiplied by base ** (2j / d), and should be divided."""
    return positions[..., None] / frequencies(given, base, lambda even, dim: even / dim)


@misuse("sinusoidal", "sinusoidal_concatenated")
def angles_in_float32(definition, length_or_positions, dim, **keywords):
    """Low-precision angles: in float32 they are off by about position / 10^7 radians."""
    exact = definition(length_or_positions, dim, **keywords)
    return Near(exact, 2.0**-21 * np.abs(rows(length_or_positions))[..., None])


@misuse("rotary", "inverse_rotation", "positional_encoding", "xpos_query", "xpos_key")
def float32_angles(definition, x, positions=None, **keywords):
    """Low-precision angles: in float32 they are off by about position / 10^7 radians."""
    exact, where = definition(x, positions, **keywords), np.abs(tokens(x, positions))
    size = max(1, np.max(np.abs(exact), initial=0))
    return Near(exact, 2.0**-21 * where[..., None] * size)


@fault("rotary")
def turned_backwards(x, positions=None, **keywords):
    """The wrong sign: pairs rotate clockwise, (a cos + b sin, b cos - a sin)."""
    return rotated(x, -tokens(x, positions), **keywords)


@misuse("rotary")
def attention_factor_on_all(definition, x, *where, attention_factor=1.0, **keywords):
    """The attention factor multiplies all entries: those that do not rotate have none."""
    return attention_factor * definition(x, *where, **keywords)


@fault("inverse_rotation", seen="AMD-AGI/Primus #928")
def not_turned_back(x, positions, *, attention_factor=1.0, **keywords):
    """Nothing is rotated back."""
    return rotated(x, 0 * positions, attention_factor=attention_factor, **keywords)


@fault("inverse_rotation")
def turned_once_more(x, positions, **keywords):
    """The wrong sign: what should be rotated back is rotated once more."""
    return rotated(x, positions, **keywords)


@fault("sinusoidal")
def all_sines_first(length_or_positions, dim, **keywords):
    """The order of older code: all sines, then all cosines. Check with --scheme sinusoidal_concatenated."""
    return to_half(reference.sinusoidal_encoding(length_or_positions, dim, **keywords))


@fault("sinusoidal_concatenated")
def sine_and_cosine_in_turn(length_or_positions, dim, **keywords):
    """The order of the paper: sine and cosine in turn. Check with --scheme sinusoidal."""
    return reference.sinusoidal_encoding(length_or_positions, dim, **keywords)


@fault("sinusoidal")
def cosines_first(length_or_positions, dim, **keywords):
    """Sine and cosine are exchanged."""
    angles = rows(length_or_positions)[..., None] * reference.frequencies(dim, **keywords)
    both = np.stack([np.cos(angles), np.sin(angles)], -1)
    return both.reshape(*angles.shape[:-1], 2 * angles.shape[-1])[..., :dim]


@fault("sinusoidal")
def exponent_of_each_column(length_or_positions, dim, *, base=10000.0):
    """Each column has its own exponent, column / d: a cosine is slower than the sine before it."""
    angles = rows(length_or_positions)[..., None] * base ** (-np.arange(dim) / dim)
    return np.where(np.arange(dim) % 2, np.cos(angles), np.sin(angles))


@misuse(*ENCODINGS, seen="zhouhaoyi/Informer2020 #224, codertimo/BERT-pytorch #78")
def odd_width_fails(definition, *arguments, **keywords):
    """An odd width fails: there are as many cosines as sines, and no column for the last."""
    made = definition(*arguments, **keywords)
    np.zeros(made.shape)[..., 1::2] = made[..., 0::2]  # fails as others do
    return made
