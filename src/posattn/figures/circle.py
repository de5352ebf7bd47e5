"""A pair of columns of an encoding as a point that rotates on the unit circle."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch
from matplotlib.path import Path
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import ARROW, INK, MARKERS, POSITION, Drawing, checked, drawn


@drawn
def rotation(
    before: ArrayLike, after: ArrayLike, angles: float, labels: ArrayLike = ()
) -> Figure:
    r"""Draw how an offset rotates the pairs of all positions by one and the same angle.

    The pair at position i is $(\cos \omega_c i, \sin \omega_c i)$: it starts on the right and
    rotates counterclockwise, and the offset $\delta$ rotates it by $\delta \omega_c$.

    Args:
        before: `(m, 2)`, pairs of length 1 at m positions.
        after: `(m, 2)`, the pairs at the same positions plus the offset.
        angles: the angle of the rotation in radians, positive for counterclockwise.
        labels: the m positions, and then the m after the offset; none by default.

    Returns:
        A figure of the unit circle with one arc arrow per position, from an open mark to a full one.

    Raises:
        ValueError: if a shape is wrong, a pair is not of length 1, `after` is not `before`
            rotated counterclockwise by `angles`, or labels are not 2 m.
    """
    before = checked("before", before, "m pair", pair=2)
    after = checked("after", after, "m pair", m=len(before), pair=2)
    if not np.allclose(lengths := np.hypot(*before.T), 1, atol=1e-3):
        raise ValueError(f"before must hold pairs of length 1, got lengths {lengths}")
    starts = np.arctan2(before[:, 1], before[:, 0])
    if not np.allclose(after, _points(starts + angles), atol=1e-3):
        raise ValueError(
            f"after must be before rotated counterclockwise by angles = {angles}, got {after}"
        )
    if np.size(labels) not in (0, len(before) * 2):
        raise ValueError(f"labels must be two for each position, got {labels}")

    axes = Drawing(figsize=(3.4, 3.6), layout="constrained").subplots()
    axes.set(aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), xticks=(-1, 0, 1))
    axes.set(yticks=(-1, 0, 1), title=rf"rotated by $\delta\,\omega_c = {angles:.2f}$")
    axes.set(xlabel=r"$\cos(i\,\omega_c)$", ylabel=r"$\sin(i\,\omega_c)$")
    axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=INK, linewidth=0.8))
    for k, start in enumerate(starts):
        for point, size, face in ((before[k], 9, "none"), (after[k], 6, POSITION)):
            axes.plot(*zip((0, 0), point, strict=True), ":", color=INK, linewidth=0.8)
            look = {"color": POSITION, "markerfacecolor": face, "markeredgewidth": 1.5}
            axes.plot(*point, MARKERS[k % 4], markersize=size, **look)
        arc = (0.85 - 0.17 * (k % 4)) * _points(np.linspace(start, start + angles, 65))
        look = {"arrowstyle": ARROW, "color": POSITION, "linewidth": 1.6}
        axes.add_patch(FancyArrowPatch(path=Path(arc), mutation_scale=12, **look))
    for point, label in zip((*before, *after), np.asarray(labels).flat, strict=False):
        axes.text(*(1.22 * point), label, ha="center", va="center")
    return axes.figure


def _points(angle: ArrayLike) -> NDArray:
    """Points of the unit circle, counterclockwise from the right."""
    return np.column_stack([np.cos(angle), np.sin(angle)])
