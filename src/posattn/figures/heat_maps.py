"""Heat maps: attention weights, masks, and binary numbers beside an encoding."""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import (
    BLUE,
    BROWN,
    GRID,
    INK,
    POSITION,
    SMALL,
    Drawing,
    checked,
    drawn,
    held,
    ink_on,
    integer_ticks,
    phone,
    ramp,
    width,
)

_TEXT = 4.73  # inches: as wide as the text where `width()` is as wide as code
_HIGH = 3.2  # inches: the highest panel
_MARGIN, _GAP = 0.55, 0.2  # inches beside the panels, and between them
_PRINTED = 64  # cells
_CELL, _NARROW = 0.29, 0.24  # inches that a printed weight needs, and where room is scarce
_WORD = 0.14  # inches that a word needs below another
_SLACK = 1e-6
_SHADE = 0.6  # power of a weight, so that a tenth can be told from nothing


@drawn
def attention_weights(
    weights: ArrayLike,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    titles: Sequence[str] | None = None,
    ylabel: str = "query",
    xlabel: str = "key",
) -> Figure:
    """Draw attention weights as heat maps on one scale from 0 to 1, with the numbers if few.

    Args:
        weights: `(n_q, n_k)`, or one panel per head: `(h, n_q, n_k)`.
        row_labels: the n_q queries; their indices by default.
        column_labels: the n_k keys; their indices by default.
        titles: the h panels; none by default.
        ylabel: what the rows are, if they are no queries.
        xlabel: what the columns are, if they are no keys.

    Returns:
        A figure with h panels, as wide as text or as code. They print their values, without what
        rounds to 0.00, if these are at most 64 and fit; else a bar tells which colour is which weight.

    Raises:
        ValueError: if a shape is wrong, or a weight lies outside 0 to 1.
    """
    if np.ndim(weights) == 2:
        weights = np.asarray(weights)[None]
    weights = checked("weights", weights, "h n_q n_k")
    _, n_q, n_k = weights.shape
    inside = (weights >= -_SLACK) & (weights <= 1 + _SLACK)
    _check_values("weights", weights, inside, "lie in [0, 1]")
    _check_labels("row_labels", row_labels, n_q)
    _check_labels("column_labels", column_labels, n_k)

    left = _inches(row_labels)
    printed = n_q * n_k <= _PRINTED and _NARROW * n_k <= width() - _MARGIN - left
    figure, panels = _panels(weights.shape, _CELL * printed, left, titles, (xlabel, ylabel))
    for axes, values in zip(panels, weights.clip(0), strict=True):
        image = _heat_map(axes, values, ramp(BLUE))
        image.set_norm(PowerNorm(_SHADE, 0, 1))
        if printed:
            texts = np.char.mod("%.2f", values)
            _part(image)
            _print_cells(axes, np.where(texts == "0.00", "", texts), BLUE, values**_SHADE)
        if row_labels is not None:
            axes.set_yticks(range(n_q), row_labels)
        if column_labels is not None:
            _name_keys(axes, column_labels)
    if not printed:
        _bar(figure, image, panels, "attention weight")
    _flatten(panels, n_q, n_k, _WORD * (left > 0))
    return figure


@drawn
def masks(masks: Iterable[ArrayLike], titles: Sequence[str]) -> Figure:
    """Draw masks side by side: who may attend is filled, who may not is a cross.

    Args:
        masks: boolean arrays, all `(n_q, n_k)`; True means may attend.
        titles: one title per mask.

    Returns:
        A figure with one panel per mask.

    Raises:
        ValueError: if there is no mask, one is not boolean or has another shape than the first,
            or the titles are not as many.
    """
    masks = held("masks", masks)
    n_q, n_k = checked("masks[0]", masks[0], "n_q n_k", bool).shape
    figure, panels = _panels((len(masks), n_q, n_k), titles=titles)
    size = min(4, 24 * _cell(panels[0], n_k))
    for k, axes in enumerate(panels):
        mask = checked(f"masks[{k}]", masks[k], "n_q n_k", bool, n_q=n_q, n_k=n_k)
        _part(_heat_map(axes, mask, ListedColormap(["none", BLUE])), 0.9)
        look = {"color": GRID, "markersize": size, "markeredgewidth": size / 4.5}
        axes.plot(*np.nonzero(~mask)[::-1], "x", **look)
    _flatten(panels, n_q, n_k)
    return figure


