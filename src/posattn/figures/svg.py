"""The SVG of a figure: words are text, formulas are outlines of letters, and both take few bytes."""

import re
from base64 import b64decode, b64encode
from io import BytesIO, StringIO
from typing import Any

import numpy as np
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.colors import rgb2hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image

FAMILY = "Source Sans 3, Source Sans Pro, sans-serif"
EM = 1.1  # of Posattn Sans in that of Source Sans, from which it is made


class _Words(RendererSVG):
    """Writes words as text, as long in every font as Matplotlib measured them."""

    def draw_text(
        self,
        gc: Any,
        x: float,
        y: float,
        s: str,
        prop: FontProperties,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        if ismath:
            super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
            return
        color = rgb2hex(gc.get_rgb())
        length, _, _ = self.get_text_width_height_descent(s, prop, False)
        look = {"font-size": f"{prop.get_size_in_points() / EM:.2f}"}
        if prop.get_weight() == "bold":
            look["font-weight"] = "600"
        if color != "#000000":
            look["fill"] = color
        if angle:
            look["transform"] = f"rotate({-angle:g} {x:.2f} {y:.2f})"
        if s != " ".join(s.split()):
            look["xml:space"] = "preserve"
        look |= {"textLength": f"{length:.1f}", "lengthAdjust": "spacingAndGlyphs"}
        self.writer.element("text", s, {"x": f"{x:.2f}", "y": f"{y:.2f}"} | look)


def svg(figure: Figure) -> str:
    """Write a figure as SVG; the same figure gives the same bytes."""
    file, size, dpi = StringIO(), figure.get_size_inches(), figure.dpi
    words = _Words(*72 * size, file, image_dpi=dpi, metadata={"Date": None})
    figure.dpi = 72
    try:
        renderer = MixedModeRenderer(figure, *size, dpi, words)
        figure.draw(renderer)
        renderer.finalize()
    finally:
        figure.dpi = dpi
    return _slim(file.getvalue())


def _slim(text: str) -> str:
    """Leave out what nobody sees: comments, idle groups, digits below a hundredth of a point."""
    text = re.sub(r"<!--.*?-->|<(metadata|style).*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r"<g( [^>]*)?/>", "", text)
    text = re.sub(r' id="(image\w+|[\w.]+_\d+)"', "", text)
    text = re.sub(
        r'<path d="[^"]*" style="fill: none"/>', "", text
    )  # of the figure and its axes
    text = text.replace("<svg ", f'<svg stroke-linejoin="round" font-family="{FAMILY}" ', 1)
    text = re.sub(r"(?<=data:image/png;base64,)[^\"]*", _few_colors, text)
    text = re.sub(r' d="([^"]*)"( transform="scale\(0\.015625\)")?', _outline, text)
    text = re.sub(r"scale\(.*?\)|\d+\.\d{3,}", _rounded, text)
    text = re.sub(r"<defs>\s*</defs>", "", _grouped(text))
    text = re.sub(r"(?<=[:;]) (?=[^<>]*>)", "", text)
    text = _styled(re.sub(r"\s*\n\s*", "\n", text))
    return re.sub(r"(?<=[-l ,:;])0(?=\.\d[^<>]*>)", "", text)


def _grouped(text: str) -> str:
    """Take away groups that say nothing, and join neighbours that say the same."""
    written, within, closed = [""], [""], ""
    for piece in re.split(r"(<g\b[^>]*>|</g>)", text):
        if piece == "</g>":
            tag = within.pop()
            if tag != "<g>":
                written.append(piece)
                closed = tag
        elif re.match(r"<g\b", piece):
            within.append(piece)
            if piece != "<g>":
                if written[-1] == "</g>" and closed == piece:
                    written.pop()
                else:
                    written.append(piece)
        elif piece.strip():
            written.append(piece)
    return "".join(written)


def _styled(text: str) -> str:
    """Say a style once: not again where a mark is used, and once for neighbours that share it."""
    marks = dict(re.findall(r'<path id="(m\w+)" d="[^"]*" style="([^"]*)"', text))
    text = re.sub(
        r'(<use xlink:href="#(m\w+)" [^>]*?) style="([^"]*)"',
        lambda use: use[1] if marks.get(use[2]) == use[3] else use[0],
        text,
    )
    return re.sub(
        r'<(?:use|path d)[^>]*?((?: clip-path="[^"]*")? style="[^"]*")/>\n(?:<(?:use|path d)[^>]*?\1/>\n)+',
        lambda run: f"<g{run[1]}>\n{run[0].replace(run[1], '')}</g>\n",
        text,
    )


def _few_colors(picture: re.Match) -> str:
    """Write a picture, without loss, as numbers of its colours if these are at most 256."""
    pixels = np.asarray(Image.open(BytesIO(b64decode(picture[0]))).convert("RGBA"))
    colors, number = np.unique(pixels.reshape(-1, 4), axis=0, return_inverse=True)
    if len(colors) > 256:
        return picture[0]
    made = Image.fromarray(number.reshape(pixels.shape[:2]).astype(np.uint8))
    made.putpalette(colors.tobytes(), "RGBA")
    buffer = BytesIO()
    made.save(buffer, "png", optimize=True)
    return b64encode(buffer.getvalue()).decode()


def _outline(path: re.Match) -> str:
    """Write an outline in steps from where the last one ended: of 1/100 pt, or for a letter 1/640 em."""
    letter = path[2]
    unit, end = (10, ' transform="scale(.15625)"') if letter else (0.01, "")
    steps, here = "", np.zeros(2, int)
    for command, numbers in re.findall("([MLQCz])([^MLQCz]*)", path[1]):
        points = np.rint(np.array(numbers.split(), float) / unit).astype(int).reshape(-1, 2)
        if command != "M":
            command, points = command.lower(), points - here
        written = (n if letter else f"{n / 100:g}" for n in points.ravel())
        steps += command + " ".join(map(str, written))
        if points.size:
            here = points[-1] + (0 if command == "M" else here)
    return f' d="{re.sub(" (?=-)", "", steps)}"{end}'


def _rounded(number: re.Match) -> str:
    return number[0] if number[0].startswith("scale") else f"{float(number[0]):.2f}"
