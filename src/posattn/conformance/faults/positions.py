"""Faults that many schemes share: of positions, of layouts, and of what is kept between calls."""

import numpy as np

from posattn.conformance.faults.registry import fault, misuse, misuses, rows, tokens
from posattn.conformance.generate import SCHEMES
from posattn.reference.position.rotary import rotate
from posattn.reference.position.rotary_cases import rotated

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


def of_a_cache(name, schemes, key, use, sentence, seen=""):
    """Enter `use(definition, first, arguments, keywords)`, with the first call of each `key`."""
    for scheme in schemes:

        def call(self, *given, definition=SCHEMES[scheme].function, **keywords):
            first = self.kept.setdefault(key(*given, **keywords), (given, keywords))
            return use(definition, first, given, keywords)

        made = {"__call__": call, "__doc__": sentence}
        fault(scheme, seen=seen)(type(name, (Kept,), made))


def options(keywords):
    """Keywords as a part of a key."""
    return tuple(sorted((name, str(value)) for name, value in keywords.items()))


def of_a_width(x, _=None, **given):
    """The width and the options of a call that rotates."""
    return x.shape[-1], options(given)


def first_places(definition, first, given, keywords):
    """A rotation by the positions of the first call."""
    return definition(given[0], tokens(*first[0]), **keywords)


def first_base(definition, first, given, keywords):
    """What is made with the base of the first call."""
    return definition(*given, **{**keywords, "base": first[1].get("base", 10000.0)})


def first_table(mode):
    """A rotation by a table as long as its first call needs it, read by a mode of `numpy.take`."""

    def use(definition, first, given, keywords):
        table = np.arange(1 + int(np.max(tokens(*first[0]), initial=0)))
        where = np.take(table, tokens(*given), mode=mode)
        return definition(given[0], where, **keywords)

    return use


# fmt: off
TURNED, ENDS = ("rotary",), "A stale cache: the table is as long as its first call needs it, and "
CACHES = (  # a name, schemes, the key, what is used of the first call with it, a sentence, and threads
    ("CacheWithoutOffset", TURNED, lambda x, _=None, **given: (x.shape[-2], options(given)), first_places,
     "A stale cache: its key is the length, so that other positions get the table of the first call.",
     "lucidrains/rotary-embedding-torch #11"),
    ("CacheOfTheFirstPosition", TURNED,
     lambda *given, **_: (tokens(*given).shape, tokens(*given)[..., :1].tobytes()), first_places,
     "A stale cache: its key is the length and the first position, so packed texts get another table."),
    ("CacheOfTheFirstExample", TURNED,
     lambda *given, **_: ((at := tokens(*given)).shape, at[(slice(1),) * (at.ndim - 1)].tobytes()),
     first_places,
     "A stale cache: its key has the first example's positions only, so others get an older table."),
    ("CacheWithoutBase", TURNED, lambda x, *_, **given: given.get("rotary_dim") or x.shape[-1], first_base,
     "A stale cache: its key lacks the base, so that another base gets the table of the first one.",
     "patrick-kidger/equinox (its cache lacks theta)"),
    ("TableWithoutBase", ("sinusoidal",), lambda where, dim, **_: (np.shape(where) or where, dim), first_base,
     "A stale cache: its key lacks the base, so that another base gets the table of the first one."),
    ("EndOfTheFirstTable", TURNED, of_a_width, first_table("clip"), ENDS + "its last row is read beyond."),
    ("FirstTableEnds", TURNED, of_a_width, first_table("raise"), ENDS + "positions beyond its end fail."),
    ("LengthOfTheFirstCall", ("dynamic_ntk", "longrope"), lambda dim, *, length, **given: options(given),
     lambda definition, first, given, keywords: definition(
         *given, **{**keywords, "length": first[1]["length"]}),
     "A stale cache: frequencies are those for the length of the first call, whatever comes later."),
    ("PositionsOfTheFirstCall", CONTENT, lambda *_, **given: options(given),
     lambda definition, first, given, keywords: definition(*given[:-2], *(
         x[..., : y.shape[-1]] for x, y in zip(first[0][-2:], given[-2:], strict=True)), **keywords),
     "A stale cache: the positions are those of the first call, cut to the length of later ones."),
)
# fmt: on
for row in CACHES:
    of_a_cache(*row)


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
