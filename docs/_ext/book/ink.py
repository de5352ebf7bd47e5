"""The colours of code: four of them, each legible (WCAG AA) on the ground of its theme."""

from pygments.style import Style
from pygments.token import (
    Comment,
    Error,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    Token,
)


def colored(ground, text, word, string, number, comment):
    """A style of these colours."""
    return {
        "background_color": ground,
        "styles": {
            Token: text,
            Comment: f"italic {comment}",
            Keyword: word,
            Operator.Word: word,
            Name.Builtin: text,
            Name.Decorator: number,
            Number: number,
            String: string,
            String.Interpol: number,
            Generic.Prompt: comment,
            Generic.Output: text,
            Generic.Traceback: number,
            Error: number,
        },
    }


Light = type(
    "Light",
    (Style,),
    colored("#f6f7f9", "#1d2024", "#005a94", "#17663a", "#9a3d00", "#5c6167"),
)
Dark = type(
    "Dark",
    (Style,),
    colored("#1d1f22", "#dcdde0", "#8cc4f0", "#93d3a2", "#f2ae80", "#a4a9b0"),
)
