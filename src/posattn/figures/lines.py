"""Lines: columns of an encoding, products by offset, and curves of any kind."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import (
    BLUE,
    INK,
    MARKERS,
    PALETTE,
    Drawing,
    checked,
    drawn,
    held,
    integer_ticks,
)

_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (7, 2, 1, 2)))


@drawn
def columns(encoding: ArrayLike, indices: ArrayLike) -> Figure:
    """Draw columns of an encoding against the position.

    Args:
        encoding: `(n, d)`, one row per position.
        indices: the columns to draw, each in 0..d-1.

    Returns:
        A figure with one line per index.

    Raises:
        ValueError: if `encoding` is not a table, or an index is not a column of it.
    """
    encoding = checked("encoding", encoding, "n d")
    n, d = encoding.shape
    indices = held("indices", indices)
    for index in indices:
        if index not in range(d):
            raise ValueError(f"indices must lie in 0..{d - 1}, got {index}")
    figure = Drawing(figsize=(6.5, 2.6), layout="constrained")
    axes = figure.subplots()
    _plot(axes, np.arange(n), {f"column {j}": encoding[:, j] for j in map(int, indices)})
    axes.set(xlabel="row (position $i$)", ylabel="value", xlim=(0, max(n - 1, 1)))
    integer_ticks(axes.xaxis, n)
    return figure


@drawn
def curves(
    x: ArrayLike,
    series: Mapping[str, ArrayLike],
    xlabel: str,
    ylabel: str,
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """Draw several curves over one axis, told apart by colour, dash and marker.

    Args:
        x: `(m,)`.
        series: for each label, its values, `(m,)`; NaN leaves a gap.
        xlabel: what `x` is, with its unit.
        ylabel: what the values are, with their unit.
        log_x: whether the horizontal axis is logarithmic; `x` is then positive.
        log_y: whether the vertical axis is logarithmic; the values are then positive.

    Returns:
        A figure with one line per label.

    Raises:
        ValueError: if a length differs from that of `x`, or a logarithmic axis meets a number
            that is not positive.
    """
    x = checked("x", x, "m")
    held("series", series)
    lines = {
        label: checked(f"series[{label!r}]", values, "m", m=x.size)
        for label, values in series.items()
    }
    _check_positive("x", x, log_x)
    for label, values in lines.items():
        _check_positive(f"series[{label!r}]", values, log_y)
    figure = Drawing(figsize=(6.5, 3), layout="constrained")
    axes = figure.subplots()
    axes.set(
        xlabel=xlabel,
        ylabel=ylabel,
        xscale="log" if log_x else "linear",
        yscale="log" if log_y else "linear",
    )
    if log_x and x.size <= 8:
        axes.set_xticks(x, [f"{value:.10g}" for value in x])
        axes.set_xticks([], minor=True)
    _plot(axes, x, lines)
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
    figure = Drawing(figsize=(6.5, 2.6), layout="constrained")
    axes = figure.subplots()
    stems = axes.stem(products, linefmt=BLUE, markerfmt="o", basefmt=INK)
    stems.markerline.set(markersize=3)
    stems.stemlines.set(linewidth=0.8)
    stems.baseline.set(linewidth=0.7)
    axes.set(xlabel=r"offset $\delta$", ylabel=r"$\mathbf{p}_0 \cdot \mathbf{p}_\delta$")
    integer_ticks(axes.xaxis, products.size)
    _grid(axes)
    return figure


def _plot(axes: Axes, x: NDArray, lines: Mapping[str, NDArray]) -> None:
    """Draw each line in its own look, with about ten markers, and the legend above the axes."""
    every = max(1, x.size // 10)
    for k, (label, values) in enumerate(lines.items()):
        axes.plot(
            x,
            values,
            label=label,
            color=PALETTE[k % 4],
            linestyle=_DASHES[(k + k // 4) % 4],
            marker=MARKERS[(k + k // 4 * 2) % 4],
            markevery=(k * every // 4 % every, every),
            markersize=4,
            linewidth=1.4,
        )
    _grid(axes)
    per_row = max(1, 84 // (8 + max(map(len, lines))))
    axes.figure.legend(loc="outside upper center", ncols=min(per_row, 4))


def _grid(axes: Axes) -> None:
    axes.grid(color="#888888", alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)


def _check_positive(name: str, values: NDArray, logarithmic: bool) -> None:
    wrong = values[values <= 0]
    if logarithmic and wrong.size:
        raise ValueError(f"{name} must be positive on a logarithmic axis, got {wrong[0]}")
