"""The idea of the book in one picture: the same words in two orders, with and without positions."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import ArrayLike, NDArray

from posattn.figures.style import INK, POSITION, Drawing, checked, drawn, held, phone

# Distances in the panel, in which neighbouring words are 1 apart: the width of a word's field, half
# its height, and from its word to the field.
_TILE, _BARS, _GAP = 0.86, 0.62, 0.24


@drawn
def order(
    words: Sequence[str],
    permutation: Sequence[int],
    outputs: Mapping[str, tuple[ArrayLike, ArrayLike]],
) -> Figure:
    """Draw what a layer makes of the same words in two orders.

    A line joins each word to itself in the other order: grey where the layer gives it the same
    output in both, coloured where it does not.

    Args:
        words: the n words in the first order.
        permutation: which of them stands at each place of the second order.
        outputs: for each layer by name, what it gives for the two orders, `(n, d)` each.

    Returns:
        A figure with a panel for each layer; under each word are the d numbers of its output.

    Raises:
        ValueError: if nothing is to be drawn, `permutation` does not hold every index once, or a
            shape is wrong.
    """
    words, places = held("words", words), [int(place) for place in permutation]
    if sorted(places) != list(range(len(words))):
        raise ValueError(
            f"permutation must hold each index below {len(words)} once, got {places}"
        )
    panels = []
    for name in held("outputs", outputs):
        first = checked(f"outputs[{name!r}]", outputs[name][0], "n d", n=len(words))
        shape = {"n": len(words), "d": first.shape[1]}
        panels.append(
            (name, first, checked(f"outputs[{name!r}]", outputs[name][1], "n d", **shape))
        )

    rows, columns = (len(panels), 1) if phone() else (1, len(panels))
    size = (3.3, 2.6 * rows) if phone() else (3.3 * columns, 2.6)
    figure = Drawing(figsize=size, layout="constrained")
    for axes, (name, first, second) in zip(
        figure.subplots(rows, columns, squeeze=False).flat, panels, strict=True
    ):
        same = np.isclose(first[places], second).all(axis=1)
        before = np.empty_like(same)
        before[places] = same
        scale = max(np.abs(first).max(), np.abs(second).max()) or 1.0
        axes.set(xlim=(-0.5, len(words) - 0.5), ylim=(-2.05, 2.95))
        axes.axis("off")
        _centred(axes, 2.78, name, weight="bold", fontsize=11)
        count = f"{same.sum()} of {len(words)} words come out the same"
        _centred(axes, 2.36, count)
        _row(axes, 1.85, words, first / scale, before.tolist())
        _row(axes, -0.55, [words[place] for place in places], second / scale, same.tolist())
        for place, (source, equal) in enumerate(zip(places, same.tolist(), strict=True)):
            ends = (1.85 - _GAP - 2 * _BARS, -0.55 + _GAP)
            axes.plot((source, place), ends, **_look(equal), linewidth=1.2)
    return figure


def _look(equal: bool) -> dict[str, object]:
    """Grey for what stays the same, the colour of positions for what does not."""
    return {"color": INK, "alpha": 0.5} if equal else {"color": POSITION}


def _centred(axes: Axes, height: float, text: str, **look: object) -> None:
    axes.text(sum(axes.get_xlim()) / 2, height, text, ha="center", va="center", **look)


def _row(
    axes: Axes, top: float, words: list[str], vectors: NDArray, same: list[bool]
) -> None:
    """Write the words of one order, and under each its output as bars up and down."""
    middle = top - _GAP - _BARS
    steps = (np.arange(vectors.shape[1]) + 0.5) / vectors.shape[1] - 0.5
    for place, (word, vector, equal) in enumerate(zip(words, vectors, same, strict=True)):
        left, right = place - _TILE / 2, place + _TILE / 2
        axes.text(place, top, word, ha="center", va="center", fontsize=10)
        look = {"boxstyle": "round,pad=0,rounding_size=0.08", "fc": "none", "ec": INK}
        field = (left, middle - _BARS), _TILE, 2 * _BARS
        axes.add_patch(FancyBboxPatch(*field, **look, lw=0.5, alpha=0.3))
        x, height = place + 0.8 * _TILE * steps, 0.9 * _BARS * vector
        axes.bar(x, height, 0.5 * _TILE / len(vector), middle, **_look(equal))
        axes.plot((left, right), (middle, middle), color=INK, linewidth=0.4, alpha=0.6)
