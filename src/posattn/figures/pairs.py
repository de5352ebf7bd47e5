"""An encoding as a wall of dials: one row for each token, one dial for each pair of columns."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle, Wedge
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import INK, POSITION, Drawing, checked, drawn, phone

_ROW, _HEAD, _BIT = 0.6, 0.4, 0.15  # inches


@drawn
def pairs(encoding: ArrayLike, tokens: Sequence[str]) -> Figure:
    r"""Draw all pairs at the positions of a sentence as hands of dials, beside the positions in binary.

    A pair of columns $(\sin \omega_j i, \cos \omega_j i)$ is a hand that starts on top and runs
    clockwise; what it has passed over since the position before is shaded.

    Args:
        encoding: `(n, d)`, the positions 0..n-1, d even, every pair of length 1.
        tokens: the n tokens.

    Returns:
        A figure with one row per token and one dial per pair.

    Raises:
        ValueError: if a shape is wrong, d is odd, a pair is not of length 1, or there are not n
            tokens.
    """
    encoding = checked("encoding", encoding, "n d")
    n, d = encoding.shape
    if d % 2:
        raise ValueError(f"encoding must have an even number of columns, got {d}")
    hands = encoding.reshape(n, d // 2, 2)
    lengths = np.hypot(hands[..., 0], hands[..., 1])
    if not np.allclose(lengths, 1, atol=1e-3):
        raise ValueError(f"encoding must hold pairs of length 1, got lengths {lengths}")
    if len(tokens) != n:
        raise ValueError(f"tokens must hold {n} strings, got {len(tokens)}")

    width, left, right = (3.4, 0.95, 3.4) if phone() else (6.5, 1.9, 6.2)
    bits = max(1, (n - 1).bit_length())
    dials = left + _BIT * bits + 0.15
    pitch = (right - dials) / (d // 2)
    radius = min(0.24, 0.44 * pitch)
    height = _HEAD + _ROW * n
    axes = Drawing(figsize=(width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    centers = dials + pitch * (np.arange(d // 2) + 0.5)
    top = height - _HEAD / 2
    look = {"ha": "center", "va": "center"}
    axes.text(left + _BIT * (bits - 1) / 2, top, "binary", **look)
    for j, x in enumerate(centers):
        axes.text(x, top, f"pair\n{j}" if phone() else f"pair {j}", **look)
    angles = np.arctan2(hands[..., 0], hands[..., 1])
    square = {"width": 0.8 * _BIT, "height": 0.8 * _BIT, "edgecolor": INK, "lw": 0.7}
    for i, token in enumerate(tokens):
        y = height - _HEAD - _ROW * (i + 0.5)
        axes.text(0.1, y, f"{i}", va="center", weight="bold")
        axes.text(0.3 if phone() else 0.45, y, token, va="center", fontsize=11)
        for k in range(bits):
            corner = left + _BIT * (bits - 1.4 - k), y - 0.4 * _BIT
            face = POSITION if i >> k & 1 else "none"
            axes.add_patch(Rectangle(corner, facecolor=face, **square))
        for j, x in enumerate(centers):
            passed = (angles[i, j] - angles[i - 1, j]) % (2 * np.pi) if i else 0.0
            _dial(axes, (x, y), radius, hands[i, j], angles[i, j], passed)
    return axes.figure


def _dial(
    axes: Axes,
    center: tuple[float, float],
    radius: float,
    hand: NDArray,
    angle: float,
    passed: float,
) -> None:
    """Draw one dial: its rim, a mark on top, what the hand passed over, and the hand."""
    x, y = center
    end = 90 - np.degrees(angle)
    if passed:
        began = end + np.degrees(passed)
        axes.add_patch(Wedge(center, radius, end, began, facecolor=(POSITION, 0.3)))
    axes.add_patch(Circle(center, radius, fill=False, edgecolor=INK, linewidth=0.8))
    axes.plot((x, x), (y + radius, y + 0.82 * radius), color=INK, linewidth=0.8)
    across, up = 0.9 * radius * hand
    look = {"color": POSITION, "linewidth": 2, "solid_capstyle": "round"}
    axes.plot((x, x + across), (y, y + up), **look)