@drawn
def binary_counting(bits: ArrayLike, encoding: ArrayLike) -> Figure:
    """Draw binary numbers beside an encoding: in both, the frequency falls along the columns.

    Args:
        bits: `(m, b)` of 0 and 1, row i the number i as one writes it, the lowest bit rightmost.
        encoding: `(n, d)`, one row per position, values in [-1, 1].

    Returns:
        A figure with two panels; an arrow over each tells where the frequency falls.

    Raises:
        ValueError: if a shape is wrong, a bit is neither 0 nor 1, or a value leaves [-1, 1].
    """
    bits = checked("bits", bits, "m b")
    encoding = checked("encoding", encoding, "n d")
    _check_values("bits", bits, np.isin(bits, (0, 1)), "be 0 or 1")
    _check_values("encoding", encoding, np.abs(encoding) <= 1 + _SLACK, "lie in [-1, 1]")
    b = bits.shape[1]
    stacked = {"nrows": 2, "height_ratios": (1, 1.5)}
    beside = {"ncols": 2, "width_ratios": (1, 2.2)}
    figure = Drawing((width(), 7.3 if phone() else 3.6), layout="constrained")
    left, right = figure.subplots(**(stacked if phone() else beside))
    _part(_heat_map(left, bits, ramp(POSITION)))
    _print_cells(left, np.char.mod("%d", bits), POSITION, bits)
    left.set_xticks(range(b), [str(b - 1 - k) for k in range(b)])
    left.set(xlabel="bit", ylabel="number", title="\N{LEFTWARDS ARROW} frequency falls")
    image = _heat_map(right, encoding, ramp(POSITION, BROWN), -1)
    right.set(xlabel="column (encoding dimension)", ylabel="row (position $i$)")
    right.set_title("frequency falls \N{RIGHTWARDS ARROW}")
    _bar(figure, image, [right], "value")
    return figure


@drawn
def right_and_wrong(
    right: ArrayLike, *wrong: ArrayLike, xlabel: str, ylabel: str
) -> Figure:
    """Draw what is right beside what is wrong as small heat maps on one scale.

    Args:
        right: `(m, n)`.
        *wrong: one or two others of its shape; NaN is a cross.
        xlabel: what the n columns are.
        ylabel: what the m rows are.

    Returns:
        A figure with a panel for each, as narrow as a phone; the darker, the larger.

    Raises:
        ValueError: if a shape is wrong.
    """
    m, n = checked("right", right, "m n").shape
    maps = [checked("wrong", values, "m n", m=m, n=n) for values in (right, *wrong)]
    low, high = np.nanmin(maps), np.nanmax(maps)
    figure = Drawing(figsize=(3.4, 1.55), layout="constrained")
    panels = figure.subplots(1, len(maps), sharey=True)
    titles = ("right", "wrong", "also wrong")
    for axes, values, title in zip(panels, maps, titles, strict=False):
        _heat_map(axes, values, ramp(BLUE), low, high)
        axes.plot(*np.nonzero(np.isnan(values))[::-1], "x", color=INK)
        axes.set(title=title, xlabel=xlabel)
    panels[0].set_ylabel(ylabel)
    return figure


