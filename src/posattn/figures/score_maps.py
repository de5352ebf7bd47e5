"""Scores of many queries with many keys, so small that thirty of them fit a page."""

from collections.abc import Mapping
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import (
    BLUE,
    GRID,
    INK,
    SMALL,
    Drawing,
    checked,
    drawn,
    held,
    phone,
    ramp,
    width,
)

SIDE = 1.6  # inches
SHADES = 12  # a picture of few shades takes few bytes
LOOK = {"cmap": ramp(BLUE), "interpolation": "none", "clip_on": False}


@drawn
def score_map(scores: ArrayLike) -> Figure:
    """Draw scores as a small square in twelve shades: pale is the lowest of them, dark the highest.

    Args:
        scores: `(n_q, n_k)`, finite, a row for each query.

    Returns:
        A figure of one panel without words, queries from top to bottom and keys from left to right.
        Scores that are all equal, up to a millionth of their size, have the palest shade.

    Raises:
        ValueError: if the shape is wrong, or a score is not finite.
    """
    figure = Drawing(figsize=(SIDE, SIDE), layout="constrained")
    axes = figure.subplots()
    shades = _shades(scores)
    axes.set_axis_off()
    axes.imshow(shades, **LOOK)
    frame = Rectangle((-0.5, -0.5), *shades.T.shape, fill=False, edgecolor=GRID)
    axes.add_patch(frame).set(linewidth=0.7, clip_on=False)
    return figure


@drawn
def score_maps(maps: Mapping[str, ArrayLike]) -> Figure:
    """Draw many maps on one sheet, each above its name, in the shades of `score_map`.

    Args:
        maps: the scores under each name, `(n, n)`, finite.

    Returns:
        A figure of one panel, nine maps in a row, or four on a phone.

    Raises:
        ValueError: if there is no map, a shape is wrong, or a score is not finite.
    """
    names = held("maps", maps)
    n = len(np.asarray(maps[names[0]]))
    columns = 4 if phone() else 9
    across, down = n * 7 // 6, n * 5 // 3  # from map to map
    sheet = np.full((-(-len(names) // columns) * down, columns * across), np.nan)
    figure = Drawing(figsize=(width(), width() * sheet.shape[0] / sheet.shape[1]))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    square = n * np.array([(0, 0), (0, 1), (1, 1), (1, 0), (0, 0), (np.nan, 0)]) - 0.5
    frames = []
    for k, name in enumerate(names):
        top, left = k // columns * down, k % columns * across
        sheet[top : top + n, left : left + n] = _shades(maps[name], n_q=n, n_k=n)
        frames.append(square + np.array([left, top]))
        words = fill(name, 12, break_long_words=False)
        axes.text(left, top + n, words, fontsize=SMALL, va="top")
    axes.imshow(sheet, **LOOK)
    axes.plot(*np.concatenate(frames).T, color=INK, linewidth=0.5, clip_on=False)
    return figure


def _shades(scores: ArrayLike, **sizes: int) -> NDArray:
    """Scores between 0, the lowest, and 1, the highest, in as many steps as there are shades."""
    scores = checked("scores", scores, "n_q n_k", **sizes)
    if not np.isfinite(scores).all():
        raise ValueError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]}")
    low, span = scores.min(), np.ptp(scores)
    if span <= 1e-6 * np.abs(scores).max():
        span = np.inf
    steps = np.floor(SHADES * (scores - low) / span + 1e-9)  # equal scores in one shade
    return np.minimum(steps, SHADES - 1) / (SHADES - 1)
