"""The hands that turn: each stands where its pair points, and the arcs between them are the angles."""

import numpy as np
import pytest
from matplotlib.patches import Arc
from matplotlib.text import Annotation

from posattn import figures
from posattn.reference import rotate

STARTS = (0, 5)
TITLES = ("at 0", "at 5")
HAND = np.array([[3.0, 0.0]])
ROTATED = np.stack(
    [rotate(HAND.repeat(3, axis=0), start + np.array([2, 0, 3])) for start in STARTS]
)
LABELS = [[f"{name} {start}" for name in ("bites", "the", "man")] for start in STARTS]


def draw(rotated=ROTATED, labels=LABELS, titles=TITLES):
    return figures.rotated_vectors(rotated[:, 0], rotated[:, 1:], labels, titles)


def arcs(axes):
    return [patch for patch in axes.patches if isinstance(patch, Arc)]


def test_a_hand_points_where_its_pair_does():
    for axes, rotated, names in zip(draw().axes, ROTATED, LABELS, strict=True):
        hands = [text for text in axes.texts if isinstance(text, Annotation)]
        assert np.allclose([hand.xy for hand in hands], rotated / 3)
        places = {text.get_text(): text.get_position() for text in axes.texts}
        for name, point in zip(names, rotated / 3, strict=True):
            assert np.allclose(places[name], 1.08 * point)


def test_arcs_are_the_angles_and_a_shift_leaves_them():
    for axes in draw().axes:
        angles = [arc.theta2 - arc.theta1 for arc in arcs(axes)]
        assert np.allclose(angles, np.degrees([2, 1]))
        assert {"115°", "57°"} < {text.get_text() for text in axes.texts}


def test_an_arc_takes_the_shorter_way():
    rotated = np.array([[[np.cos(3), np.sin(3)], [np.cos(-3), np.sin(-3)]]])
    (arc,) = arcs(draw(rotated, [["q", "k"]], ["only"]).axes[0])
    assert arc.theta2 - arc.theta1 == pytest.approx(np.degrees(2 * np.pi - 6))
    assert arc.theta1 == pytest.approx(np.degrees(3))


def test_a_phone_stacks_the_panels():
    narrow = draw().phone
    assert len({axes.get_position().x0 for axes in narrow.axes}) == 1
    assert narrow.get_figwidth() <= 3.4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rotated": np.zeros_like(ROTATED)}, r"queries and keys must not be zero, got"),
        ({"rotated": ROTATED[..., :1]}, r"queries must have shape \(m, 2\), got \(2, 1\)"),
        ({"labels": [["bites", "the"]] * 2}, r"labels must name 3 vectors per panel, got"),
        ({"titles": ["one"]}, r"titles must be 2, one per panel, got \['one'\]"),
    ],
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        draw(**change)
