"""The wall of dials: hands, shaded steps and bits are those of the encoding that went in."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, Rectangle, Wedge
from matplotlib.text import Text

from posattn import figures

SENTENCE = ["the", "dog", "bites", "the", "man"]
OMEGA = np.array([1.0, 0.5, 0.25, 0.125])
ANGLES = np.arange(5)[:, None] * OMEGA
ENCODING = np.stack([np.sin(ANGLES), np.cos(ANGLES)], axis=-1).reshape(5, 8)


@pytest.fixture(params=["paper", "phone"])
def axes(request):
    figure = figures.pairs(ENCODING, SENTENCE)
    figure = figure if request.param == "paper" else figure.phone
    assert figure.get_figwidth() <= {"paper": 6.5, "phone": 3.4}[request.param]
    return figure.axes[0]


def test_every_hand_points_where_its_pair_says(axes):
    dials = [p for p in axes.patches if isinstance(p, Circle)]
    hands = [line for line in axes.lines if line.get_linewidth() > 1]
    assert len(dials) == len(hands) == 20
    for dial, hand, pair in zip(dials, hands, ENCODING.reshape(20, 2), strict=True):
        start, end = hand.get_xydata()
        assert np.allclose(start, dial.center)
        assert np.allclose(end - start, 0.9 * dial.radius * pair)


def test_each_step_of_a_pair_shades_the_same_angle_up_to_its_hand(axes):
    wedges = [p for p in axes.patches if isinstance(p, Wedge)]
    spans = np.array([w.theta2 - w.theta1 for w in wedges]).reshape(4, 4)
    assert np.allclose(spans, np.degrees(OMEGA))
    ends = np.array([w.theta1 for w in wedges]).reshape(4, 4)
    assert np.allclose(np.cos(np.radians(ends)), np.sin(ANGLES[1:]))
    assert np.allclose(np.sin(np.radians(ends)), np.cos(ANGLES[1:]))


def test_squares_are_the_positions_in_binary(axes):
    squares = [p for p in axes.patches if isinstance(p, Rectangle)]
    places = np.array([square.get_xy() for square in squares]).reshape(5, 3, 2)
    order = places[:, :, 0].argsort(axis=1)
    lit = np.array([square.get_facecolor()[3] for square in squares]).reshape(5, 3)
    written = np.take_along_axis(lit, order, axis=1).astype(int)
    assert ["".join(map(str, row)) for row in written] == [f"{i:03b}" for i in range(5)]
    on = {to_hex(s.get_facecolor()) for s in squares if s.get_facecolor()[3]}
    assert on == {"#cc79a7"}


def test_rows_and_columns_are_named(axes):
    said = [text.get_text() for text in axes.findobj(Text)]
    for word in [*SENTENCE, "binary", *map(str, range(5))]:
        assert word in said
    assert [" ".join(s.split()) for s in said if s.startswith("pair")] == [
        f"pair {j}" for j in range(4)
    ]


@pytest.mark.parametrize(
    ("encoding", "tokens", "message"),
    [
        (ENCODING[:, :7], SENTENCE, "encoding must have an even number of columns, got 7"),
        (ENCODING[0], SENTENCE, r"encoding must have shape \(n, d\), got \(8,\)"),
        (2 * ENCODING, SENTENCE, "encoding must hold pairs of length 1, got lengths"),
        (ENCODING, SENTENCE[:4], "tokens must hold 5 strings, got 4"),
    ],
)
def test_bad_input_is_named(encoding, tokens, message):
    with pytest.raises(ValueError, match=message):
        figures.pairs(encoding, tokens)
