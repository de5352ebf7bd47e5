"""Block diagrams of the layers. One unit of the axes is one inch on paper."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from posattn.figures.style import BLUE, GREEN, INK, ORANGE, PINK, Drawing, arrow, drawn

_WIDTH, _HEIGHT = 0.98, 0.55


@drawn
def self_attention_layer() -> Figure:
    """Draw the self-attention layer: each token is projected three times, then pooled.

    Returns:
        A figure of tokens, queries, keys, values, scores, softmax, weighted sum and outputs.
    """
    axes = _paper(6.4, 2.3)
    tokens = _box(
        axes, 0.56, 1.15, "tokens\n$\\mathbf{x}_0, \\ldots, \\mathbf{x}_{n-1}$", PINK
    )
    queries = _box(axes, 1.9, 1.95, "queries\n$\\mathbf{X}\\mathbf{W}^{(q)}$", BLUE)
    keys = _box(axes, 1.9, 1.15, "keys\n$\\mathbf{X}\\mathbf{W}^{(k)}$", BLUE)
    values = _box(axes, 1.9, 0.35, "values\n$\\mathbf{X}\\mathbf{W}^{(v)}$", GREEN)
    scores = _box(
        axes, 3.22, 1.55, "scores\n$\\mathbf{q}_i^\\top \\mathbf{k}_j / \\sqrt{d}$", BLUE
    )
    softmax = _box(axes, 4.54, 1.55, "softmax\nover keys $j$", ORANGE)
    pooled = _box(
        axes, 4.54, 0.35, "weighted sum\n$\\Sigma_j\\, w_{ij} \\mathbf{v}_j$", GREEN
    )
    outputs = _box(
        axes, 5.84, 0.35, "outputs\n$\\mathbf{y}_0, \\ldots, \\mathbf{y}_{n-1}$", PINK
    )
    for tail, head in (
        (tokens, queries),
        (tokens, keys),
        (tokens, values),
        (queries, scores),
        (keys, scores),
        (scores, softmax),
        (softmax, pooled),
        (values, pooled),
        (pooled, outputs),
    ):
        arrow(axes, tail, head)
    axes.text(4.61, 0.95, "weights $w_{ij}$", va="center")
    return axes.figure


@drawn
def positional_encoding_layer() -> Figure:
    """Draw the positional encoding layer: X + P, where P knows nothing but the positions.

    Returns:
        A figure of tokens and positions, X and P, their sum, dropout and the next layer.
    """
    axes = _paper(6.4, 2.0)
    tokens = _box(
        axes, 0.56, 1.6, "tokens\n$\\mathbf{x}_0, \\ldots, \\mathbf{x}_{n-1}$", PINK
    )
    positions = _box(axes, 0.56, 0.4, "positions\n$0, \\ldots, n - 1$", ORANGE)
    embedded = _box(axes, 1.9, 1.6, "$\\mathbf{X}$\n$n \\times d$", PINK)
    encoding = _box(axes, 1.9, 0.4, "$\\mathbf{P}$\n$n \\times d$", ORANGE)
    total = _box(axes, 3.22, 1.0, "$\\mathbf{X} + \\mathbf{P}$\n$n \\times d$", BLUE)
    dropout = _box(axes, 4.54, 1.0, "(dropout)", "none")
    following = _box(axes, 5.84, 1.0, "next layer", GREEN)
    for tail, head in (
        (tokens, embedded),
        (positions, encoding),
        (embedded, total),
        (encoding, total),
        (total, dropout),
        (dropout, following),
    ):
        arrow(axes, tail, head)
    return axes.figure


def _paper(width: float, height: float) -> Axes:
    axes = Drawing(figsize=(width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return axes


def _box(axes: Axes, x: float, y: float, text: str, color: str) -> FancyBboxPatch:
    """Place a block of which (x, y) is the centre."""
    axes.text(x, y, text, ha="center", va="center", linespacing=1.5)
    return axes.add_patch(
        FancyBboxPatch(
            (x - _WIDTH / 2, y - _HEIGHT / 2),
            _WIDTH,
            _HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=(color, 0.22),
            edgecolor=INK,
            linewidth=0.8,
        )
    )
