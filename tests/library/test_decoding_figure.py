"""The picture of decoding: each call computes its own rows of scores, and reads the rest of the keys."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from posattn import figures
from posattn.figures.style import KEY, QUERY

WORDS = ["the", "dog", "bites", "the", "man"]
SIZES = (3, 1, 1)
ENDS = np.cumsum(SIZES)


def squares(axes, colour, full=True):
    """The middles of the squares of a colour, as (key, row); the keys themselves stand above row 0."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    wanted = [
        p for p in found if p.get_facecolor()[3] == full and to_hex(p.get_edgecolor()) == colour.lower()
    ]  # fmt: skip
    return sorted(tuple(np.round(p.get_center(), 6).tolist()) for p in wanted)


def dots(axes):
    return sorted(
        tuple(p) for c in axes.collections for p in np.round(c.get_offsets(), 6).tolist()
    )


@pytest.fixture(params=["page", "phone"])
def panels(request):
    figure = figures.decoding(SIZES, WORDS)
    return (figure if request.param == "page" else figure.phone).axes


def test_each_score_is_computed_in_one_call(panels):
    computed = [place for axes in panels for place in squares(axes, QUERY)]
    assert sorted(computed) == sorted((j, i) for i in range(5) for j in range(i + 1))
    for axes, size, stop in zip(panels, SIZES, ENDS, strict=True):
        assert {i for _, i in squares(axes, QUERY)} == set(range(stop - size, stop))
        assert dots(axes) == sorted(
            (j, i) for i in range(stop - size) for j in range(i + 1)
        )
        assert axes.get_xlabel() == f"{len(squares(axes, QUERY))} scores"


def test_keys_are_new_once_and_cached_from_then_on(panels):
    for axes, size, stop in zip(panels, SIZES, ENDS, strict=True):
        assert [j for j, _ in squares(axes, KEY)] == list(range(stop - size))
        new = list(range(stop - size, stop))
        assert [j for j, _ in squares(axes, KEY, full=False)] == new
        assert [line.get_xdata()[0] for line in axes.lines] == new
        assert {to_hex(line.get_color()) for line in axes.lines} == {KEY.lower()}
        said = {text.get_text() for text in axes.texts}
        assert said == {f"{size} new"} | (
            {f"{stop - size} cached"} if stop > size else set()
        )
