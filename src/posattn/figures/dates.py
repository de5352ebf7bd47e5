"""What came when: dates in lanes, from top to bottom."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from posattn.figures.style import GRID, INK, SMALL, Drawing, drawn, held, phone, width


@drawn
def dates(lanes: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw dates as marks in lanes that run from top to bottom, the earliest first.

    Args:
        lanes: for the name of each lane, what stands in it and the year, with a fraction for the
            month; what stands in one lane should be at least a third of a year apart.

    Returns:
        A figure with a lane for each name, and a mark with its label at each date.

    Raises:
        ValueError: if there is no lane, a lane is empty, or a year is not finite.
    """
    lanes = {name: dict(marks) for name, marks in held("lanes", lanes.items())}
    for name, marks in lanes.items():
        if not marks or not np.isfinite(list(marks.values())).all():
            raise ValueError(f"lanes[{name!r}] must hold finite years, got {marks}")
    years = [year for marks in lanes.values() for year in marks.values()]
    low, high = min(years) - 0.5, max(years) + 0.5
    figure = Drawing(figsize=(width(), 0.9 + 0.42 * (high - low)), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.06, len(lanes) - 0.02), ylim=(high, low))
    for lane, (name, marks) in enumerate(lanes.items()):
        axes.axvline(lane, color=GRID, linewidth=0.8, alpha=0.6, zorder=0)
        axes.plot([lane] * len(marks), list(marks.values()), "o", color=INK)
        for label, year in marks.items():
            axes.text(lane + 0.06, year, label, va="center", fontsize=SMALL)
        title = name.replace(" ", "\n", 1) if phone() else name
        axes.text(lane, low - 0.15, title, va="bottom", fontweight="bold", fontsize=SMALL)
    axes.yaxis.set_major_locator(MultipleLocator(1))
    axes.yaxis.set_major_formatter("{x:.0f}")
    axes.set_xticks([])
    axes.spines[["bottom"]].set_visible(False)
    return figure
