"""Faults that many schemes share: of positions, of layouts, and of what is kept between calls."""

import numpy as np

from posattn.conformance.faults.registry import fault, misuse, misuses, rows, tokens
from posattn.reference.position.rotary import rotate
from posattn.reference.position.rotary_cases import rotated
from posattn.reference.position.sinusoidal import sinusoidal_encoding

ENCODINGS = ("sinusoidal", "sinusoidal_concatenated")
ADDED = ("positional_encoding", "learned")
ROTATED = ("rotary", "inverse_rotation", "xpos_query", "xpos_key")
BIASES = ("alibi", "fire", "kerple_log", "kerple_power", "sandwich", "swin", "t5", "tupe")
DISTANCES = ("alibi", "kerple_log", "kerple_power", "sandwich")
CONTENT = ("shaw", "music_transformer", "transformer_xl", "disentangled", "cope")
OTHER = {"interleaved": "half", "half": "interleaved"}


@misuse("rotary_scores")
def layouts_differ(definition, query, key, *where, layout="interleaved", base=10000.0):
    """Layouts are mixed: the query has the one asked for, and the key the other."""
    query = rotate(query, where[0], layout=layout, base=base)
    return query @ rotate(key, where[1], layout=OTHER[layout], base=base).mT


# fmt: off
misuses(  # a name, schemes, the wrong use, a sentence, and threads
    ("layouts_differ_in_the_query", ("rotary_scores",),
     lambda definition, query, key, *where, layout="interleaved", base=10000.0:
     layouts_differ(definition, query, key, *where, layout=OTHER[layout], base=base),
     "Layouts are mixed: the key has the one asked for, and the query the other."),
    ("key_not_turned", ("rotary_scores",),
     lambda definition, query, key, *where, **keywords: rotate(query, where[0], **keywords) @ key.mT,
     "The query is rotated, and the key is not."),
    ("rotated_twice", ("rotary", "xpos_query", "xpos_key"),
     lambda definition, x, positions=None, **keywords:
     definition(definition(x, positions, **keywords), positions, **keywords),
     "It rotates twice, as by a layer and its kernel, or positions are doubled: once is right.",
     "lablup/mlxcel #1324"),
    ("rows_counted_from_one", ENCODINGS,
     lambda definition, length_or_positions, dim, **keywords:
     definition(rows(length_or_positions) + 1, dim, **keywords), "Positions are counted from 1."),
    ("directions_exchanged", ("swin", "tupe"),
     lambda definition, query_positions, key_positions, **keywords:
     np.swapaxes(definition(key_positions, query_positions, **keywords), -1, -2),
     "The wrong sign: queries and keys are exchanged."),
)
# fmt: on


@misuse(*ADDED, *ROTATED, seen="AkiRusProd/numpy-transformer #1")
def wrong_axis(definition, x, positions=None, **keywords):
    """The wrong axis: positions run along the axis before the tokens, the batch or the heads."""
    flat = np.swapaxes(x, -3, -2)
    made = definition(flat, tokens(flat, positions), **keywords)
    return np.swapaxes(made, -3, -2)


class Kept:
    """What remembers its calls."""

    def __init__(self):
        self.kept = {}


def of_a_cache(name, key, sentence, seen=""):
    """Enter a rotation by the positions that came first with a key, `key(x, where, keywords)`."""

    def rotation(self, x, positions=None, **keywords):
        where = tokens(x, positions)
        where = self.kept.setdefault(key(x, where, keywords), where)
        return rotated(x, where, **keywords)

    made = type(name, (Kept,), {"__call__": rotation, "__doc__": sentence})
    fault("rotary", seen=seen)(made)


def options(keywords):
    """Keywords as a part of a key."""
    return tuple(sorted((name, str(value)) for name, value in keywords.items()))


# fmt: off
of_a_cache("CacheWithoutOffset", lambda x, where, keywords: (x.shape[-2], options(keywords)),
           "A stale cache: its key is the length, so that other positions get the table of the first call.",
           seen="lucidrains/rotary-embedding-torch #11")
of_a_cache("CacheOfTheFirstPosition", lambda x, where, _: (where.shape, where[..., :1].tobytes()),
           "A stale cache: its key is the length and the first position, so packed texts get another table.")
of_a_cache("CacheOfTheFirstExample",
           lambda x, where, _: (where.shape, where[(slice(1),) * (where.ndim - 1)].tobytes()),
           "A stale cache: its key has the first example's positions only, so others get an older table.")
# fmt: on


@fault("rotary", seen="patrick-kidger/equinox (its cache lacks theta)")
class CacheWithoutBase(Kept):
    """A stale cache: its key lacks the base, so that another base gets the table of the first one."""

    def __call__(self, x, positions=None, *, base=10000.0, **keywords):
        """Rotate with the first base of that width."""
        width = keywords.get("rotary_dim") or x.shape[-1]
        base = self.kept.setdefault(width, base)
        return rotated(x, positions, base=base, **keywords)


@fault("rotary", seen="ml-explore/mlx #561")
class CacheOfHalfTheWidth:
    """A stale cache: its key is half the width, so that a head half as wide gets a table too wide."""

    def __init__(self):
        self.key = None

    def __call__(self, x, positions=None, **keywords):
        """Fail, as others do, if the last key is this width at the same positions."""
        where = tokens(x, positions).tolist()
        if self.key == (x.shape[-1], where):
            np.multiply(x[..., 0::2], np.ones((len(where), x.shape[-1])))
        self.key = x.shape[-1] // 2, where
        return rotated(x, positions, **keywords)


@fault("sinusoidal")
class TableWithoutBase(Kept):
    """A stale cache: its key lacks the base, so that another base gets the table of the first one."""

    def __call__(self, length_or_positions, dim, *, base=10000.0):
        """Encode with the first base of that length and width."""
        key = np.shape(length_or_positions) or length_or_positions, dim
        base = self.kept.setdefault(key, base)
        return sinusoidal_encoding(length_or_positions, dim, base=base)
