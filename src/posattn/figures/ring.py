"""Workers in a ring: queries stay where they are, keys and values go round."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from posattn.figures.style import INK, KEY, QUERY, Drawing, arrow, drawn, held, phone, width

_WIDE, _TALL, _RADIUS = 0.9, 0.62, 0.98  # inches


@drawn
def ring(workers: int, steps: Sequence[int]) -> Figure:
    """Draw who holds which keys and values after some steps of ring attention.

    Args:
        workers: how many share a sequence, at least 2.
        steps: how often the keys have been handed on, one number for each panel.

    Returns:
        A figure with a panel for each step. A worker is a box with the number of its queries and, below,
        of the keys that it holds; arrows lead to the worker that gets these next, clockwise.

    Raises:
        ValueError: if there are fewer than 2 workers, no steps, or a step is no number of hand-overs.
    """
    steps = held("steps", steps)
    if workers < 2:
        raise ValueError(f"workers must be at least 2, got {workers}")
    for step in steps:
        if not 0 <= step < workers:
            raise ValueError(
                f"steps must lie between 0 and workers - 1 = {workers - 1}, got {step}"
            )
    rows, columns = (len(steps), 1) if phone() else (1, len(steps))
    figure = Drawing((width(), 2.8 * rows))
    for number, step in enumerate(steps):
        row, column = (number, 0) if phone() else (0, number)
        place = column / columns, 1 - (row + 1) / rows, 1 / columns, 1 / rows
        axes = figure.add_axes(place)
        axes.set(xlim=(-width() / columns / 2, width() / columns / 2), ylim=(-1.4, 1.4))
        axes.set_axis_off()
        _panel(axes, workers, step)
    return figure


def _panel(axes: Axes, workers: int, step: int) -> None:
    """All workers after a step."""
    said = {0: "at first", 1: "after 1 step"}.get(step, f"after {step} steps")
    axes.text(0, 0, said, ha="center", va="center")
    boxes = [_worker(axes, r, (r - step) % workers, workers) for r in range(workers)]
    for r, box in enumerate(boxes):
        arrow(axes, box, boxes[(r + 1) % workers], color=KEY, linewidth=1.4)


def _worker(axes: Axes, queries: int, keys: int, workers: int) -> Rectangle:
    """The box of a worker, whose place in the ring is the number of its queries."""
    angle = math.tau * (1 / 4 - queries / workers)
    x, y = _RADIUS * math.cos(angle), _RADIUS * math.sin(angle)
    for number, word, color, up in (
        (queries, "queries", QUERY, 1),
        (keys, "keys", KEY, -1),
    ):
        middle = y + up * _TALL / 4
        axes.text(x, middle, f"{word} {number}", ha="center", va="center")
        corner = x - _WIDE / 2, middle - _TALL / 4
        axes.add_patch(Rectangle(corner, _WIDE, _TALL / 2, facecolor=(color, 0.2)))
    corner = x - _WIDE / 2, y - _TALL / 2
    look = {"facecolor": "none", "edgecolor": INK, "linewidth": 0.8}
    return axes.add_patch(Rectangle(corner, _WIDE, _TALL, **look))
