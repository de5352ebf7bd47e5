"""What all figures share: ink, palette, arrows, and the check of what comes in."""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from io import BytesIO
from typing import Any, ParamSpec, TypeVar

import numpy as np
from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, MaxNLocator
from numpy.typing import ArrayLike, NDArray

INK = "#000000"
BLUE, ORANGE, GREEN, PINK = PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
QUERY, KEY, VALUE, POSITION = BLUE, ORANGE, GREEN, PINK  # through the whole book
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

_PHONE = ContextVar("phone", default=False)

P = ParamSpec("P")
T = TypeVar("T")


def phone() -> bool:
    """Whether the variant for a narrow screen is being drawn: at most 3.4 inches, panels stacked."""
    return _PHONE.get()


class Drawing(Figure):
    """A figure that notebooks show as it is, without pyplot: the same bytes each time.

    Its SVG carries the variant for a narrow screen, hidden, as a nested `svg` of class `phone`.
    """

    phone: "Drawing | None" = None

    def _repr_svg_(self) -> str:
        svg = self._saved("svg").decode()
        if self.phone is None:
            return svg
        inner = self.phone._saved("svg").decode()
        inner = inner[inner.index("<svg") :].replace(
            "<svg", '<svg class="phone" display="none"', 1
        )
        return f"{svg.rstrip().removesuffix('</svg>')}{inner}</svg>\n"

    def _repr_pdf_(self) -> bytes:
        return self._saved("pdf")

    def _saved(self, form: str) -> bytes:
        buffer = BytesIO()
        dated = {"svg": "Date", "pdf": "CreationDate"}[form]
        with rc_context({"svg.hashsalt": "posattn"}):
            self.savefig(buffer, format=form, metadata={dated: None})
        return buffer.getvalue()


def drawn(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run `draw` under the book's settings, whatever the user's are, and leave those alone.

    It is run twice, the second time for a phone: `draw` asks `phone()` where the two differ.
    """

    def once(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style.context(["default", _SETTINGS]):
            result = draw(*args, **kwargs)
            result.draw_without_rendering()  # ticks are made lazily, with the settings of that hour
            result.set_layout_engine("none")  # or each saving moves things by a hair
        return result

    @wraps(draw)
    def figure(*args: P.args, **kwargs: P.kwargs) -> Figure:
        result = once(*args, **kwargs)
        token = _PHONE.set(True)
        try:
            result.phone = once(*args, **kwargs)
        finally:
            _PHONE.reset(token)
        return result

    return figure


def checked(
    name: str, value: ArrayLike, axes: str, kind: type = float, **sizes: int
) -> NDArray:
    """Return `value` as an array whose axes are named in `axes`; equal names are equal sizes.

    Args:
        name: the argument, for the error.
        value: what the user gave.
        axes: names of the axes, separated by blanks: `"n d"`.
        kind: `float`, which converts, or `bool`, which does not.
        **sizes: sizes of axes that are known already.

    Returns:
        An array of that kind.

    Raises:
        ValueError: if an axis is missing, empty or of another size, or the array is not boolean.
    """
    array = np.asarray(value)
    names = axes.split()
    expected = ", ".join(str(sizes.get(axis, axis)) for axis in names)
    pairs = list(zip(names, array.shape, strict=False))
    if array.ndim != len(names) or any(
        sizes.setdefault(axis, size) != size for axis, size in pairs
    ):
        raise ValueError(f"{name} must have shape ({expected}), got {array.shape}")
    if not array.size:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    if kind is bool and array.dtype != bool:
        raise ValueError(f"{name} must be boolean, got {array.dtype}")
    return array.astype(kind)


def held(name: str, items: Iterable[T]) -> list[T]:
    """Return `items` as a list, if there are any."""
    items = list(items)
    if not items:
        raise ValueError(f"{name} must not be empty, got {items}")
    return items


def integer_ticks(axis: Axis, size: int) -> None:
    """Tick every index where there are few, else as many round ones as fit."""
    every = FixedLocator(range(size))
    some = MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])
    axis.set_major_locator(every if size <= 8 else some)


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
    outline = patch.get_patch_transform().transform_path(patch.get_path())
    return outline.get_extents().get_points().mean(axis=0)
