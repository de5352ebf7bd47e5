"""What a library's module has: adapters, each with the scheme it is checked against and why it fails."""

from typing import NamedTuple


class Reason(NamedTuple):
    """Why cases fail that have one of these words in their names.

    `whose` is `"library"`, `"precision"` or `"convention"`. `shown` is the cell or the fact of the library's
    row in `tests/nightly/world` whose lines show it, or that of another row, as `torch_mha/empty_row`.
    """

    words: tuple
    whose: str
    why: str
    shown: str = ""


FLOAT32 = Reason(
    ("2**20", "cannot hold"),
    "precision",
    "it makes large angles in float32, which rounds them",
    "distant",
)
NAN_LEAKS = Reason(
    ("NaN",),
    "convention",
    "a weight of zero times NaN is NaN, and we ask for the value to be left out",
)
MEAN = Reason(
    ("one of them 0", "one length per query"),
    "convention",
    "a query that may attend to nothing gets the mean of all values; we ask for zero",
    "empty_row",
)
CORNER = Reason(
    ("queries at the end", "decoding one token", "more queries than keys"),
    "convention",
    "`is_causal` aligns the first query with the first key; we align the last ones",
    "causal",
)
PAIR = Reason(
    ("a pair alone",), "library", "a head of two columns raises an error", "one_pair"
)
NO_TOKENS = Reason(
    ("no tokens",),
    "library",
    "an input without tokens raises an error, though there is nothing to rotate",
    "no_tokens",
)


def against(scheme, *reasons, framework, dtype=None, **settings):
    """Mark an adapter with the scheme it is checked against and the keywords that it stands for."""

    def mark(adapter):
        options = {"framework": framework, "dtype": dtype, "settings": settings}
        adapter.against = (scheme, options, reasons)
        return adapter

    return mark
