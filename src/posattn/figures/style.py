"""The style of the book's figures: fonts, ink, palette, arrows, and the check of what comes in.

Rules for a new figure:

1. Decorate it with `@drawn`, make a `Drawing` as wide as `width()`, and stack its panels where
   `phone()`; a block diagram then runs from top to bottom.
2. Leave fonts and sizes to the settings; `SMALL` is for numbers in cells, and nothing is smaller.
3. `QUERY`, `KEY`, `VALUE`, `POSITION` and `COLORS` mean just that; all else is `INK`, on no background.
4. Label a line at its end and a panel by its title; no legend, and no bar where numbers stand.
5. Never by colour alone: dashes, markers or words. A heat map is a `ramp`, its numbers `ink_on` it.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.patches import Patch
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from posattn.figures.svg import ink, svg

INK = "#000000"
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
QUERY, KEY, VALUE, POSITION = BLUE, ORANGE, GREEN, PINK  # through the whole book
MARKERS = "os^D"
ARROW = "-|>,head_length=0.4,head_width=0.15"

GRID = "#888888"
VIOLET, BROWN = "#8E6FD8", "#A0743A"  # legible on light and dark pages
COLORS = {  # the colours of lines, and how the labels begin that have them on all pages
    BLUE: ("rotary", "no repair", "nothing", "unchanged"),
    ORANGE: ("ALiBi", "interpolation", "position interpolation"),
    GREEN: ("half rotary", "NTK-aware"),
    PINK: ("T5", "YaRN"),
    VIOLET: ("KERPLE", "llama3"),
    BROWN: ("learned",),
    INK: ("mask alone", "no position"),
    GRID: ("sinusoid", "blind"),
}
SMALL = 9.3  # points: the smallest text, for numbers in cells

for _font in sorted(Path(__file__).parent.glob("fonts/*.ttf")):
    fontManager.addfont(_font)

_SETTINGS = {
    "svg.hashsalt": "posattn",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.labelsize": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "grid.color": GRID,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "font.family": ["Posattn Sans", "DejaVu Sans"],
    "font.size": 10,
    "mathtext.fontset": "cm",
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
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


def width() -> float:
    """Give the inches across that a figure may take, as wide as it is on a page or on a phone."""
    return 3.4 if phone() else 6.5


class Drawing(Figure):
    """A figure that notebooks show as it is, without pyplot: the same bytes each time.

    Its SVG carries the variant for a narrow screen, hidden, as a nested `svg` of class `phone`.
    """

    phone: "Drawing | None" = None

    def draw(self, renderer: Any) -> None:
        """Draw under the book's settings, on which the number of ticks depends, too."""
        with style.context(["default", _SETTINGS]):
            super().draw(renderer)

    def _repr_svg_(self) -> str:
        drawing = svg(self)
        if self.phone is None:
            return drawing
        outer = drawing.rstrip().removesuffix("</svg>")
        _, _, inner = svg(self.phone).partition("<svg")
        return f'{outer}<svg class="phone" display="none"{inner}</svg>\n'

    def _repr_pdf_(self) -> bytes:
        buffer = BytesIO()
        look = {"bbox_inches": ink(self), "metadata": {"CreationDate": None}}
        self.savefig(buffer, format="pdf", **look)
        return buffer.getvalue()


def drawn(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run `draw` under the book's settings, whatever the user's are, and leave those alone.

    What is too wide for a phone is drawn again: `draw` asks `phone()` where the two differ.
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
        if result.get_figwidth() <= 3.4:
            return result
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


def ramp(color: str, below: str | None = None) -> LinearSegmentedColormap:
    """Colours of a heat map: from the page itself to `color`, and from `below` where values have signs."""
    ends = [to_rgba(color, 0), to_rgba(color)]
    if below is not None:  # nothing at all in the middle
        ends = [(0, to_rgba(below)), (0.5, to_rgba(below, 0)), (0.5, ends[0]), (1, ends[1])]
    return LinearSegmentedColormap.from_list(color, ends)


def ink_on(color: str, alpha: float) -> str:
    """Ink that can be read on `color` of that opacity, be the page light or dark."""
    papers = np.array([to_rgb("#ffffff"), to_rgb("#131416")])
    cells = _luminance(alpha * np.array(to_rgb(color)) + (1 - alpha) * papers)
    inks = {INK: ("#000000", "#cfd0d0")} | {c: (c, c) for c in ("#ffffff", "#111111")}

    def contrast(ink: str) -> float:
        texts = _luminance(np.array([to_rgb(text) for text in inks[ink]]))
        return ((np.maximum(texts, cells) + 0.05) / (np.minimum(texts, cells) + 0.05)).min()

    return max(inks, key=contrast)


def _luminance(rgb: NDArray) -> NDArray:
    """Relative luminance as WCAG 2 defines it."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def integer_ticks(axis: Axis, size: int) -> None:
    """Tick every index where there are few, else as many round ones as fit."""
    every = FixedLocator(range(size))
    some = MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])
    axis.set_major_locator(every if size <= 8 else some)


def arrow(axes: Axes, tail: Patch, head: Patch, **look: Any) -> Annotation:
    """Draw an arrow between the borders of two patches, on the line of their centres."""
    ends = {"patchA": tail, "patchB": head, "shrinkA": 0, "shrinkB": 0}
    props = {"arrowstyle": ARROW, "color": INK, "linewidth": 0.8, **ends, **look}
    return axes.annotate("", xy=_centre(head), xytext=_centre(tail), arrowprops=props)


def _centre(patch: Patch) -> NDArray:
    outline = patch.get_patch_transform().transform_path(patch.get_path())
    return outline.get_extents().get_points().mean(axis=0)
