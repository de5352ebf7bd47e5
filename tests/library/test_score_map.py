"""The small square of scores: pale is the lowest, dark the highest, queries from top to bottom."""

import numpy as np
from matplotlib.colors import to_hex

from posattn import figures
from posattn.figures.style import BLUE


def shades(scores):
    (image,) = figures.score_map(scores).axes[0].images
    return np.asarray(image.get_array()), image


def test_each_score_has_its_cell_and_its_shade():
    seen, image = shades([[0.0, 1.0, 2.0], [5.0, 11.0, 6.0]])
    assert seen.shape == (2, 3)
    assert np.array_equal(seen.round(6), (np.array([[0, 1, 2], [5, 11, 6]]) / 11).round(6))
    assert image.origin == "upper"
    assert to_hex(image.cmap(1.0)) == BLUE.lower()
    assert image.cmap(0.0)[3] == 0


def test_there_are_twelve_shades():
    seen, _ = shades(np.random.default_rng(0).normal(size=(64, 64)))
    assert len(np.unique(seen)) == 12
    assert seen.min() == 0
    assert seen.max() == 1


def test_scores_equal_but_for_rounding_are_all_pale():
    assert not shades(np.full((4, 4), 0.1) + 1e-12 * np.eye(4))[0].any()


def test_a_sheet_has_each_map_above_its_name():
    maps = {"one": np.eye(6), "position two-three": 1 - np.eye(6)}
    maps |= {str(n): np.eye(6) for n in range(3, 10)}  # up to the edge
    drawing = figures.score_maps(maps)
    for sheet in (drawing, drawing.phone):
        (axes,) = sheet.axes
        (image,) = axes.images
        assert [x.get_text() for x in axes.texts[:2]] == ["one", "position\ntwo-three"]
        for text, wanted in zip(axes.texts, maps.values(), strict=True):
            left, foot = map(int, text.get_position())
            assert (image.get_array()[foot - 6 : foot, left : left + 6] == wanted).all()
