"""The SVG of a figure: words are text, formulas are outlines of letters, and both take few bytes."""

import re
from base64 import b64decode, b64encode
from io import BytesIO, StringIO

import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.colors import rgb2hex
from matplotlib.figure import Figure
from matplotlib.spines import Spine
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from PIL import Image

_FAMILY = "Source Sans 3, Source Sans Pro, sans-serif"
_EM = 1.1  # of Posattn Sans in that of Source Sans, from which it is made
_INSIDE = r"((?:(?!</?g\b)[\s\S])*)</g>"  # the rest of a group that holds no other
_SHAPE = r"<(?:use|path d)[^>]*?"


class _Words(RendererSVG):
    """Writes words as text, as long in every font as Matplotlib measured them."""

    def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None) -> None:
        if ismath:
            return super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)
        look = {"x": f"{x:.2f}", "y": f"{y:.2f}"}
        look["font-size"] = f"{prop.get_size_in_points() / _EM:.2f}"
        if prop.get_weight() == "bold":
            look["font-weight"] = "600"
        if (color := rgb2hex(gc.get_rgb())) != "#000000":
            look["fill"] = color
        if angle:
            look["transform"] = f"rotate({-angle:g} {x:.2f} {y:.2f})"
        length, _, _ = self.get_text_width_height_descent(s, prop, False)
        look |= {"textLength": f"{length:.1f}", "lengthAdjust": "spacingAndGlyphs"}
        self.writer.element("text", s, look)


def svg(figure: Figure) -> str:
    """Write a figure as SVG; the same figure gives the same bytes."""
    file, size, dpi = StringIO(), figure.get_size_inches(), figure.dpi
    words = _Words(*72 * size, file, image_dpi=dpi, metadata={"Date": None})
    figure.dpi = 72
    renderer = MixedModeRenderer(figure, *size, dpi, words)
    figure.draw(renderer)
    renderer.finalize()
    figure.dpi = dpi
    top, bottom = 72 * (size[1] - ink(figure).intervaly[::-1])
    box = rf"\g<1>{bottom - top:g}pt\g<2>0 {top:g} {72 * size[0]:g} {bottom - top:g}"
    cut = re.sub('( height=")[^"]*(" viewBox=")[^"]*', box, file.getvalue())
    return _slim(cut)


def ink(figure: Figure) -> Bbox:
    """As wide as the figure and, in inches, as high as what is drawn, with a hair around it."""
    drawn = [*figure.texts, *figure.legends]
    for axes in figure.axes:
        drawn += [axes] if axes.axison else set(axes.get_children()) - {axes.patch}
        drawn += [a.arrow_patch for a in axes.texts if isinstance(a, Annotation)]
    boxes = [a.get_tightbbox() for a in drawn if a and not isinstance(a, Axis | Spine)]
    boxes = [box for box in boxes if box and box.height > 0]
    box = Bbox.union(boxes or [figure.bbox])
    low, high = np.clip(
        box.intervaly / figure.dpi + (-0.03, 0.03), 0, figure.get_figheight()
    )
    return Bbox.from_extents(0, low, figure.get_figwidth(), high)


def _slim(text: str) -> str:
    """Leave out what nobody sees: comments, idle groups, digits below a hundredth of a point."""
    text = re.sub(r"<!--.*?-->|<(metadata|style).*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r' id="(image\w+|[\w.]+_\d+)"|<g( [^>]*)?/>', "", text)
    text = re.sub(
        r'<path d="[^"]*" style="fill: none"/>', "", text
    )  # of the figure and its axes
    text = re.sub("<svg ", f'<svg stroke-linejoin="round" font-family="{_FAMILY}" ', text)
    text = re.sub(r"(?<=data:image/png;base64,)[^\"]*", _few_colors, text)
    text = re.sub(r' d="([^"]*)"( transform="scale\(0\.015625\)")?', _outline, text)
    text = re.sub(r"scale\(.*?\)|\d+\.\d{3,}(?=[^<>]*>)", _rounded, text)
    text = re.sub(r"(?<=[:;]) (?=[^<>]*>)", "", re.sub(r"\s*\n\s*", "\n", text))
    text = re.sub(r"(?<=[-l ,:;])0(?=\.\d[^<>]*>)", "", text)
    return _once(text)


def _once(text: str) -> str:
    """Say things once: no idle groups, one for neighbours that say the same, and no mark's style again."""
    marks = dict(re.findall(r'<path id="(m\w+)" d="[^"]*"( style="[^"]*")', text))
    for mark, style in marks.items():
        text = re.sub(f'(<use xlink:href="#{mark}"[^>]*?){re.escape(style)}', r"\1", text)
    for idle, kept in (
        (rf"<g>\n?{_INSIDE}\n?", r"\1"),
        (rf"(<g [^>]*>){_INSIDE}\n?\1\n?", r"\1\2"),
        (r"<defs>\s*</defs>\n?", ""),
    ):
        while (less := re.sub(idle, kept, text)) != text:
            text = less
    same = rf'{_SHAPE}((?: clip-path="[^"]*")? style="[^"]*")/>\n(?:{_SHAPE}\1/>\n)+'
    return re.sub(
        same, lambda run: f"<g{run[1]}>\n{run[0].replace(run[1], '')}</g>\n", text
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
    unit, end = (10, ' transform="scale(.15625)"') if path[2] else (0.01, "")
    steps = ""
    here = np.zeros(2, int)
    for command, numbers in re.findall("([MLQCz])([^MLQCz]*)", path[1]):
        points = np.rint(np.array(numbers.split(), float) / unit).astype(int).reshape(-1, 2)
        if command != "M":
            command, points = command.lower(), points - here
        steps += command + " ".join(
            f"{n if path[2] else n / 100:g}" for n in points.ravel()
        )
        if points.size:
            here = points[-1] + (0 if command == "M" else here)
    return f' d="{steps.replace(" -", "-")}"{end}'


def _rounded(number: re.Match) -> str:
    return number[0] if number[0].startswith("scale") else f"{float(number[0]):.2f}"
