"""Block diagrams of the layers. One unit of the axes is one inch on paper."""

from collections.abc import Mapping
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from posattn.figures.style import (
    INK,
    KEY,
    POSITION,
    QUERY,
    VALUE,
    Drawing,
    arrow,
    drawn,
    phone,
    width,
)

_WIDTH, _HEIGHT = 1.02, 0.55
_FLOW = (0.54, 1.89, 3.24, 4.59, 5.94)  # from left to right on a page
_STACK = (0.54, 1.7, 2.86)  # side by side on a phone


@drawn
def self_attention_layer() -> Figure:
    """Draw the self-attention layer: each token is projected three times, then pooled.

    Returns:
        A figure of tokens, queries, keys, values, scores, softmax, weighted sum and outputs.
    """
    axes = _paper(4.35 if phone() else 2.3)
    if phone():
        a, b, c = _STACK
        between = (a + b) / 2
        across, down = (
            (b, a, b, c, between, between, c, c),
            (4.05, 3.1, 3.1, 3.1, 2.15, 1.2, 1.2, 0.3),
        )
        weights = (between + c) / 2, 1.32
    else:
        a, b, c, d, e = _FLOW
        across, down = (
            (a, b, b, b, c, d, d, e),
            (1.15, 1.95, 1.15, 0.35, 1.55, 1.55, 0.35, 0.35),
        )
        weights = d + 0.4, 0.95
    text = {
        "tokens": "tokens\n$\\mathbf{x}_0, \\ldots, \\mathbf{x}_{n-1}$",
        "queries": "queries\n$\\mathbf{X}\\mathbf{W}^{(q)}$",
        "keys": "keys\n$\\mathbf{X}\\mathbf{W}^{(k)}$",
        "values": "values\n$\\mathbf{X}\\mathbf{W}^{(v)}$",
        "scores": "scores\n$\\mathbf{q}_i^\\top \\mathbf{k}_j / \\sqrt{d}$",
        "softmax": "softmax\nover keys $j$",
        "pooled": "weighted sum\n$\\Sigma_j\\, \\alpha_{ij} \\mathbf{v}_j$",
        "outputs": "outputs\n$\\mathbf{y}_0, \\ldots, \\mathbf{y}_{n-1}$",
    }
    color = {"queries": QUERY, "keys": KEY, "values": VALUE, "pooled": VALUE}
    boxes = {
        name: _box(axes, x, y, words, color.get(name))
        for (name, words), x, y in zip(text.items(), across, down, strict=True)
    }
    way = ["tokens", "queries", "scores", "softmax", "pooled", "outputs"]
    for names in (way, ["tokens", "keys", "scores"], ["tokens", "values", "pooled"]):
        _chain(axes, *map(boxes.get, names))
    axes.text(*weights, "weights $\\alpha_{ij}$", ha="center", va="center")
    return axes.figure


