"""Faults that many schemes share: of positions, of layouts, and of what is kept between calls."""

import numpy as np

from posattn.conformance.faults.registry import fault, misuse, rows, tokens
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


@misuse("rotary_scores")
def layouts_differ_in_the_query(
    definition, query, key, *where, layout="interleaved", base=10000.0
):
    """Layouts are mixed: the key has the one asked for, and the query the other."""
    return layouts_differ(definition, query, key, *where, layout=OTHER[layout], base=base)


@misuse("rotary_scores")
def key_not_turned(definition, query, key, *where, **keywords):
    """The query is rotated, and the key is not."""
    return rotate(query, where[0], **keywords) @ key.mT


@misuse("rotary", "xpos_query", "xpos_key", seen="lablup/mlxcel #1324")
def rotated_twice(definition, x, positions=None, **keywords):
    """It rotates twice, as by a layer and its kernel, or positions are doubled: once is right."""
    return definition(definition(x, positions, **keywords), positions, **keywords)


@misuse(*ADDED, *ROTATED, seen="AkiRusProd/numpy-transformer #1")
def wrong_axis(definition, x, positions=None, **keywords):
    """The wrong axis: positions run along the axis before the tokens, the batch or the heads."""
    flat = np.swapaxes(x, -3, -2)
    made = definition(flat, tokens(flat, positions), **keywords)
    return np.swapaxes(made, -3, -2)


@misuse(*ENCODINGS)
def rows_counted_from_one(definition, length_or_positions, dim, **keywords):
    """Positions are counted from 1."""
    return definition(rows(length_or_positions) + 1, dim, **keywords)


@misuse("swin", "tupe")
def directions_exchanged(definition, query_positions, key_positions, **keywords):
    """The wrong sign: queries and keys are exchanged."""
    return np.swapaxes(definition(key_positions, query_positions, **keywords), -1, -2)


class Kept:
    """What remembers its calls."""

    def __init__(self):
        self.kept = {}


@fault("rotary", seen="lucidrains/rotary-embedding-torch #11")
class CacheWithoutOffset(Kept):
    """A stale cache: its key is the length, so that other positions get the table of the first call."""

    def __call__(self, x, positions=None, **keywords):
        """Rotate by the first positions of that many."""
        key = x.shape[-2], *sorted((k, str(v)) for k, v in keywords.items())
        where = self.kept.setdefault(key, tokens(x, positions))
        return rotated(x, where, **keywords)


@fault("rotary")
class CacheOfTheFirstPosition(Kept):
    """A stale cache: its key is the length and the first position, so that packed texts get another table."""

    def __call__(self, x, positions=None, **keywords):
        """Rotate by the first positions of that many that begin there."""
        where = tokens(x, positions)
        key = where.shape, where[..., :1].tobytes()
        return rotated(x, self.kept.setdefault(key, where), **keywords)


@fault("rotary")
class CacheOfTheFirstExample(Kept):
    """A stale cache: its key has the first example's positions only, so that others get an older table."""

    def __call__(self, x, positions=None, **keywords):
        """Rotate by the first positions whose first example is this."""
        where = tokens(x, positions)
        one = where[tuple(slice(0, 1) for _ in where.shape[:-1])]
        key = where.shape, one.tobytes()
        return rotated(x, self.kept.setdefault(key, where), **keywords)


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
