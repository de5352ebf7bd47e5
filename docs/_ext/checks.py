"""What a reader has to believe is bound to what makes it true.

Every labelled equation has a check, which a cell names: `checks: {eq_rotary: "3fa2b1c9"}`. And every
figure was looked at with its caption and its alt text: `seen: "9b1d04e7"`. The eight digits are a
fingerprint of the equation or of the figure's cell. An equation without a check, a check without its
equation, what nobody has seen, and all that has changed since fail the build; `claims.py` does the same
for sentences.
On the web the number of an equation leads to the cell that checks it.

`python docs/_ext/checks.py` writes the fingerprint wherever a page says `new` in its place; so who changes
an equation or a figure says that the check still holds, or that the caption fits.
"""

import hashlib
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

from sphinx.util import logging

EQUATION = re.compile(r"\$\$((?:(?!\$\$).)+)\$\$\s*\((eq_[^)\s]+)\)", re.DOTALL)
CELL = re.compile(r"^`{3,}\{code-cell\}.*?^`{3,}$", re.DOTALL | re.MULTILINE)
CHECKS = re.compile(r"^checks: \{(.+)\}$", re.MULTILINE)
FIGURE = re.compile(r"^ +figure:", re.MULTILINE)
SEEN = re.compile(r"^seen: \"?(\w+)\"?\n", re.MULTILINE)
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.DOTALL | re.MULTILINE)
FRONT = re.compile(r"\A---\n.*?^---$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(
    r'(id="equation-([^"]+)">\s*<div class="math"[^>]*>\s*<span class="eqno">)(\(\d+\))'
)
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Check:
    """What a cell says that it checks: the cell's number on its page, a label and a fingerprint."""

    cell: int
    label: str
    fingerprint: str


def equations(text):
    """The labelled equations of a page, as fingerprints of their text without white space."""
    return {label: fingerprint(latex) for latex, label in EQUATION.findall(text)}


def fingerprint(latex):
    """Eight digits that change with the equation."""
    return hashlib.sha256("".join(latex.split()).encode()).hexdigest()[:8]


def checks(text):
    """The checks of a page."""
    return [
        Check(number, *(word.strip().strip("\"'") for word in pair.split(":")))
        for number, cell in enumerate(CELL.findall(text), start=1)
        for named in CHECKS.findall(cell)
        for pair in named.split(",")
    ]


def figures(text):
    """For each cell that shows a figure: its number, the fingerprint it knows, and the one it has."""
    for number, cell in enumerate(CELL.findall(text), start=1):
        if FIGURE.search(cell):
            known = SEEN.search(cell)
            yield number, known and known[1], look(cell)


def look(cell):
    """The fingerprint of a figure's cell: its code, its caption and its words."""
    return fingerprint(CHECKS.sub("", SEEN.sub("", cell)))


def compare(app, env):
    """Warn, and so fail the build, about what does not belong together."""
    texts = {
        name: Path(env.doc2path(name)).read_text(encoding="utf-8")
        for name in sorted(env.found_docs)
    }
    known = {
        label: (name, digits)
        for name, text in texts.items()
        for label, digits in equations(text).items()
    }
    bound = app.equation_checks = {}
    for name, text in texts.items():
        for number, seen, digits in figures(text):
            if seen != digits:
                says = "nobody has looked at the figure of cell %d: it knows %s, and is %s"
                logger.warning(says, number, seen, digits, location=name)
        for check in checks(text):
            home, digits = known.get(check.label, (None, None))
            if home is None:
                fault = "which no page has"
            elif check.fingerprint != digits:
                fault = f"of which it knows {check.fingerprint}, and which is {digits} now"
            else:
                place = bound.setdefault(check.label, (name, check.cell))
                if home == name != place[0]:  # rather on its own page
                    bound[check.label] = (name, check.cell)
                continue
            logger.warning(
                "cell %d checks %s, %s", check.cell, check.label, fault, location=name
            )
    for label, (home, _) in env.get_domain("math").equations.items():
        if label not in bound:
            logger.warning("no cell checks the equation %s", label, location=home)


def link(app, pagename, templatename, context, doctree):
    """Lead from the number of each equation to its check."""
    anchors = {
        label.replace("_", "-"): place for label, place in app.equation_checks.items()
    }

    def linked(match):
        start, anchor, number = match.groups()
        if anchor not in anchors:
            return match[0]
        page, cell = anchors[anchor]
        there = app.builder.get_relative_uri(pagename, page) if page != pagename else ""
        says = f"Equation {escape(number)}, checked by cell {cell}"
        return f'{start}<a class="checked" href="{there}#cell-{cell}" title="{says}">{number}</a>'

    if app.builder.name == "html" and "body" in context:
        context["body"] = NUMBER.sub(linked, context["body"])


def fill(text, known):
    """The text of a page with the fingerprints of all that it calls new."""

    def labelled(match):
        return re.sub(
            r"(eq_[^:\s]+): new\b", lambda new: f'{new[1]}: "{known[new[1]]}"', match[0]
        )

    def looked(match):
        return re.sub(
            r"^seen: new$", f'seen: "{look(match[0])}"', match[0], flags=re.MULTILINE
        )

    return CELL.sub(looked, CHECKS.sub(labelled, text))


def setup(app):
    """Register with Sphinx."""
    app.connect("env-updated", compare)
    app.connect("html-page-context", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    pages = [Path(name) for name in sys.argv[1:]] or sorted(Path("docs").rglob("*.md"))
    found = {}
    for page in pages:
        found |= equations(page.read_text(encoding="utf-8"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(fill(text, found), encoding="utf-8")
