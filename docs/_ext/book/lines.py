"""Lines: a short formula stays on one with the marks at it, a short cell of a table, and long names break."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from .site import html

SHORT = 16  # symbols of a formula that stands on one line
COMMANDS = (
    r"\\(?:(?:math|operatorname|text|bold|left|right)[a-z]*|[^a-zA-Z])",
    r"\\[a-zA-Z]+",
)
CELL = 12  # letters of a cell that stand on one line, ...
WORDS = 24  # ... and that need room for more than a word a line
LONG = re.compile(r"(?=\S{20})\S*\w[/_.]\w")
# where a long name may go on in the next line
BREAK = re.compile(r"(?<=\w[/_])(?=\w)|(?<=[a-z]\.)(?=[A-Za-z])")


class Lines(SphinxPostTransform):
    """Keep on one line what browsers would part, and let long names break where they may."""

    default_priority = 300
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Box short formulas, mark cells and the options of commands, and mark where names break."""
        for formula in list(self.document.findall(nodes.math)):
            if symbols(formula.astext()) <= SHORT:
                keep(formula)
        for cell in self.document.findall(nodes.entry):
            letters = len(cell.astext())
            cell["classes"] += ["formula"] * (letters <= CELL)
            cell["classes"] += ["words"] * (letters > WORDS)
        for code in self.document.findall(nodes.literal):
            code["classes"] += ["option"] * (" -" in f" {code.astext()}")
        for text in list(self.document.findall(nodes.Text)):
            if type(text.parent) in (nodes.paragraph, nodes.literal) and LONG.search(text):
                parts = ((html("<wbr>"), nodes.Text(part)) for part in BREAK.split(text))
                text.parent.replace(text, [node for pair in parts for node in pair][1:])


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