def _panels(
    shape: tuple[int, ...],
    cell: float = 0.0,
    left: float = 0.0,
    titles: Sequence[str] | None = None,
    names: tuple[str, str] = ("key", "query"),
) -> tuple[Figure, list[Axes]]:
    """Lay out panels in rows, across the text if they have room there, else as wide as code.

    In inches: no cell narrower than `cell`, and `left` for the labels of the rows.
    """
    count, n_q, n_k = shape
    _check_labels("titles", titles, count)
    side = 0.45 if cell else 0.24  # of a cell that looks well
    cell = max(cell, _WORD * (left > 0))
    least = max(1.0, 0.085 * max(map(len, titles or [""])))
    room = width() - _MARGIN - left + _GAP
    widths = np.maximum(least, n_k * np.minimum(cell, (cell, _NARROW)))
    fitting, tightly = (room / (widths + _GAP)).astype(int)
    rows = 1 if count <= tightly else -(-count // max(1, fitting))
    per_row = -(-count // rows)
    wanted = per_row * (max(least, min(side * n_k, _HIGH * n_k / n_q)) + _GAP)
    across = min(width(), _TEXT) if wanted <= _TEXT - width() + room else width()
    figure = Drawing((across, 2.0 * rows), layout="constrained")
    figure.get_layout_engine().set(hspace=0, h_pad=0.06)
    panels = list(figure.subplots(rows, per_row, squeeze=False).flat)
    for axes in panels[count:]:
        axes.remove()
    for k, axes in enumerate(panels[:count]):
        axes.set(xlabel=names[0], ylabel="" if k % per_row else names[1])
        axes.set_title(titles[k] if titles is not None else "")
        axes.tick_params(labelleft=k % per_row == 0, labelsize=SMALL if left else None)
    return figure, panels[:count]


def _cell(axes: Axes, columns: int) -> float:
    """Inches from column to column, once the layout is known."""
    axes.figure.get_layout_engine().execute(axes.figure)
    return axes.get_position().width * axes.figure.get_figwidth() / columns


def _flatten(panels: list[Axes], n_q: int, n_k: int, least: float = 0.0) -> None:
    """Give the figure its height: small cells are square, wide ones at most twice as wide as high."""
    cell, figure = _cell(panels[0], n_k), panels[0].figure
    height, rows = figure.get_figheight(), panels[0].get_gridspec().nrows
    cell = max(least, min(cell, max(0.45, cell / 2)))
    down = min(n_q * cell, _HIGH if rows == 1 else 2.4)
    figure.set_figheight(height + rows * (down - panels[0].get_position().height * height))


def _inches(labels: Sequence[str] | None) -> float:
    return 0.075 * max(map(len, labels)) if labels is not None else 0.0


def _bar(figure: Figure, image: AxesImage, panels: list[Axes], label: str) -> None:
    """Tell which colour is which value: beside the panels, or on a phone below them."""
    location = "bottom" if phone() else "right"
    figure.colorbar(image, ax=panels, label=label, location=location, aspect=25)


def _heat_map(
    axes: Axes, values: NDArray, cmap: Colormap, low: float = 0, high: float = 1
) -> AxesImage:
    axes.spines[:].set_visible(True)
    integer_ticks(axes.yaxis, values.shape[0])
    integer_ticks(axes.xaxis, values.shape[1])
    look = {"cmap": cmap, "vmin": low, "vmax": high, "interpolation": "none"}
    return axes.imshow(values, aspect="auto", **look)


def _part(image: AxesImage, side: float = 0.94) -> None:
    """Leave the page between the cells instead of a frame around them."""
    cell = Path.unit_rectangle()
    cells = [
        Path(side * (cell.vertices - 0.5) + (j, i), cell.codes)
        for i, j in np.ndindex(*image.get_array().shape)
    ]
    axes, cells = image.axes, Path.make_compound_path(*cells)
    image.set_clip_path(cells, axes.transData)
    axes.add_patch(PathPatch(cells, color=GRID, alpha=0.1, linewidth=0, zorder=-1))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _name_keys(axes: Axes, names: Sequence[str]) -> None:
    """Write the names of the keys, upright where they do not fit side by side."""
    upright = _inches(names) + 0.04 > _cell(axes, len(names))
    axes.set_xticks(range(len(names)), names, rotation=90 * upright)


def _print_cells(axes: Axes, texts: NDArray, color: str, shades: NDArray) -> None:
    """Print texts in their cells, in what can be read on their shades, whatever the page is."""
    for (i, j), text in np.ndenumerate(texts):
        if text:
            look = {"color": ink_on(color, shades[i, j]), "fontsize": SMALL}
            axes.text(j, i, text, ha="center", va="center", **look)


def _check_labels(name: str, labels: Sequence[str] | None, size: int) -> None:
    if labels is not None and len(labels) != size:
        raise ValueError(f"{name} must hold {size} strings, got {len(labels)}")


def _check_values(name: str, values: NDArray, good: NDArray, expected: str) -> None:
    if not good.all():
        raise ValueError(f"{name} must {expected}, got {values[~good][0]}")
