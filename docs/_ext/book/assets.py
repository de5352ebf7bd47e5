"""Type: KaTeX's style and fonts and the book's fonts, out of npm's packages.

A font travels with the characters that the site uses, and no others.
"""

import html
import re
import shutil
import sys
from pathlib import Path

from . import npm
from fontTools import subset

FACES = {
    "source-serif-4": ["400-normal", "400-italic", "600-normal"],
    "source-sans-3": ["400-normal", "600-normal"],
    "source-code-pro": ["400-normal"],
}
# KaTeX names the font of a symbol in its class; the symbols of the large fonts are few.
SET_IN = {
    f"KaTeX_{face}": re.compile(rf'class="[^"]*\b(?:{names})\b[^"]*"[^>]*>([^<]+)<')
    for face, names in {
        "AMS-Regular": "amsrm|mathbb|textbb",
        "Main-Bold": "mathbf|textbf",
        "Math-Italic": "mathnormal",
    }.items()
}
OTHER_FORMATS = re.compile(r',url\([^)]*\) format\("(?:woff|truetype)"\)')


def files():
    """Yield the place of each font and licence in the site, and where it comes from."""
    katex = npm.PACKAGES / "katex"
    yield "katex/LICENSE", katex / "LICENSE"
    for path in sorted((katex / "dist" / "fonts").glob("*.woff2")):
        yield f"katex/fonts/{path.name}", path
    for family, faces in FACES.items():
        package = npm.PACKAGES / "@fontsource" / family
        yield f"fonts/{family}.txt", package / "LICENSE"
        for face in faces:
            path = package / "files" / f"{family}-latin-{face}.woff2"
            yield f"fonts/{family}-{face}.woff2", path


def prepare(app):
    """Put style and fonts into the site; readers of an EPUB have faces of their own."""
    if app.builder.format != "html" or app.builder.name == "epub":
        return
    if not npm.HOME.is_dir():
        sys.exit(npm.MISSING)  # Sphinx would put pages around an error's line
    static = Path(app.outdir) / "_static"
    for place, path in files():
        (static / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, static / place)
    style = (npm.PACKAGES / "katex" / "dist" / "katex.min.css").read_text("utf-8")
    style = OTHER_FORMATS.sub("", style)
    (static / "katex" / "katex.min.css").write_text(style, encoding="utf-8")


def trim(app, error):
    """Leave in each font the characters that the pages set in it, and in text all of ASCII for scripts.

    The slides, which stand in the site, use its fonts.
    """
    if app.builder.name not in ("html", "dirhtml") or error:
        return
    static = Path(app.outdir) / "_static"
    used, symbols = {*map(chr, range(32, 127))}, {name: set() for name in SET_IN}
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        used |= set(html.unescape(text))
        for name, pattern in SET_IN.items():
            symbols[name] |= set(html.unescape("".join(pattern.findall(text))))
    options = subset.Options(
        flavor="woff2", layout_features=["kern", "liga", "mark", "ccmp"]
    )
    for path in [*static.glob("fonts/*.woff2"), *static.glob("katex/fonts/*.woff2")]:
        face = subset.load_font(path, options)
        reduced = subset.Subsetter(options)
        reduced.populate(unicodes=map(ord, symbols.get(path.stem, used)))
        reduced.subset(face)
        subset.save_font(face, path, options)


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", prepare)
    app.connect("build-finished", trim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
