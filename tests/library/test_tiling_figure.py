"""The picture of tiles: computed ones are tinted, hidden ones are outlines, and one is in hand."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Polygon, Rectangle

from posattn import figures
from posattn.figures.style import GRID, KEY, QUERY

TILES, AT = 4, (2, 1)


@pytest.fixture(params=["page", "phone"])
def axes(request):
    figure = figures.tiling(TILES, AT)
    return (figure if request.param == "page" else figure.phone).axes[0]


def tinted(axes):
    """The tinted parts of tiles, by row and column, as the share that is tinted and how strongly."""
    found = {}
    for patch in axes.patches:
        if isinstance(patch, Polygon) and patch.get_facecolor()[3] > 0:
            x, y = patch.get_xy()[:-1].T
            area = abs(np.sum(x * np.roll(y, 1) - y * np.roll(x, 1))) / 2 / 0.9**2
            place = int(y.min()), int(x.min())
            found[place] = round(area, 6), patch.get_facecolor()[3]
            assert to_hex(patch.get_facecolor()) == QUERY.lower()
            assert area > 0.9 or (y - y.min() >= x - x.min() - 1e-9).all()  # earlier keys
    return found


def test_tiles_up_to_the_diagonal_are_computed(axes):
    parts = tinted(axes)
    assert set(parts) == {(i, j) for i in range(TILES) for j in range(i + 1)}
    for (i, j), (area, strength) in parts.items():
        assert area == (0.5 if i == j else 1)
        assert (strength == 1) == ((i, j) == AT)


def test_later_tiles_are_dotted_outlines(axes):
    dotted = [p for p in axes.patches if p.get_linestyle() == ":"]
    places = {(int(y), int(x)) for x, y in (p.get_xy().min(0) for p in dotted)}
    assert places == {(i, j) for i in range(TILES) for j in range(i + 1, TILES)}
    assert {to_hex(p.get_edgecolor()) for p in dotted} == {GRID.lower()}


def test_the_tile_in_hand_reads_its_own_queries_and_keys(axes):
    bars = [p for p in axes.patches if isinstance(p, Rectangle)]
    for color, axis, number in ((QUERY, 1, AT[0]), (KEY, 0, AT[1])):
        strips = [p for p in bars if to_hex(p.get_edgecolor()) == color.lower()]
        assert sorted(int(p.get_xy()[axis]) for p in strips) == list(range(TILES))
        assert [int(p.get_xy()[axis]) for p in strips if p.get_facecolor()[3]] == [number]
    said = {t.get_text(): t.get_position() for t in axes.texts}
    assert said["queries"][0] < 0 < said["queries"][1]
    assert said["keys and values"][1] < 0 < said["keys and values"][0]