@drawn
def transformer_block(words: Mapping[str, str] | None = None) -> Figure:
    """Draw a transformer block: what self-attention and a feed-forward layer add to the tokens.

    Args:
        words: what to write instead into boxes, by their names: tokens, norm, attention, norm 2,
            feed-forward, next.

    Returns:
        A figure of the tokens, of two branches that begin with a norm, of the two sums in which
        they end, and of the next block.

    Raises:
        ValueError: if no box has a name.
    """
    axes = _paper(5.3 if phone() else 1.95)
    if phone():
        across, down = (
            (0.85, 2.5, 2.5) * 2 + (0.85,) * 2,
            (4.95, 4.5, 3.65, 3.05, 2.6, 1.75, 1.15, 0.32),
        )
        beside = [(0.42, 4.0), (0.42, 2.1)]
    else:
        across, down = (
            (0.54, 0.95, 2.1, 2.75, 3.6, 4.75, 5.15, 5.98),
            (1.55, 0.34, 0.34) * 2 + (1.55,) * 2,
        )
        beside = [(1.83, 1.7), (3.95, 1.7)]
    text = {
        "tokens": ("tokens\n$\\mathbf{x}_0, \\ldots, \\mathbf{x}_{n-1}$", _WIDTH),
        "norm": ("norm\neach alone", 0.84),
        "attention": ("self-attention\ntokens meet", _WIDTH),
        "sum": ("+", 0.3),
        "norm 2": ("norm\neach alone", 0.84),
        "feed-forward": ("feed-forward\neach alone", _WIDTH),
        "sum 2": ("+", 0.3),
        "next": ("next block", 0.84),
    }
    for name, word in (words or {}).items():
        if name not in text:
            raise ValueError(f"words must name boxes of {', '.join(text)}, got {name!r}")
        text[name] = word, text[name][1]
    boxes = {
        name: _box(axes, x, y, word, across=wide)
        for (name, (word, wide)), x, y in zip(text.items(), across, down, strict=True)
    }
    boxes["attention"].set(linewidth=2)
    way = ["tokens", "norm", "attention", "sum", "norm 2", "feed-forward", "sum 2", "next"]
    for names in (way, way[::3]):
        _chain(axes, *map(boxes.get, names))
    for place in beside:
        axes.text(*place, "residual", ha="center", va="center")
    return axes.figure


@drawn
def positional_encoding_layer() -> Figure:
    """Draw the positional encoding layer: X + P, where P knows nothing but the positions.

    Returns:
        A figure of tokens and positions, X and P, their sum, dropout and the next layer.
    """
    axes = _paper(3.95 if phone() else 2.0)
    if phone():
        left, middle, right = _STACK
        down = (3.65, 2.8, 1.95, 1.1, 0.3)
        tokens, embedded = ((left + middle) / 2, down[0]), ((left + middle) / 2, down[1])
        beside = (middle + right) / 2
        positions, encoding = (beside, down[0]), (beside, down[1])
        total, dropout, following = ((middle, y) for y in down[2:])
    else:
        tokens, embedded = (_FLOW[0], 1.6), (_FLOW[1], 1.6)
        positions, encoding = (_FLOW[0], 0.4), (_FLOW[1], 0.4)
        total, dropout, following = ((x, 1.0) for x in _FLOW[2:])
    tokens = _box(axes, *tokens, "tokens\n$\\mathbf{x}_0, \\ldots, \\mathbf{x}_{n-1}$")
    positions = _box(axes, *positions, "positions\n$0, \\ldots, n - 1$", POSITION)
    embedded = _box(axes, *embedded, "$\\mathbf{X}$\n$n \\times d$")
    encoding = _box(axes, *encoding, "$\\mathbf{P}$\n$n \\times d$", POSITION)
    total = _box(axes, *total, "$\\mathbf{X} + \\mathbf{P}$\n$n \\times d$")
    dropout = _box(axes, *dropout, "(dropout)")
    following = _box(axes, *following, "next layer")
    _chain(axes, tokens, embedded, total, dropout, following)
    _chain(axes, positions, encoding, total)
    return axes.figure


def _paper(height: float) -> Axes:
    axes = Drawing(figsize=(width(), height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width()), ylim=(0, height))
    axes.set_axis_off()
    return axes


def _chain(axes: Axes, *boxes: FancyBboxPatch) -> None:
    for tail, head in pairwise(boxes):
        arrow(axes, tail, head)


def _box(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    color: str | None = None,
    across: float = _WIDTH,
) -> FancyBboxPatch:
    """Place a block of which (x, y) is the centre."""
    axes.text(x, y, text, ha="center", va="center", linespacing=1.4)
    place = (x - across / 2, y - _HEIGHT / 2), across, _HEIGHT
    look = {"fc": (color, 0.2) if color else "none", "ec": color or INK}
    look |= {"lw": 1.4 if color else 0.8, "boxstyle": "round,pad=0,rounding_size=0.06"}
    return axes.add_patch(FancyBboxPatch(*place, **look))
