"""Scores of many queries with many keys, so small that thirty of them fit a page."""

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from posattn.figures.style import POSITION, SMALL, Drawing, checked, drawn, ramp

SIDE = 1.6  # inches
SHADES = 12  # a picture of few shades takes few bytes


@drawn
def score_map(scores: ArrayLike) -> Figure:
    """Draw scores as a small square in twelve shades: pale is the lowest of them, dark the highest.

    Args:
        scores: `(n_q, n_k)`, finite, a row for each query.

    Returns:
        A figure of one panel, queries from top to bottom and keys from left to right. Scores that
        are all equal, up to a millionth of their size, have the palest shade.

    Raises:
        ValueError: if the shape is wrong, or a score is not finite.
    """
    scores = checked("scores", scores, "n_q n_k")
    if not np.isfinite(scores).all():
        raise ValueError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]}")
    low, span = scores.min(), np.ptp(scores)
    if span <= 1e-6 * np.abs(scores).max():
        span = np.inf
    shades = np.minimum(np.floor(SHADES * (scores - low) / span), SHADES - 1) / (SHADES - 1)
    figure = Drawing(figsize=(SIDE, SIDE), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shades, cmap=ramp(POSITION), vmin=0, vmax=1, interpolation="none")
    axes.spines[:].set_visible(True)
    axes.set(xticks=[0], yticks=[0])
    axes.tick_params(length=0, labelbottom=False, labelleft=False)
    axes.set_xlabel("key", fontsize=SMALL, labelpad=2)
    axes.set_ylabel("query", fontsize=SMALL, labelpad=2)
    return figure
