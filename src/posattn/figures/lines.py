"""Lines: curves of any kind, products by offset, and intervals."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import (
    COLORS,
    INK,
    MARKERS,
    POSITION,
    Drawing,
    checked,
    drawn,
    held,
    integer_ticks,
    phone,
    width,
)

_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (7, 2, 1, 2)))


@drawn
def curves(
    x: ArrayLike,
    series: Mapping[str, ArrayLike],
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    log_y: bool = False,
    points: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """Draw several curves over one axis, told apart by colour and dash, and many of them by markers.

    A scheme has the same colour in every figure: a label that begins with its name.
    Where there are points, such as data, they alone have markers.

    Args:
        x: `(m,)`.
        series: for each label, its values, `(m,)`; NaN leaves a gap.
        xlabel: what `x` is, with its unit.
        ylabel: what the values are, with their unit.
        log_x: whether the horizontal axis is logarithmic; `x` is then positive.
        log_y: whether the vertical axis is logarithmic; the values are then positive.
        points: for each label, points that no line joins, `(n, 2)`; none by default.

    Returns:
        A figure with one line per label, and one set of marks per label of `points`.

    Raises:
        ValueError: if a length differs from that of `x`, points are no pairs, or a logarithmic axis meets
            a number that is not positive.
    """
    x = checked("x", x, "m")
    held("series", series)
    lines = {
        label: checked(f"series[{label!r}]", values, "m", m=x.size)
        for label, values in series.items()
    }
    marks = {
        label: checked(f"points[{label!r}]", pairs, "n pair", pair=2)
        for label, pairs in (points or {}).items()
    }
    _check_positive("x", x, log_x)
    for label, values in lines.items():
        _check_positive(f"series[{label!r}]", values, log_y)
    for label, pairs in marks.items():
        _check_positive(f"points[{label!r}]", pairs[:, [log_x, log_y]], True)
    figure = Drawing(figsize=(width(), 3), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, xscale="log" if log_x else "linear")
    axes.set(ylabel=ylabel, yscale="log" if log_y else "linear")
    if log_x and x.size <= 8:
        some = x[:: 1 + (phone() and x.size > 5)]
        axes.set_xticks(some, [f"{value:.10g}" for value in some])
        axes.set_xticks([], minor=True)
    _plot(axes, x, lines, marks)
    return figure


@drawn
def intervals(
    groups: Mapping[str, Mapping[str, Sequence[float | Sequence[float]]]],
    xlabel: str,
    line: float = 1.0,
    key: Sequence[str] = (),
) -> Figure:
    """Draw numbers as dots, and how far each varied as bars, on a logarithmic axis.

    Args:
        groups: for the title of each group, its rows: for each label, `(low, middle, high)`, or two such
            triples, `(2, 3)`, of which one may be NaN.
        xlabel: what the numbers are, with their unit.
        line: the number that all are compared with.
        key: what the first and the second triple of a row are, if it has two.

    Returns:
        A figure with a row for each label, at whose end its middles are written.

    Raises:
        ValueError: if there is no group, or a row does not hold three positive numbers.
    """
    rows = []
    for title, group in held("groups", groups.items()):
        rows += [(title, None), *group.items()]
    tall = 0.55 + 0.21 * (len(rows) + bool(key))
    figure = Drawing(figsize=(width(), tall), layout="constrained")
    axes = figure.subplots()
    axes.axvline(line, color=INK, linewidth=0.8, linestyle="--")
    axes.set(xscale="log", xlabel=xlabel, ylim=(len(rows) - 0.4, -0.6))
    right = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
    left = {"xycoords": ("figure fraction", "data"), "weight": "bold"}
    for place, (label, row) in enumerate(rows):
        if row is None:
            axes.annotate(label, (0, place + 0.3), **left)
            continue
        triples = checked(repr(label), np.atleast_2d(row), "k three", three=3)
        _check_positive(repr(label), triples, True)
        for k, (low, middle, high) in enumerate(triples):
            y, color = place + 0.36 * (k - len(triples) / 2 + 0.5), list(COLORS)[k]
            axes.plot((low, high), (y, y), color=color, linewidth=4, alpha=0.4)
            axes.plot(middle, y, MARKERS[k], color=color)
            number = "" if np.isnan(middle) else f"{middle:#.3g}".rstrip(".")
            axes.annotate(number, (1.02, place), (36 * k, 0), va="center", **right)
    axes.set_yticks(range(len(rows)), ["" if row is None else label for label, row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", linewidth=0.4)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.spines["left"].set_visible(False)
    if key:
        axes.figure.legend(axes.lines[2:5:2], key, loc="outside upper right", ncols=2)
    return figure


@drawn
def offsets(products: ArrayLike) -> Figure:
    r"""Draw the dot products of position 0 with its successors, $p_0 \cdot p_\delta$.

    Args:
        products: `(m,)`, for the offsets 0..m-1.

    Returns:
        A figure with one stem per offset.

    Raises:
        ValueError: if `products` is not a vector.
    """
    products = checked("products", products, "m")
    figure = Drawing(figsize=(width(), 2.6), layout="constrained")
    axes = figure.subplots()
    stems = axes.stem(products, linefmt=POSITION, markerfmt="o", basefmt=INK)
    stems.markerline.set(markersize=3)
    stems.stemlines.set(linewidth=0.8)
    stems.baseline.set(linewidth=0.7)
    axes.set(xlabel=r"offset $\delta$", ylabel=r"$\mathbf{p}_0 \cdot \mathbf{p}_\delta$")
    integer_ticks(axes.xaxis, products.size)
    _frame(axes)
    return figure


def _plot(
    axes: Axes,
    x: NDArray,
    lines: Mapping[str, NDArray],
    points: Mapping[str, NDArray] | None = None,
) -> None:
    """Draw each line in its own look, and label all.

    Markers stand where they tell what was measured, or lines whose dashes are the same.
    """
    every = max(1, x.size // 10)
    marked = not points and (len(lines) > 4 or x.size <= 16)
    for k, (label, color) in enumerate(_colors(lines).items()):
        look = {"label": label, "color": color, "linestyle": _DASHES[(k + k // 4) % 4]}
        look["marker"] = MARKERS[(k + k // 4 * 2) % 4] if marked else ""
        axes.plot(x, lines[label], markevery=(k * every // 4 % every, every), **look)
    for k, (label, pairs) in enumerate((points or {}).items()):
        look = {"linestyle": "", "marker": MARKERS[k % 4], "markersize": 3 + 3 * (k > 0)}
        axes.plot(*pairs.T, label=label, color=INK, **look)
    _frame(axes)
    if len(axes.lines) > 8:
        _key(axes)
    else:
        _label_ends(axes)


def _colors(labels: Iterable[str]) -> dict[str, str]:
    """Give a scheme its colour, the first time it comes, and the rest what is left, in order."""
    own: dict[str, str] = {}
    for label in labels:
        for color, names in COLORS.items():
            if label.startswith(names) and color not in own.values():
                own[label] = color
    rest = cycle([color for color in COLORS if color not in own.values()])
    return {label: own.get(label) or next(rest) for label in labels}


def _frame(axes: Axes) -> None:
    """Draw a grid, and write what the values are above them, where they do not lie on their side."""
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    # The layout takes a label above the axis for a flat one, and leaves it no room.
    axes.figure.get_layout_engine().set(h_pad=0.1)
    axes.yaxis.label.set(rotation=0, ha="left", va="bottom")
    axes.yaxis.set_label_coords(0, 1.03)


def _label_ends(axes: Axes) -> None:
    """Write the label of each line beside its end, no two on top of each other."""
    look = {"textcoords": "axes fraction", "va": "center", "linespacing": 1.1}
    arrow = {"arrowstyle": "-", "linewidth": 0.7, "relpos": (0, 0.5), "shrinkB": 0}
    labels = []
    for line in axes.lines:
        look["arrowprops"] = arrow | {"color": line.get_color()}
        text = _folded(line.get_label())
        labels.append(axes.annotate(text, _end(line), (1.05, 0.5), **look))
    axes.figure.draw_without_rendering()  # now the layout knows how high the axes are
    inches = axes.get_window_extent().height
    inside = axes.transData - axes.transAxes
    wanted = [inside.transform(a.xy)[1] for a in labels]
    heights = [1.15 * Text.get_window_extent(a).height / inches for a in labels]
    for label, y in zip(labels, _apart(wanted, heights), strict=True):
        label.set_y(y)


def _end(line: Line2D) -> NDArray:
    points = line.get_xydata()
    drawn = points[np.isfinite(points).all(axis=1)]
    return (drawn if drawn.size else np.nan_to_num(points))[-1]


def _folded(label: str) -> str:
    """Break a long label between words, never within a formula."""
    glued = re.sub(r"\$.*?\$", lambda formula: formula[0].replace(" ", "~"), label)
    size = 14 if phone() else 20
    lines = textwrap.wrap(glued, size, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("~", " ")


def _apart(wanted: Sequence[float], heights: Sequence[float]) -> NDArray:
    """Centres of boxes stacked in the order of `wanted` and moved as little as possible.

    Less the room that the boxes below it need, each centre must not fall: what falls is averaged.
    """
    order = np.argsort(wanted, kind="stable")
    heights = np.take(heights, order)
    below = np.cumsum(heights) - heights / 2
    blocks: list[list[float]] = []
    for goal in np.take(wanted, order) - below:
        blocks.append([goal])
        while len(blocks) > 1 and np.mean(blocks[-2]) >= np.mean(blocks[-1]):
            fallen = blocks.pop()
            blocks[-1] += fallen
    level = np.concatenate([np.full(len(block), np.mean(block)) for block in blocks])
    centres = np.empty(len(order))
    centres[order] = level.clip(-0.02, max(-0.02, 1.02 - heights.sum())) + below
    return centres


def _key(axes: Axes) -> None:
    """Write the labels of many lines above them, each beside a piece of its line."""
    letters = 8 + max(len(line.get_label()) for line in axes.lines)
    ncols = min(4, max(1, int(13 * width()) // letters))
    rows = -(-len(axes.lines) // ncols)
    axes.figure.set_figheight(axes.figure.get_figheight() + 0.2 * rows)
    axes.figure.legend(loc="outside upper center", ncols=ncols)


def _check_positive(name: str, values: NDArray, logarithmic: bool) -> None:
    wrong = values[values <= 0]
    if logarithmic and wrong.size:
        raise ValueError(f"{name} must be positive on a logarithmic axis, got {wrong[0]}")
