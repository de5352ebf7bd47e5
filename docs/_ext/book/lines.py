"""Lines: a short formula stays on one with the marks at it, and a short cell of a table."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

SHORT = 16  # symbols of a formula that stands on one line
COMMANDS = (
    r"\\(?:(?:math|operatorname|text|bold|left|right)[a-z]*|[^a-zA-Z])",
    r"\\[a-zA-Z]+",
)
CELL = 12  # letters of a cell that stand on one line, ...
WORDS = 24  # ... and that need room for more than a word a line


class Lines(SphinxPostTransform):
    """Keep on one line what browsers would part."""

    default_priority = 300
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Box short formulas, and mark cells and the options of commands."""
        for formula in list(self.document.findall(nodes.math)):
            if symbols(formula.astext()) <= SHORT:
                keep(formula)
        for cell in self.document.findall(nodes.entry):
            letters = len(cell.astext())
            cell["classes"] += ["formula"] * (letters <= CELL)
            cell["classes"] += ["words"] * (letters > WORDS)
        for code in self.document.findall(nodes.literal):
            code["classes"] += ["option"] * (" -" in f" {code.astext()}")


def symbols(formula):
    """How many symbols a formula has, about."""
    for command, symbol in zip(COMMANDS, ("", "x"), strict=True):
        formula = re.sub(command, symbol, formula)
    return len(re.sub(r"[{}_^\s]", "", formula))


def keep(formula):
    """Put a formula into a box, with the marks that stand at it."""
    line, at = formula.parent, formula.parent.index(formula)
    around = [line[i] if 0 <= i < len(line) else None for i in (at - 1, at + 1)]
    before, after = (node if isinstance(node, nodes.Text) else "" for node in around)
    opening = re.search(r"[(\[\u201c\u2018]*$", before)[0]
    closing = re.match(r"[^\s\w]*", after)[0]
    if before:
        line[at - 1] = nodes.Text(before.removesuffix(opening))
    if after:
        line[at + 1] = nodes.Text(after.removeprefix(closing))
    box = [nodes.Text(opening), formula, nodes.Text(closing)]
    line[at] = nodes.inline("", "", *box, classes=["formula"])


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(Lines)
