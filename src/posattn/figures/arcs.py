"""Queries and keys of width 2 as vectors that rotate with their positions."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle
from numpy.typing import ArrayLike

from posattn.figures.style import ARROW, INK, KEY, POSITION, QUERY, Drawing, checked, drawn
from posattn.figures.style import phone as on_a_phone


@drawn
def rotated_vectors(
    queries: ArrayLike,
    keys: ArrayLike,
    labels: Sequence[Sequence[str]],
    titles: Sequence[str],
) -> Figure:
    """Draw rotated queries and keys of width 2 as vectors, and the angles between them.

    Args:
        queries: `(m, 2)`, one rotated query for each panel.
        keys: `(m, n, 2)`, the rotated keys of each panel.
        labels: for each panel, the names of its query and then of its keys.
        titles: one for each panel.

    Returns:
        A figure of m circles, each vector from the centre in the direction of its pair, with an arc
        from the query to each key that bears the angle in degrees.

    Raises:
        ValueError: if a shape is wrong, a pair is zero, or labels or titles do not fit the panels.
    """
    queries = checked("queries", queries, "m pair", pair=2)
    keys = checked("keys", keys, "m n pair", m=len(queries), pair=2)
    vectors = np.concatenate([queries[:, None], keys], axis=1)
    if not np.hypot(*vectors.T).all():
        raise ValueError(f"queries and keys must not be zero, got {vectors.tolist()}")
    if [len(names) for names in labels] != [vectors.shape[1]] * len(vectors):
        raise ValueError(
            f"labels must name {vectors.shape[1]} vectors per panel, got {labels}"
        )
    if len(titles) != len(vectors):
        raise ValueError(f"titles must be {len(vectors)}, one per panel, got {titles}")

    grid = (len(vectors), 1) if on_a_phone() else (1, len(vectors))
    figure = Drawing(figsize=(3.2 * grid[1], 2.8 * grid[0]), layout="constrained")
    for panel, directions, names, title in zip(
        figure.subplots(*grid, squeeze=False).flat,
        np.arctan2(vectors[..., 1], vectors[..., 0]),
        labels,
        titles,
        strict=True,
    ):
        panel.set(aspect="equal", xlim=(-1.6, 1.6), ylim=(-1.2, 1.2), title=title)
        panel.set_axis_off()
        panel.add_patch(
            Circle((0, 0), 1, fill=False, edgecolor=INK, linewidth=0.7, alpha=0.5)
        )
        for k, (direction, name) in enumerate(zip(directions, names, strict=True)):
            point = np.array([np.cos(direction), np.sin(direction)])
            look = {"arrowstyle": ARROW, "color": KEY if k else QUERY, "linewidth": 2}
            look |= {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 12}
            panel.annotate("", xy=point, xytext=(0, 0), arrowprops=look)
            panel.text(*(1.08 * point), name, **_outside(point))
            if k:
                _angle(panel, directions[0], direction, radius=0.18 + 0.2 * k)
    return figure


def _angle(axes, start, stop, radius):
    """Draw the smaller arc between two directions and write its size beside its middle."""
    turn = (stop - start + np.pi) % (2 * np.pi) - np.pi
    ends = np.degrees(sorted((start, start + turn)))
    size = 2 * radius
    axes.add_patch(
        Arc((0, 0), size, size, theta1=ends[0], theta2=ends[1], color=POSITION, lw=1.6)
    )
    middle = start + turn / 2
    place = np.array([np.cos(middle), np.sin(middle)])
    name = f"{np.degrees(abs(turn)):.0f}°"
    axes.text(*((radius + 0.06) * place), name, **_outside(place))


def _outside(point):
    """The alignment of a text that begins at a point and leads away from the centre."""
    x, y = point
    across = "center" if abs(x) < 0.3 else "left" if x > 0 else "right"
    return {"ha": across, "va": "center" if abs(y) < 0.7 else "bottom" if y > 0 else "top"}
