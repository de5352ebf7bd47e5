"""The drawing room: what is drawn is what went in, in ink that a page can recolour."""

import base64
import functools
import io
import itertools
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from matplotlib.text import Annotation, Text
from matplotlib.textpath import TextPath
from PIL import Image

from posattn import figures
from posattn.figures import style, svg

INK = "#000000"
CELL_INK = {"#111111", "#ffffff"}
PALETTE = {"#0072b2", "#d55e00", "#009e73", "#cc79a7"}
GRID = "#888888"
LINES = {"#8e6fd8", "#a0743a"}  # the fifth and the sixth of many

N = 5
BAND = np.abs(np.subtract.outer(range(N), range(N))) <= 1
STEP = np.eye(N, k=-1, dtype=bool)
FULL = np.ones((N, N), dtype=bool)
CAUSAL = np.tril(FULL)
TITLES = ["full", "causal"]

POSITIONS = np.arange(40)
ANGLES = POSITIONS[:, None] * 100.0 ** (-np.arange(0, 12, 2) / 12)
ENCODING = np.stack([np.sin(ANGLES), np.cos(ANGLES)], axis=-1).reshape(40, 12)
BITS = POSITIONS[:8, None] >> np.array([2, 1, 0]) & 1
WEIGHTS = np.random.default_rng(7).dirichlet(np.ones(6), size=(3, 4))
TURN = 0.7
BEFORE = np.stack([np.cos([0, 1, 2, 3]), np.sin([0, 1, 2, 3])], axis=-1)
AFTER = BEFORE @ [[np.cos(TURN), np.sin(TURN)], [-np.sin(TURN), np.cos(TURN)]]
X = 2.0 ** np.arange(7, 14)
SERIES = {f"curve {k}": (k + 1) * X for k in range(17)}
WORDS = ["the", "dog", "bites", "the", "man"]
PRODUCTS = ENCODING @ ENCODING[0]
OFFSETS = np.arange(5) - np.arange(5)[:, None]
HOLED = np.where(np.eye(5), np.nan, 2 * OFFSETS)
ONES = {"half": (1.0, 1.5, 2.0)}
RATIOS = {"a copy": ONES, "theirs": {"half": (0.1, 0.2, 0.2), "all": (3.0, 3.0, 3.0)}}

CALLS = {
    "architectures": lambda: figures.architectures([BAND, BAND], STEP, FULL),
    "attention_weights": lambda: figures.attention_weights(WEIGHTS),
    "binary_counting": lambda: figures.binary_counting(BITS, ENCODING),
    "pairs": lambda: figures.pairs(ENCODING[:3, 4:], ["dog", "bites", "man"]),
    "curves": lambda: figures.curves(X, SERIES, "length", "time", log_x=True, log_y=True),
    "dates": lambda: figures.dates({"lane": {"a": 2017.5}, "two": {"b": 2019.25}}),
    "decoding": lambda: figures.decoding([2, 1], ["a", "b", "c"]),
    "intervals": lambda: figures.intervals(RATIOS, "ratio"),
    "masks": lambda: figures.masks([FULL, CAUSAL], TITLES),
    "offsets": lambda: figures.offsets(PRODUCTS),
    "order": lambda: figures.order(["a", "b"], [1, 0], {"layer": (BEFORE[:2], AFTER[:2])}),
    "positional_encoding_layer": figures.positional_encoding_layer,
    "right_and_wrong": lambda: figures.right_and_wrong(
        OFFSETS, HOLED, xlabel="key", ylabel="query"
    ),
    "ring": lambda: figures.ring(4, [0, 1]),
    "rotation": lambda: figures.rotation(BEFORE, AFTER, TURN),
    "score_map": lambda: figures.score_map(WEIGHTS[0]),
    "score_maps": lambda: figures.score_maps({"a": np.eye(4), "b": np.ones((4, 4))}),
    "self_attention_layer": figures.self_attention_layer,
    "tiling": lambda: figures.tiling(3, (2, 1)),
    "transformer_block": figures.transformer_block,
    "rotated_vectors": lambda: figures.rotated_vectors(
        BEFORE[:2], AFTER.reshape(2, 2, 2), [["q", "k", "k"]] * 2, ["here", "there"]
    ),
}
# drawn once, and looked at often
SHARED = [functools.cache(draw) for draw in CALLS.values()]
every_figure = pytest.mark.parametrize("draw", SHARED, ids=CALLS)


