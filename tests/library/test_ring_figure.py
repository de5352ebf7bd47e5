"""The picture of a ring: who holds which keys, and who gets them next."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Annotation

from posattn import figures
from posattn.figures.style import KEY, QUERY

WORKERS, STEPS = 4, (0, 1, 3)


@pytest.fixture(params=["page", "phone"])
def panels(request):
    figure = figures.ring(WORKERS, STEPS)
    return (figure if request.param == "page" else figure.phone).axes


def middle(patch):
    return tuple(np.round(patch.get_center(), 6).tolist())


def held(axes):
    """What each box says, by the number of its queries: its place, and its keys, each in its colour."""
    found = {}
    boxes = [p for p in axes.patches if not p.get_facecolor()[3]]
    strips = {
        middle(p): to_hex(p.get_facecolor()) for p in axes.patches if p.get_facecolor()[3]
    }
    words = {
        tuple(np.round(t.get_position(), 6).tolist()): t.get_text() for t in axes.texts
    }
    for box in boxes:
        inside = {c: words[at] for at, c in strips.items() if box.get_bbox().contains(*at)}
        kind, number = inside[QUERY.lower()].split()
        assert (len(inside), kind) == (2, "queries")
        found[int(number)] = middle(box), inside[KEY.lower()]
    return found


def test_keys_have_gone_on_and_queries_have_not(panels):
    for axes, step in zip(panels, STEPS, strict=True):
        for r, (_, keys) in held(axes).items():
            assert keys == f"keys {(r - step) % WORKERS}"
    places = [{r: place for r, (place, _) in held(axes).items()} for axes in panels]
    assert places[0] == places[1] == places[2]


def test_arrows_lead_to_who_gets_them_next(panels):
    for axes in panels:
        place = {r: p for r, (p, _) in held(axes).items()}
        arrows = sorted((*a.xyann, *a.xy) for a in axes.texts if isinstance(a, Annotation))
        want = sorted((*place[r], *place[(r + 1) % WORKERS]) for r in range(WORKERS))
        assert np.allclose(arrows, want, atol=1e-6)
        (x, y), _ = held(axes)[1]  # clockwise, from the top
        assert x > 0.5 > abs(y)
