"""Attention in tiles: which parts of the scores are computed, and which are never looked at."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from posattn.figures.style import GRID, INK, KEY, QUERY, Drawing, drawn, phone, width


@drawn
def tiling(tiles: int, at: tuple[int, int]) -> Figure:
    """Draw the tiles of causal attention, and one of them with what it reads.

    Args:
        tiles: how many tiles the queries make, and the keys.
        at: the tile that is in hand, by the number of its queries and of its keys.

    Returns:
        A figure of a square of scores, query by key. Tiles that are computed are tinted, those on the
        diagonal half; hidden ones are dotted outlines. The tile in hand is full, with its queries on the
        left and its keys above.

    Raises:
        ValueError: if `tiles` is not positive, or the tile in hand is hidden.
    """
    row, column = at
    if tiles < 1:
        raise ValueError(f"tiles must be positive, got {tiles}")
    if not 0 <= column <= row < tiles:
        raise ValueError(f"at must be a tile on or below the diagonal, got {at}")
    side = width() if phone() else 3.6
    figure = Drawing((width(), side), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-1.1, tiles + 0.1), ylim=(tiles + 0.1, -1.1), aspect="equal")
    axes.set_axis_off()
    for i in range(tiles):
        for j in range(tiles):
            _tile(axes, i, j, (i, j) == at)
    for k in range(tiles):
        axes.add_patch(_bar(k, -0.55, 0.9, 0.3, KEY, k == column))
        axes.add_patch(_bar(-0.55, k, 0.3, 0.9, QUERY, k == row))
    axes.text(tiles / 2, -0.85, "keys and values", ha="center", va="center")
    axes.text(-0.85, tiles / 2, "queries", ha="center", va="center", rotation=90)
    return figure


def _bar(x: float, y: float, wide: float, tall: float, color: str, full: bool) -> Rectangle:
    """A strip of queries or of keys beside the tiles."""
    look = {"facecolor": color if full else "none", "edgecolor": color, "linewidth": 1.2}
    return Rectangle((x + 0.05, y + 0.05), wide, tall, **look)


def _tile(axes: Axes, i: int, j: int, full: bool) -> None:
    """The tile of queries `i` and keys `j`, of which the diagonal leaves a half."""
    (left, right), (top, low) = ((k + 0.05, k + 0.95) for k in (j, i))
    corners = [(left, top), (right, top), (right, low), (left, low)]
    if j > i:
        look = {"facecolor": "none", "edgecolor": GRID, "linewidth": 0.6, "linestyle": ":"}
        axes.add_patch(Polygon(corners, **look))
        return
    seen = [corners[0], corners[2], corners[3]] if i == j else corners
    axes.add_patch(Polygon(seen, facecolor=QUERY, alpha=1 if full else 0.25, linewidth=0))
    edge, wide = (INK, 1.5) if full else (QUERY, 0.8)
    axes.add_patch(Polygon(corners, facecolor="none", edgecolor=edge, linewidth=wide))