@functools.cache
def as_svg(draw):
    """The drawing as a page shows it."""
    return draw()._repr_svg_()


def both(draw):
    """The figure as a page has it, and as a phone has it."""
    figure = draw()
    return [figure, figure.phone] if figure.phone else [figure]


def settings():
    """The user's settings, less the backend, which matplotlib chooses when it is first read."""
    return {
        name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"
    }


def panels(figure):
    """The axes, without those of colour bars."""
    return [axes for axes in figure.axes if axes not in colour_bars(figure)]


def colour_bars(figure):
    return [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]


def edges(axes):
    """Where the arrows start and end."""
    arrows = [text for text in axes.texts if isinstance(text, Annotation)]
    return sorted(
        (*np.round(a.xyann, 6).tolist(), *np.round(a.xy, 6).tolist()) for a in arrows
    )


def from_matrix(reads, low, high):
    return sorted((float(j), low, float(i), high) for i, j in np.argwhere(reads))


def words(artist):
    return [text.get_text() for text in artist.findobj(Text)]


def luminance(colour):
    """Relative luminance as WCAG 2 defines it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_every_public_function_is_called_here():
    assert sorted(CALLS) == sorted(figures.__all__)


def test_neither_pyplot_nor_a_framework_is_imported():
    code = (
        "import sys, posattn.figures as f; f.self_attention_layer();"
        "print(*{'matplotlib.pyplot', 'torch', 'jax', 'posattn.reference'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


@every_figure
def test_a_page_can_recolour_the_ink_and_shows_through(draw):
    drawing = re.sub(r'"data:image[^"]*"|url\(#\w+\)|href="#[^"]+"', "", as_svg(draw))
    found = {colour.lower() for colour in re.findall(r"#[0-9a-fA-F]{6}\b", drawing)}
    assert found & {INK, GRID}
    assert found <= {INK, GRID} | CELL_INK | PALETTE | LINES
    assert "white" not in drawing
    assert "<style" not in drawing  # it would hold for the whole page
    for figure in both(draw):
        for patch in (figure.patch, *(axes.patch for axes in panels(figure))):
            assert patch.get_facecolor()[3] == 0


@every_figure
def test_filled_blocks_let_the_page_through(draw):
    for patch in draw().findobj(lambda p: isinstance(p, (Circle, FancyBboxPatch))):
        assert patch.get_facecolor()[3] <= 0.25


@pytest.mark.parametrize(("most", "mode"), [(2, "P"), (257, "RGBA")])
def test_a_picture_keeps_its_pixels_and_numbers_its_colours_if_they_are_few(most, mode):
    colors = np.arange(20 * 20) % most
    pixels = np.stack([colors % 256, colors // 256, 7 * colors % 256, 255 + 0 * colors], -1)
    pixels[colors == 0] = 0  # which is seen through
    figure = style.Drawing(figsize=(1, 1), dpi=72)
    figure.figimage(pixels.reshape(20, 20, 4).astype(np.uint8))
    (found,) = re.findall(r'"data:image/png;base64,([^"]*)"', figure._repr_svg_())
    made = Image.open(io.BytesIO(base64.b64decode(found)))
    assert made.mode == mode
    drawn = np.asarray(made.convert("RGBA"))
    assert np.array_equal(drawn[::-1].reshape(-1, 4), pixels)


def test_a_number_in_words_keeps_its_digits():
    figure = style.Drawing(figsize=(1, 1))
    figure.text(0, 0, "0.0551")
    assert ">0.0551<" in figure._repr_svg_()


@pytest.mark.parametrize("draw", SHARED[1:3], ids=["attention_weights", "binary_counting"])
def test_two_calls_give_the_same_bytes_under_any_style(draw):
    before = settings()
    with matplotlib.style.context("dark_background"):
        changed = settings()
        other = draw.__wrapped__()
        assert settings() == changed != before
    assert other._repr_svg_() == as_svg(draw)
    printed = other._repr_pdf_()
    assert printed == draw()._repr_pdf_()
    assert printed.startswith(b"%PDF")


PAGES = {  # what pages ask for, beyond one call of each function
    "words": lambda: figures.attention_weights([np.eye(5)] * 2, WORDS, WORDS),
    "titles": lambda: figures.attention_weights(
        [np.eye(5)] * 2, titles=["tokens in order", "tokens permuted"]
    ),
    "a large map": lambda: figures.attention_weights(np.full((2, 40, 40), 1 / 40)),
    "five masks": lambda: figures.masks(
        [np.eye(8, dtype=bool)] * 5,
        ["length 5", "causal", "window 3", "causal & window", "with global key"],
    ),
    "long labels": lambda: figures.curves(
        X,
        {"convolution, $k = 3$": 3 * X, "attention: scores and sums": X**2 / 64},
        "number of tokens $n$",
        "operations",
        True,
        True,
    ),
    "lines that end together": lambda: figures.curves(
        X, {f"line {k}": np.full(7, 1.0) for k in range(8)}, "x", "y"
    ),
    "counting to fifteen": lambda: figures.binary_counting(
        np.arange(16)[:, None] >> np.arange(4)[::-1] & 1, np.tile(ENCODING, (1, 2))
    ),
}
LOOKS = dict(zip(CALLS, SHARED, strict=True)) | {
    name: functools.cache(draw) for name, draw in PAGES.items()
}
every_look = pytest.mark.parametrize("draw", LOOKS.values(), ids=LOOKS)


def visible(figure):
    """All text that has been drawn, with its box in inches."""
    figure.draw_without_rendering()
    hidden = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not axes.axison
        or not label.get_visible()
        or not min(axis.get_view_interval()) - 1e-9
        <= tick.get_loc()
        <= max(axis.get_view_interval()) + 1e-9
    }
    return [
        (text, Text.get_window_extent(text).transformed(figure.dpi_scale_trans.inverted()))
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and id(text) not in hidden
    ]


@every_look
def test_a_page_and_a_phone_show_all_of_it_and_every_text_can_be_read(draw):
    figure = draw()
    assert figure.get_figwidth() <= 6.5
    assert (figure.phone or figure).get_figwidth() <= 3.4
    for variant in both(lambda: figure):
        shown = visible(variant)
        width, height = variant.get_size_inches()
        for box in (variant.get_tightbbox(), *(box for _, box in shown)):
            assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -0.02
        assert all(text.get_fontsize() >= 8.5 for text, _ in shown)
        for (one, a), (other, b) in itertools.combinations(shown, 2):
            over = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            assert min(over) < 0.01, (one, other)


@every_figure
def test_a_phone_has_the_same_words_and_the_same_data(draw):
    wide, *others = both(draw)
    for narrow in others:
        assert len(panels(wide)) == len(panels(narrow))
        for here, there in zip(panels(wide), panels(narrow), strict=True):
            spoken = [
                sorted(t.get_text().replace("\n", " ") for t in axes.texts)
                for axes in (here, there)
            ]
            assert spoken[0] == spoken[1]
            assert len(edges(here)) == len(edges(there))
            if here.axison:  # else the unit is an inch on paper
                for a, b in zip(here.lines, there.lines, strict=True):
                    assert np.array_equal(a.get_xydata(), b.get_xydata(), equal_nan=True)
            for images in zip(here.images, there.images, strict=True):
                a, b = (image.get_array() for image in images)
                if not here.axison:  # rows of maps, which are shorter there
                    a, b = (np.sort(np.ma.compressed(x)) for x in (a, b))
                assert np.array_equal(a, b)


@pytest.mark.parametrize(
    "name", [name for name in CALLS if name.endswith(("layer", "block"))]
)
def test_block_diagrams_never_run_upwards_on_a_phone(name):
    _, narrow = both(CALLS[name])
    assert all(start >= end for _, start, _, end in edges(narrow.axes[0]))


def test_words_are_text_as_long_as_measured_and_formulas_are_outlines():
    drawing = figures.curves(POSITIONS, {"a": POSITIONS}, "row $i$", "value")._repr_svg_()
    word, length = re.search(
        r'(<text [^>]*textLength="([^"]*)"[^>]*>)value</text>', drawing
    ).groups()
    assert 'font-size="9.09"' in word  # 10 in the larger em of Posattn Sans
    outline = TextPath((0, 0), "value", 10, prop={"family": "Posattn Sans"})
    assert float(length) == pytest.approx(outline.get_extents().width, abs=1)
    outlines = re.findall(r'path id="([^"]+)-[^"]+"', drawing)  # of "row $i$"
    assert {*outlines} == {"PosattnSans-Regular", "Cmmi10"}


@pytest.mark.parametrize(
    ("scale", "written"),
    [
        (' transform="scale(0.015625)"', "M137-7q-23 0-38 7l-43 87zM2 3l2-8z"),
        ("", "M1367-70q-227 0-381 70l-427 873zM20 30l20-80z"),
    ],
)
def test_outlines_are_steps_that_come_back_to_where_matplotlib_put_them(scale, written):
    outline = "M 1367 -70 \nQ 1140 -70 986 0 \nL 559 873 \nz \nM 20 30 \nL 40 -50 \nz \n"
    match = re.search(r' d="([^"]*)"(.*)', f' d="{outline}"{scale}')
    assert svg._outline(match).startswith(f' d="{written}"')


def test_a_group_and_a_style_are_said_once_for_neighbours():
    drawing = (
        '<g>\n<path id="m1" d="M0 0" style="a"/>\n</g>\n<g clip="1">\n<g>\n'
        '<use xlink:href="#m1" x="1" style="a"/>\n</g>\n</g>\n<g clip="1">\n'
        '<use xlink:href="#m1" x="2" style="b"/>\n<path d="M1" style="b"/>\n</g>\n'
    )
    assert svg._once(drawing) == (
        '<path id="m1" d="M0 0" style="a"/>\n<g clip="1">\n<use xlink:href="#m1" x="1"/>\n'
        '<g style="b">\n<use xlink:href="#m1" x="2"/>\n<path d="M1"/>\n</g>\n</g>\n'
    )


def test_ink_on_a_colour_contrasts_on_light_and_dark_pages():
    for color in (style.BLUE, style.POSITION):
        for alpha in np.linspace(0, 1, 21):
            ink = style.ink_on(color, alpha)
            for paper, written in (("#ffffff", "#000000"), ("#131416", "#cfd0d0")):
                inked, page = np.array([to_rgb(color), to_rgb(paper)])
                blend = alpha * inked + (1 - alpha) * page
                text = luminance(written if ink == INK else ink)
                dark, light = sorted([text, luminance(blend)])
                assert (light + 0.05) / (dark + 0.05) > 3.5


def test_architectures_draw_the_matrices():
    skipping = STEP | np.eye(N, k=-3, dtype=bool)
    figure = figures.architectures([BAND, CAUSAL], skipping, CAUSAL)
    cnn, rnn, attention = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["CNN", "RNN", "self-attention"]
    heights = {round(p.center[1], 6) for p in cnn.patches if isinstance(p, Circle)}
    low, middle, top = sorted(heights)
    layers = from_matrix(BAND, low, middle) + from_matrix(CAUSAL, middle, top)
    assert edges(cnn) == sorted(layers)
    inputs = from_matrix(np.eye(N, dtype=bool), low, top)
    assert edges(rnn) == sorted(inputs + from_matrix(skipping, top, top))
    assert edges(attention) == from_matrix(CAUSAL, low, top)
    for axes, symbols in zip(figure.axes, ("xy", "xh", "xy"), strict=True):
        named = {rf"$\mathbf{{{symbol}}}_{{{i}}}$" for symbol in symbols for i in range(N)}
        assert named <= set(words(axes))
    bent = [
        a
        for a in rnn.texts
        if isinstance(a, Annotation) and a.arrowprops["connectionstyle"] != "arc3,rad=0"
    ]
    assert [abs(a.xy[0] - a.xyann[0]) for a in bent] == [pytest.approx(3)] * 2


@pytest.mark.parametrize(
    ("draw", "blocks", "arrows"),
    [
        (figures.self_attention_layer, "tokens queries keys values scores softmax weighted outputs", 9),
        (figures.transformer_block, "tokens norm self-attention + norm feed-forward + next", 9),
        (lambda: figures.transformer_block({"next": "head"}), "tokens norm self-attention + head", 9),
        (figures.positional_encoding_layer, "tokens positions (dropout) next", 6),
    ],
)  # fmt: skip
def test_layers_join_their_blocks(draw, blocks, arrows):
    axes = draw().axes[0]
    text = words(axes)
    assert all(any(word.startswith(block) for word in text) for block in blocks.split())
    assert len(edges(axes)) == arrows
    ends = [a.arrow_patch for a in axes.texts if isinstance(a, Annotation)]
    joined = {id(end) for arrow in ends for end in (arrow.patchA, arrow.patchB)}
    assert joined == {id(p) for p in axes.patches if isinstance(p, FancyBboxPatch)}


def test_binary_counting_shows_bits_beside_the_encoding():
    left, right = panels(figure := CALLS["binary_counting"]())
    assert np.array_equal(left.images[0].get_array(), BITS)
    assert [t.get_text() for t in left.texts] == [str(bit) for bit in BITS.ravel()]
    assert [t.get_text() for t in left.get_xticklabels()] == ["2", "1", "0"]
    assert np.array_equal(right.images[0].get_array(), ENCODING)
    assert right.images[0].get_clim() == (-1, 1)
    titles = [axes.get_title() for axes in (left, right)]
    assert titles == ["← frequency falls", "frequency falls →"]
    assert [axes.get_ylabel() for axes in colour_bars(figure)] == ["value"]


@pytest.mark.parametrize("turn", [TURN, -TURN, 4.0])
def test_rotation_turns_every_pair_by_the_same_arc(turn):
    start = np.arange(4)
    after = np.stack([np.cos(start + turn), np.sin(start + turn)], axis=-1)
    axes = figures.rotation(BEFORE, after, turn, range(8)).axes[0]
    assert [text.get_text() for text in axes.texts] == [*"01234567"]
    assert np.allclose(axes.texts[5].get_position(), 1.22 * after[1])
    points = [line.get_xydata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert np.allclose(points[0::2], BEFORE)
    assert np.allclose(points[1::2], after)
    arcs = [
        p._path_original.vertices for p in axes.patches if isinstance(p, FancyArrowPatch)
    ]
    for arc, first, last in zip(arcs, BEFORE, after, strict=True):
        radius = np.hypot(*arc.T)
        assert np.ptp(radius) < 1e-12
        assert np.allclose(arc[[0, -1]] / radius[0], [first, last])
        rotated = np.unwrap(np.arctan2(arc[:, 1], arc[:, 0]))
        assert rotated[-1] - rotated[0] == pytest.approx(turn)


def test_attention_weights_take_one_matrix_and_words():
    keys = ["un", "chat", "s'est", "confortablement", "mis", "là"]
    rows = WEIGHTS[0].tolist(), WORDS[:4]
    (axes,) = panels(figures.attention_weights(*rows, keys, None, "head", "word"))
    assert np.array_equal(axes.images[0].get_array(), WEIGHTS[0])
    assert [t.get_text() for t in axes.get_yticklabels()] == WORDS[:4]
    assert [t.get_text() for t in axes.get_xticklabels()] == keys
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("head", "word")
    assert {t.get_rotation() for t in axes.get_xticklabels()} == {90}  # long words


@pytest.mark.parametrize(("maps", "wide"), [((1, 1, 5), 4.73), ((3, 3, 7), 6.5)])
def test_heat_maps_are_as_wide_as_text_or_code_in_one_row_up_to_the_edge(maps, wide):
    figure = figures.attention_weights(np.ones(maps))
    boxes = [axes.get_position() for axes in figure.axes]
    assert (figure.get_figwidth(), {box.y0 for box in boxes}) == (wide, {boxes[0].y0})
    assert wide * (1 - boxes[-1].x1) == pytest.approx(0.03, abs=0.03)


@pytest.mark.parametrize(("cells", "printed"), [((8, 8), 64), ((5, 13), 0)])
def test_a_bar_stands_only_where_no_numbers_do(cells, printed):
    for variant in both(lambda: figures.attention_weights(np.full(cells, 0.1))):
        assert len(panels(variant)[0].texts) == printed
        bars = [{bar.get_xlabel(), bar.get_ylabel()} for bar in colour_bars(variant)]
        assert bars == ([] if printed else [{"", "attention weight"}])


def test_attention_weights_share_one_scale_and_print_their_values():
    figure = figures.attention_weights(WEIGHTS, titles=["a", "b", "c"])
    for axes, weights, title in zip(panels(figure), WEIGHTS, "abc", strict=True):
        (image,) = axes.images
        assert np.array_equal(image.get_array(), weights)
        assert [color[3] for color in image.cmap([0.0, 1.0])] == [
            0,
            1,
        ]  # the page shines through
        assert image.get_clim() == (0, 1)
        wanted = [f"{w:.2f}" for w in weights.ravel() if w >= 0.005]
        assert [t.get_text() for t in axes.texts] == wanted
        assert (axes.get_xlabel(), axes.get_title()) == ("key", title)
        assert axes.get_xticks().tolist() == [0, 1, 2, 3, 4, 5]
    assert panels(figure)[0].get_ylabel() == "query"
    assert not colour_bars(figure)


def test_masks_fill_what_is_true_and_cross_what_is_false():
    figure = CALLS["masks"]()
    for axes, mask, title in zip(figure.axes, (FULL, CAUSAL), TITLES, strict=True):
        (image,), (crosses,) = axes.images, axes.lines
        assert np.array_equal(image.get_array(), mask)
        assert [c[3] for c in image.cmap([0, 1])] == [0, 1]
        assert np.array_equal(crosses.get_xydata()[:, ::-1], np.argwhere(~mask))
        assert (axes.get_xlabel(), axes.get_title()) == ("key", title)
    assert figure.axes[0].get_ylabel() == "query"


def test_right_and_wrong_share_a_scale_and_cross_what_is_no_number():
    right, wrong = CALLS["right_and_wrong"]().axes
    assert [axes.get_title() for axes in (right, wrong)] == ["right", "wrong"]
    for axes, values in ((right, OFFSETS), (wrong, HOLED)):
        (image,), (crosses,) = axes.images, axes.lines
        assert np.array_equal(image.get_array().filled(np.nan), values, equal_nan=True)
        assert image.get_clim() == (-8, 8)
        assert np.array_equal(crosses.get_xydata(), np.argwhere(np.isnan(values)))


def test_intervals_are_bars_around_dots_in_the_order_of_their_rows():
    (axes,) = CALLS["intervals"]().axes
    line, *drawn = [artist.get_xdata() for artist in axes.lines]
    assert (set(line), axes.get_xscale()) == ({1}, "log")
    rows = [row for rows in RATIOS.values() for row in rows.values()]
    for bar, dot, (low, middle, high) in zip(drawn[::2], drawn[1::2], rows, strict=True):
        assert (*bar, *dot) == (low, high, middle)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["", "half", "", "half", "all"]
    written = [text.get_text() for text in axes.texts]
    assert written == ["a copy", "1.50", "theirs", "0.200", "3.00"]


def test_a_row_of_two_intervals_has_two_marks_and_numbers_that_a_key_names():
    row = {"half": [(1.0, 1.5, 2.0), (np.nan,) * 3]}
    figure = figures.intervals({"a copy": row}, "ratio", key=["eager", "compiled"])
    first, second = figure.axes[0].lines[2::2]
    assert (first.get_marker(), second.get_marker()) == ("o", "s")
    assert np.array_equal(first.get_xdata(), [1.5])
    assert [text.get_text() for text in figure.axes[0].texts] == ["a copy", "1.50", ""]
    assert [t.get_text() for t in figure.legends[0].texts] == ["eager", "compiled"]


def test_curves_are_the_series_each_in_its_own_look():
    figure = CALLS["curves"]()
    (axes,) = figure.axes
    for line, (label, values) in zip(axes.lines, SERIES.items(), strict=True):
        assert np.array_equal(line.get_xydata(), np.stack([X, values], axis=-1))
        assert line.get_label() == label
    looks = {
        (line._dash_pattern[1] and tuple(line._dash_pattern[1]), line.get_marker())
        for line in axes.lines
    }
    assert len(looks) == 16
    assert len({line.get_color() for line in axes.lines}) == 8
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("length", "time")
    ticked = [str(2**k) for k in range(7, 14)]
    assert [t.get_text() for t in axes.get_xticklabels()] == ticked


@pytest.mark.parametrize("turned", [1, -1])
def test_a_scheme_keeps_its_colour_in_any_order_and_no_two_lines_share_one(turned):
    own = {"sinusoidal": GRID, "half rotary": "#009e73", "mask alone": INK}
    labels = [*["a", "ALiBi", "YaRN", *own][::turned], "YaRN without its factor"]
    (axes,) = figures.curves(X, dict.fromkeys(labels, X), "x", "y").axes
    found = {line.get_label(): line.get_color().lower() for line in axes.lines}
    assert found.items() >= own.items() | {("YaRN", "#cc79a7")}
    assert len(set(found.values())) == 7


@pytest.mark.parametrize(("log_x", "log_y"), [(False, True), (True, False)])
def test_curves_have_the_axes_that_were_asked_for(log_x, log_y):
    x = np.arange(1, 21)
    holed = np.where(x == 3, np.nan, x)
    (axes,) = figures.curves(x, {"a": holed}, "x", "y", log_x, log_y).axes
    assert (axes.get_xscale() == "log", axes.get_yscale() == "log") == (log_x, log_y)
    assert np.isnan(axes.lines[0].get_ydata()[2])


def test_points_are_marks_without_a_line_and_lines_beside_them_have_none():
    samples, asked = np.array([[128.0, 2.0], [900.0, 3.0]]), np.array([[256.0, 1.0]])
    dots = {"samples": samples, "asked": asked}
    figure = figures.curves(X, {"mean": X}, "x", "y", True, points=dots)
    for variant in (figure, figure.phone):
        line, *marks = variant.axes[0].lines
        assert (line.get_linestyle(), line.get_marker()) == ("-", "")
        for mark, pairs in zip(marks, (samples, asked), strict=True):
            assert np.array_equal(mark.get_xydata(), pairs)
            assert mark.get_linestyle() == "None"
            assert mark.get_color() == INK
        assert len({mark.get_marker() for mark in marks} - {"", "None"}) == 2
        assert {"mean", "samples", "asked"} <= set(words(variant.axes[0]))


def test_offsets_are_the_products():
    (axes,) = CALLS["offsets"]().axes
    line = axes.containers[0].markerline
    assert np.array_equal(line.get_xydata(), np.stack([POSITIONS, PRODUCTS], axis=-1))
    stems = axes.containers[0].stemlines.get_segments()
    assert np.array_equal([stem[1] for stem in stems], line.get_xydata())
    assert axes.get_xlabel() == r"offset $\delta$"


SMALL = CAUSAL[:4, :4]
MISTAKES = [
    (lambda: figures.architectures([BAND], STEP, FULL[:4]),
     "self_attention must have shape (n, n), got (4, 5)"),
    (lambda: figures.architectures([], STEP, FULL), "convolution must not be empty, got []"),
    (lambda: figures.architectures([BAND], BAND, FULL),
     "recurrence must have a False diagonal, got True at [0, 0]"),
    (lambda: figures.binary_counting(BITS + 1, ENCODING), "bits must be 0 or 1, got 2.0"),
    (lambda: figures.binary_counting(BITS, ENCODING + 2), "encoding must lie in [-1, 1], got 2.0"),
    (lambda: figures.rotation(2 * BEFORE, AFTER, TURN),
     "before must hold pairs of length 1, got lengths [2. 2. 2. 2.]"),
    (lambda: figures.rotation(BEFORE, AFTER, -TURN),
     "after must be before rotated counterclockwise by angles = -0.7, got"),
    (lambda: figures.rotation(BEFORE, AFTER, TURN, [1]), "labels must be two for each position, got [1]"),
    (lambda: figures.attention_weights(WEIGHTS[0, 0]), "weights must have shape (h, n_q, n_k), got (6,)"),
    (lambda: figures.attention_weights(np.full((2, 2), np.nan)), "weights must lie in [0, 1], got nan"),
    (lambda: figures.attention_weights(WEIGHTS, column_labels="abc"),
     "column_labels must hold 6 strings, got 3"),
    (lambda: figures.masks([FULL, SMALL], ["a", "b"]), "masks[1] must have shape (5, 5), got (4, 4)"),
    (lambda: figures.curves(ENCODING, SERIES, "", ""), "x must have shape (m), got (40, 12)"),
    (lambda: figures.curves(X, {"a": X[:3]}, "", ""), "series['a'] must have shape (7), got (3,)"),
    (lambda: figures.curves(X, {"a": -X}, "", "", False, True),
     "series['a'] must be positive on a logarithmic axis, got -128.0"),
    (lambda: figures.transformer_block({"attend": "a"}), "words must name boxes of tokens, norm, atten"),
    (lambda: figures.ring(1, [0]), "workers must be at least 2, got 1"),
    (lambda: figures.ring(4, []), "steps must not be empty"),
    (lambda: figures.ring(4, [0, 4]), "steps must lie between 0 and workers - 1 = 3, got 4"),
    (lambda: figures.tiling(0, (0, 0)), "tiles must be positive, got 0"),
    (lambda: figures.tiling(3, (1, 2)), "at must be a tile on or below the diagonal, got (1, 2)"),
    (lambda: figures.tiling(3, (1, -1)), "at must be a tile on or below the diagonal, got (1, -1)"),
    (lambda: figures.decoding((), ()), "sizes must be positive and not empty, got []"),
    (lambda: figures.decoding((2, 0), "ab"), "sizes must be positive and not empty, got [2, 0]"),
    (lambda: figures.decoding((2, 1), "ab"), "words must be 3, one per token, got ['a', 'b']"),
    (lambda: figures.score_map([[0.0, np.inf]]), "scores must be finite, got inf"),
    (lambda: figures.score_map(np.zeros(3)), "scores must have shape (n_q, n_k), got (3,)"),
    (lambda: figures.score_maps({}), "maps must not be empty, got []"),
    (lambda: figures.score_maps({"a": FULL, "b": SMALL}), "scores must have shape (5, 5), got (4, 4)"),
    (lambda: figures.right_and_wrong(OFFSETS, SMALL, xlabel="", ylabel=""),
     "wrong must have shape (5, 5), got (4, 4)"),
    (lambda: figures.intervals({}, ""), "groups must not be empty, got []"),
    (lambda: figures.intervals({"a": {"b": (0.0, 1.0, 2.0)}}, ""),
     "'b' must be positive on a logarithmic axis, got 0.0"),
    (lambda: figures.offsets(ENCODING), "products must have shape (m), got (40, 12)"),
]  # fmt: skip


@pytest.mark.parametrize(("draw", "text"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_a_mistake_is_named(draw, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        draw()
