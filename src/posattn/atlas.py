"""The atlas: a card, a picture of the scores and a row of properties for each scheme.

It writes the Markdown of the page of all schemes. The sentences of a card are in the module of its scheme.
"""

from posattn.schemes import (
    CARDS,
    LARGE,
    LENGTHS,
    PROPERTIES,
    SCHEMES,
    maker,
    projected,
    properties,
    tokens,
)

__all__ = ["PLACES", "acting", "anchor", "cards", "scores", "table"]

#: The places where schemes act, in the order of the page, and their names there.
PLACES = {
    "nowhere": "Nowhere",
    "input": "Input",
    "query and key": "Query and key",
    "scores": "Scores",
}


def scores(name, n=LARGE.trained):
    """Score one query with one key at all pairs of positions, to see what the scheme itself does.

    The same random token is at all positions, so without a scheme all scores are equal.

    Args:
        name: a key of `SCHEMES`.
        n: how many positions.

    Returns:
        The scores of the first of two heads of width 32, `(n, n)`, a row for each query.

    Raises:
        ValueError: if there is no such scheme.

    Examples:
        >>> x = scores("ALiBi")
        >>> (x[10, 10] - x[10, 6]).round(6)  # four steps at a slope of 1/16
        np.float64(0.25)
    """
    scheme = maker(name)(n, LARGE)
    where = scheme.positions(n)
    x, weights = tokens(1, LARGE)
    q, k, _, gates = projected(scheme, x.repeat(n, axis=0), weights, where)
    scale = LARGE.head_dim**-0.5 if scheme.scale is None else scheme.scale
    added = scheme.added(q, k, where, where, gates)
    return scale * (q @ k.mT)[0] + (0 if added is None else added[0])


def acting(place):
    """Name the schemes that act in one place.

    Args:
        place: a key of `PLACES`.

    Returns:
        A list of keys of `SCHEMES`.

    Raises:
        ValueError: if there is no such place.

    Examples:
        >>> acting("input")
        ['sinusoidal', 'learned', 'randomized']
    """
    if place not in PLACES:
        raise ValueError(f"place must be one of {', '.join(PLACES)}, got {place!r}")
    return [name for name, make in SCHEMES.items() if make(LENGTHS[0]).place == place]


def anchor(name):
    """The name of a scheme as an address on its page.

    Examples:
        >>> anchor("rotary, partial")
        'scheme-rotary-partial'
    """
    return "-".join(["scheme", *name.lower().replace(",", "").split()])


def cards(place):
    """Set the cards of the schemes that act in one place, in MyST.

    Args:
        place: a key of `PLACES`.

    Returns:
        Text. Each card pastes the picture that the page has glued under `anchor(name)`.

    Raises:
        ValueError: if there is no such place.
    """
    return "\n\n".join(map(_card, acting(place)))


def _card(name):
    card = CARDS[name]
    links = [f"{{doc}}`/{card.page}`"] if card.page else []
    links += [f"{{py:obj}}`~posattn.reference.{card.function}`"] if card.function else []
    cited = f"{{cite:p}}`{','.join(card.cites)}`"
    return "\n".join(
        [
            "::::{container} scheme",
            f":::{{glue:figure}} {anchor(name)}",
            f":alt: 'Scores of 64 queries with 64 keys under {name}: {card.shows}.'",
            ":::",
            f":::{{rubric}} {card.title}, {card.year}",
            f":name: {anchor(name)}",
            ":heading-level: 3",
            ":::",
            f"{card.idea} {cited}",
            "",
            f"${card.formula}$",
            "",
            *([f"Here {card.symbols}", ""] if card.symbols else []),
            f"*Picture:* {card.shows}.",
            "",
            _used_by(card.models),
            "",
            " · ".join(links) or "The attention layer as it is.",
            "::::",
        ]
    )


def _used_by(models):
    *others, last = models or [""]
    if not last:
        return "*Used by* no released model that we know of."
    return f"*Used by* {', '.join(others)}{' and ' if others else ''}{last}."


def table():
    """Set all schemes against all properties, as a table in Markdown.

    Returns:
        Text: a row per place and a row per scheme that acts there, with `[yes]{.yes}` or `[no]{.no}`
        for each property. A page turns these words into marks.
    """
    lines = [["scheme", *PROPERTIES], ["---", *[":-:"] * len(PROPERTIES)]]
    for place, title in PLACES.items():
        lines.append([f"**{title}**", *[""] * len(PROPERTIES)])
        for name in acting(place):
            words = ("yes" if holds else "no" for holds in properties(name).values())
            lines.append([f"[{name}](#{anchor(name)})", *(f"[{w}]{{.{w}}}" for w in words)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
