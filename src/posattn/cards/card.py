"""A card of the atlas."""

from dataclasses import dataclass

__all__ = ["Card"]


@dataclass(frozen=True)
class Card:
    r"""What the atlas says about one scheme.

    Args:
        title: its full name.
        year: when the first of the cited works appeared, as a preprint if there was one.
        idea: what it does, in a sentence or two.
        formula: what happens to a token, a query or a score, in LaTeX.
        symbols: a sentence that explains the symbols of the formula, or nothing if the page does.
        cites: keys of the bibliography, beginning with the work that introduced it.
        function: its name in each column, or none.
        shows: what the picture of its scores looks like.
        models: released models that use it, as far as we have verified them. A remark may follow
            a name in parentheses.
        page: the page that teaches it, or none.
    """

    title: str
    year: int
    idea: str
    formula: str
    symbols: str
    cites: tuple[str, ...]
    function: str | None
    shows: str
    models: tuple[str, ...] = ()
    page: str | None = None
