"""A pair of columns of an encoding as a point that turns on the unit circle."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import ARROW, INK, MARKERS, PALETTE, checked, drawn


@drawn
def rotation(before: ArrayLike, after: ArrayLike, angles: float) -> Figure:
    r"""Draw how an offset turns the pairs of all positions by one and the same angle.

    The pair at position i is :math:`(\sin \omega_j i, \cos \omega_j i)`: it starts on top and
    runs clockwise, and the offset :math:`\delta` turns it by :math:`\delta \omega_j`.

    Args:
        before: ``(m, 2)``, pairs of length 1 at m positions.
        after: ``(m, 2)``, the pairs at the same positions plus the offset.
        angles: The angle of the turn in radians, positive for clockwise.

    Returns:
        A figure of the unit circle with one arc arrow per position.

    Raises:
        ValueError: If a shape is wrong, a pair is not of length 1, or `after` is not `before`
            turned clockwise by `angles`.
    """
    before = checked("before", before, "m pair", pair=2)
    after = checked("after", after, "m pair", m=len(before), pair=2)
    if not np.allclose(lengths := np.hypot(*before.T), 1, atol=1e-3):
        raise ValueError(f"before must hold pairs of length 1, got lengths {lengths}")
    starts = np.arctan2(*before.T)
    if not np.allclose(after, _points(starts + angles), atol=1e-3):
        raise ValueError(f"after must be before turned clockwise by angles = {angles}, got {after}")

    figure = Figure(figsize=(3.8, 4.1), layout="constrained")
    axes = figure.subplots()
    axes.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    axes.set(xlabel="$p_{i,2j}$", ylabel="$p_{i,2j+1}$", title=rf"turn $\delta\omega_j$ = {angles:.2f}")
    axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=INK, linewidth=0.8))
    for k, start in enumerate(starts):
        color = PALETTE[k % 4]
        radius = 0.85 - 0.17 * (k % 4)
        for point, face in ((before[k], "none"), (after[k], color)):
            axes.plot(*zip((0, 0), point), color=color, linewidth=0.8, linestyle=":")
            axes.plot(*point, MARKERS[k % 4], markeredgecolor=color, markerfacecolor=face)
        arc = radius * _points(np.linspace(start, start + angles, 65))
        axes.add_patch(FancyArrowPatch(path=Path(arc), arrowstyle=ARROW, color=color, linewidth=1.4))
    return figure


def _points(angle: ArrayLike) -> NDArray:
    """Points of the unit circle, clockwise from the top."""
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)
