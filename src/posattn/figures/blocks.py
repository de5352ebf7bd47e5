"""Block diagrams of the layers. One unit of the axes is one inch on paper."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

from posattn.figures.style import BLUE, GREEN, INK, ORANGE, PINK, arrow, drawn


@drawn
def self_attention_layer() -> Figure:
    """Draw the self-attention layer: each token is projected three times, then pooled.

    Returns:
        A figure of tokens, queries, keys, values, scores, softmax, weighted sum and outputs.
    """
    axes = _paper(6.4, 2.5)
    tokens = _stack(axes, 0.3, 1.25, [r"$x_1$", r"$x_2$", r"$\vdots$", r"$x_n$"])
    queries = _box(axes, 1.55, 2.15, r"queries" "\n" r"$q_i = W_q\,x_i$", BLUE)
    keys = _box(axes, 1.55, 1.25, r"keys" "\n" r"$k_i = W_k\,x_i$", BLUE)
    values = _box(axes, 1.55, 0.35, r"values" "\n" r"$v_i = W_v\,x_i$", GREEN)
    scores = _box(axes, 3.1, 1.7, r"scores" "\n" r"$q_i^\top k_j / \sqrt{d}$", BLUE)
    softmax = _box(axes, 4.65, 1.7, "softmax\nover keys $j$", ORANGE)
    pooled = _box(axes, 4.65, 0.35, r"weighted sum" "\n" r"$\sum_j \alpha_{ij} v_j$", GREEN)
    outputs = _stack(axes, 6.1, 1.25, [r"$y_1$", r"$y_2$", r"$\vdots$", r"$y_n$"])
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
    axes.text(4.72, 1.02, r"weights $\alpha_{ij}$", va="center")
    return axes.figure


@drawn
def positional_encoding_layer() -> Figure:
    r"""Draw the positional encoding layer: :math:`X + P`, where P knows the positions only.

    Returns:
        A figure of the tokens' X, the positions' P, their sum, dropout and what follows.
    """
    axes = _paper(6.2, 2.1)
    tokens = _stack(axes, 0.3, 1.6, ["tokens"], 0.7, 0.4)
    return axes.figure


def _paper(width: float, height: float) -> Axes:
    axes = Figure(figsize=(width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return axes


def _box(
    axes: Axes, x: float, y: float, text: str, color: str, width: float = 1.15, height: float = 0.55
) -> FancyBboxPatch:
    """Place a block of which (x, y) is the centre."""
    axes.text(x, y, text, ha="center", va="center", linespacing=1.5)
    return axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=(color, 0.22),
            edgecolor=INK,
            linewidth=0.8,
        )
    )
