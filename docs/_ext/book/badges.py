"""Badges: how many of our vectors a library passes, as a picture for its README."""

import json
from html import escape
from pathlib import Path

RECORDS = Path(__file__).parents[2] / "_records" / "conformance"
GREEN, WIDTH = "#2a6f3c", 6.6  # of a letter, in pixels
SVG = """<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img"
aria-label="{left}: {right}">
<title>{left}: {right}</title>
<path fill="#444" d="M0 0h{split}v20H0z"/><path fill="{color}" d="M{split} 0h{rest}v20h-{rest}z"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="6" y="14" textLength="{in_left}">{left}</text>
<text x="{start}" y="14" textLength="{in_right}">{right}</text></g></svg>
"""


def badge(record):
    """The picture of a record: cases passed, of cases run, and the version."""
    run, passed = (
        sum(check[key] for check in record["checks"]) for key in ("run", "passed")
    )
    left = f"{record['library']} {record['version'].partition('+')[0]}"
    right = f"{passed} of {run} attention vectors"
    in_left, in_right = (round(WIDTH * len(text)) for text in (left, right))
    split, rest = in_left + 12, in_right + 12
    return SVG.format(
        left=escape(left), right=escape(right), whole=split + rest, split=split, rest=rest,
        start=split + 6, in_left=in_left, in_right=in_right, color=GREEN,
    )  # fmt: skip


def write(app, error):
    """Write a badge for each record into the site."""
    if app.builder.name != "html" or error:
        return
    folder = Path(app.outdir, "badges")
    folder.mkdir(exist_ok=True)
    for path in sorted(RECORDS.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        Path(folder, f"{path.stem}.svg").write_text(badge(record), "utf-8")


def setup(app):
    """Register with Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
