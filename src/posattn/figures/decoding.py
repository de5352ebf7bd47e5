"""Decoding with a cache: which scores each call computes, and from which keys."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from posattn.figures.style import GRID, INK, KEY, QUERY, SMALL, Drawing, drawn, phone, width

_ABOVE = 1.3  # cells from the first row of scores up to the keys


@drawn
def decoding(sizes: Sequence[int], words: Sequence[str]) -> Figure:
    """Draw the calls of a decoder that keeps its keys, one panel for each.

    Args:
        sizes: how many tokens each call is given, the prompt first.
        words: the tokens, as many as all calls together are given.

    Returns:
        A figure with one panel per call. Above stand the keys, where full squares come from the cache,
        and those with a cross are new. Below stands the lower triangle of the scores, query by key;
        those of this call are full, those of the calls before are dots.

    Raises:
        ValueError: if a size is not positive, or the words are not as many as the tokens.
    """
    sizes, words = list(sizes), list(words)
    if not sizes or min(sizes) < 1:
        raise ValueError(f"sizes must be positive and not empty, got {sizes}")
    if sum(sizes) != len(words):
        raise ValueError(f"words must be {sum(sizes)}, one per token, got {words}")

    n, ends = len(words), np.cumsum(sizes).tolist()
    grid = (len(sizes), 1) if phone() else (1, len(sizes))
    across = (width() - 0.8) / grid[1] if not phone() else 2.0
    tall = across * (n + 2 * _ABOVE) / n + 0.75
    figure = Drawing((width(), grid[0] * tall), layout="constrained")
    for k, panel in enumerate(figure.subplots(*grid, squeeze=False).flat):
        _panel(panel, ends[k] - sizes[k], ends[k], n)
        panel.set_xticks(range(n), words, rotation=90)
        names = [] if k and not phone() else ["keys", *words]
        panel.set_yticks([-_ABOVE, *range(n)] if names else [], names)
        panel.set_xlabel(f"{sum(range(ends[k] - sizes[k] + 1, ends[k] + 1))} scores")
        panel.set_title(f"call {k + 1}: {sizes[k]} token{'s' * (sizes[k] > 1)}")
    return figure


def _panel(axes: Axes, start: int, stop: int, n: int) -> None:
    """One call, which is given the tokens from `start` up to `stop` of `n`."""
    axes.set(xlim=(-0.6, n - 0.4), ylim=(n - 0.4, -_ABOVE - 1.4), aspect="equal")
    axes.tick_params(length=0)
    axes.spines[["left", "top", "right"]].set_visible(False)
    for j in range(n):
        kept, new = j < start, start <= j < stop
        face, edge = KEY if kept else "none", KEY if j < stop else GRID
        look = {"facecolor": face, "edgecolor": edge}
        look |= {"linewidth": 1.2} if j < stop else {"linewidth": 0.6, "linestyle": ":"}
        axes.add_patch(Rectangle((j - 0.4, -_ABOVE - 0.4), 0.8, 0.8, **look))
        if new:
            axes.plot(j, -_ABOVE, "P", color=KEY, markersize=6)
    counts = {"cached": (0, start), "new": (start, stop)}
    for name, (first, last) in counts.items():
        if last > first:
            middle, text = (first + last - 1) / 2, f"{last - first} {name}"
            axes.text(middle, -_ABOVE - 0.6, text, ha="center", va="bottom", fontsize=SMALL)
    for i in range(stop):
        if i >= start:
            for j in range(i + 1):
                corner = j - 0.45, i - 0.45
                axes.add_patch(Rectangle(corner, 0.9, 0.9, color=QUERY, linewidth=0))
        else:
            axes.scatter(range(i + 1), [i] * (i + 1), s=5, color=INK, linewidths=0)
