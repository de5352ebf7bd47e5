"""The picture on the first page: what is joined, what is counted, what is drawn under each word."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from posattn import figures
from posattn.figures.style import INK, POSITION

WORDS = ["the", "dog", "bites"]
OTHER = [0, 2, 1]
FIRST = np.array([[1.0, -2.0], [3.0, 0.5], [0.0, 4.0]])
# "bites" alone changes
MOVED = FIRST[OTHER] + np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
LAYERS = {"alone": (FIRST, FIRST[OTHER]), "with positions": (FIRST, MOVED)}


@pytest.fixture
def panels():
    return figures.order(WORDS, OTHER, LAYERS).axes


def joined(axes):
    """The lines between the rows: from place, to place, colour."""
    return [
        (*line.get_xdata(), to_hex(line.get_color()))
        for line in axes.lines
        if line.get_ydata()[0] > line.get_ydata()[1]
    ]


def test_a_line_joins_each_word_to_itself_and_its_colour_tells_what_changed(panels):
    assert joined(panels[0]) == [(0, 0, INK), (2, 1, INK), (1, 2, INK)]
    changed = POSITION.lower()
    assert joined(panels[1]) == [(0, 0, INK), (2, 1, changed), (1, 2, INK)]


def test_the_words_stand_in_both_orders_under_a_count(panels):
    texts = [[text.get_text() for text in axes.texts] for axes in panels]
    rows = [*WORDS, "the", "bites", "dog"]
    assert texts[0] == ["alone", "3 of 3 words come out the same", *rows]
    assert texts[1] == ["with positions", "2 of 3 words come out the same", *rows]


def test_the_bars_are_the_outputs_on_one_scale(panels):
    for axes, pair in zip(panels, LAYERS.values(), strict=True):
        bars = np.array([bar.get_height() for group in axes.containers for bar in group])
        outputs = np.concatenate([array.ravel() for array in pair])
        np.testing.assert_allclose(bars / bars.max(), outputs / outputs.max())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([], [], LAYERS), r"words must not be empty, got \[\]"),
        ((WORDS, [0, 0, 1], LAYERS), "each index below 3 once, got \\[0, 0, 1\\]"),
        ((WORDS, OTHER, {}), "outputs must not be empty"),
        ((WORDS, OTHER, {"a": (FIRST, FIRST[:, :1])}), r"must have shape \(3, 2\)"),
    ],
)
def test_a_mistake_is_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        figures.order(*arguments)
