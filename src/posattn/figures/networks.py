"""Convolution, recurrence and self-attention as graphs of units."""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import (
    INK,
    ORANGE,
    Drawing,
    arrow,
    checked,
    drawn,
    held,
    phone,
    width,
)

_STEP = 1.7


@drawn
def architectures(
    convolution: Iterable[ArrayLike], recurrence: ArrayLike, self_attention: ArrayLike
) -> Figure:
    """Draw who reads whom in a CNN, an RNN and self-attention, with one arrow per True entry.

    The receptive field of the middle unit on top of the CNN is coloured, with thicker arrows.

    Args:
        convolution: boolean `(n, n)` matrices, the lowest layer first; `[i, j]` is True where
            unit i of the upper row reads unit j of the lower row.
        recurrence: boolean `(n, n)`; `[i, j]` is True where hidden state i reads hidden
            state j. Hidden state i also reads input i.
        self_attention: boolean `(n, n)`; `[i, j]` is True where output i reads input j.

    Returns:
        A figure with three panels.

    Raises:
        ValueError: if a matrix is not boolean or not `(n, n)`, or a hidden state reads itself.
    """
    attention = checked("self_attention", self_attention, "n n", bool)
    n = len(attention)
    layers = [
        checked(f"convolution[{k}]", layer, "n n", bool, n=n)
        for k, layer in enumerate(held("convolution", convolution))
    ]
    steps = checked("recurrence", recurrence, "n n", bool, n=n)
    if steps.diagonal().any():
        i = steps.diagonal().argmax()
        raise ValueError(f"recurrence must have a False diagonal, got True at [{i}, {i}]")

    top = len(layers) * _STEP
    longest = np.abs(np.subtract(*steps.nonzero())).max(initial=1)
    ceiling = top + 0.3 + 0.2 * longest
    rows, columns = (3, 1) if phone() else (1, 3)
    unit = min(0.42, 2 / n)
    figure = Drawing((width(), rows * (0.4 + unit * (ceiling + 0.5))), layout="constrained")
    cnn, rnn, attending = figure.subplots(rows, columns)
    for axes, title in ((cnn, "CNN"), (rnn, "RNN"), (attending, "self-attention")):
        axes.set(title=title, aspect="equal", xlim=(-0.5, n - 0.5), ylim=(-0.5, ceiling))
        axes.set_axis_off()

    fields = [np.arange(n) == n // 2]
    for reads in reversed(layers):
        fields.insert(0, reads[fields[0]].any(axis=0))
    symbols = ["x", *[""] * (len(layers) - 1), "y"]
    units = [_row(cnn, k * _STEP, symbols[k], field) for k, field in enumerate(fields)]
    for k, reads in enumerate(layers):
        _connect(cnn, units[k], units[k + 1], reads, lit=fields[k + 1])

    dark = np.zeros(n, dtype=bool)
    inputs, hidden = _row(rnn, 0.0, "x", dark), _row(rnn, top, "h", dark)
    _connect(rnn, inputs, hidden, np.eye(n, dtype=bool), lit=dark)
    _connect(rnn, hidden, hidden, steps, lit=dark)

    inputs, outputs = _row(attending, 0.0, "x", dark), _row(attending, top, "y", dark)
    _connect(attending, inputs, outputs, attention, lit=dark)
    return figure


def _row(axes: Axes, height: float, symbol: str, lit: NDArray) -> list[Circle]:
    units = []
    for i, bright in enumerate(lit):
        face, edge = ((ORANGE, 0.22), ORANGE) if bright else ("none", INK)
        circle = Circle((i, height), 0.33, facecolor=face, edgecolor=edge)
        units.append(axes.add_patch(circle))
        name = rf"$\mathbf{{{symbol}}}_{{{i}}}$" if symbol else ""
        axes.text(i, height, name, ha="center", va="center")
    return units


def _connect(
    axes: Axes, lower: list[Circle], upper: list[Circle], reads: NDArray, lit: NDArray
) -> None:
    for i, j in np.argwhere(reads):
        bright = {"color": ORANGE, "linewidth": 1.6, "zorder": 3} if lit[i] else {}
        bend = -0.4 if lower is upper and abs(i - j) > 1 else 0
        arrow(axes, lower[j], upper[i], connectionstyle=f"arc3,rad={bend}", **bright)
