"""What all figures share: ink, palette, arrows, and the check of what comes in."""

from collections.abc import Callable, Sized
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from numpy.typing import ArrayLike, NDArray

INK = "#000000"
BLUE, ORANGE, GREEN, PINK = PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
MARKERS = "os^D"
ARROW = "-|>,head_length=0.4,head_width=0.15"

_SETTINGS = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.titlesize": 10,
    "font.size": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
} | dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
)

P = ParamSpec("P")
T = TypeVar("T", bound=Sized)


def drawn(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run `draw` under the book's settings, whatever the user's are, and leave those alone."""

    @wraps(draw)
    def figure(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style.context(["default", _SETTINGS]):
            result = draw(*args, **kwargs)
            result.draw_without_rendering()  # ticks are made lazily, with the settings of that hour
        return result

    return figure


def checked(name: str, value: ArrayLike, axes: str, kind: type = float, **sizes: int) -> NDArray:
    """Return `value` as an array whose axes are named in `axes`; equal names are equal sizes.

    Args:
        name: The argument, for the error.
        value: What the user gave.
        axes: Names of the axes, separated by blanks: ``"n d"``.
        kind: `float`, which converts, or `bool`, which does not.
        **sizes: Sizes that are already known.

    Raises:
        ValueError: If an axis is missing, empty or of another size, or a mask is not boolean.
    """
    array = np.asarray(value)
    known = sizes | {axis: size for axis, size in zip(axes.split(), array.shape) if axis not in sizes}
    if array.shape != tuple(known.get(axis) for axis in axes.split()) or not array.size:
        where = "".join(f" with {axis} = {size}" for axis, size in sizes.items())
        expected = f"({axes.replace(' ', ', ')}{',' * (' ' not in axes)})"
        raise ValueError(
            f"{name} must be a nonempty array of shape {expected}{where}, got shape {array.shape}"
        )
    if kind is bool and array.dtype != bool:
        raise ValueError(f"{name} must be boolean, got dtype {array.dtype}")
    return array.astype(kind)


def held(name: str, items: T) -> T:
    """Return `items` if there are any."""
    if not len(items):
        raise ValueError(f"{name} must hold at least one item, got {items!r}")
    return items


def arrow(axes: Axes, tail: Patch, head: Patch, **look: Any) -> Annotation:
    """Draw an arrow between the borders of two patches, on the line of their centres."""
    return axes.annotate(
        "",
        xy=_centre(head),
        xytext=_centre(tail),
        arrowprops={
            "arrowstyle": ARROW,
            "patchA": tail,
            "patchB": head,
            "shrinkA": 0,
            "shrinkB": 0,
            "color": INK,
            "linewidth": 0.8,
        }
        | look,
    )


def _centre(patch: Patch) -> NDArray:
    return patch.get_patch_transform().transform_path(patch.get_path()).get_extents().get_points().mean(axis=0)
