"""Lines: what belongs together stays on one, which browsers do not see to, and long names break."""

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
OPTION = re.compile(r"(?<!\S)-\S")  # of a command, which browsers break after a hyphen
LONG = re.compile(r"(?=\S{20})\S*\w[/_.]\w")
# Where a long name may go on in the next line.
BREAK = re.compile(r"(?<=\w[/_])(?=\w)|(?<=[a-z]\.)(?=[A-Za-z])")


class Lines(SphinxPostTransform):
    """Keep on one line what belongs together, and let long names break."""

    default_priority = 300
    builders = ("html", "dirhtml")

    def run(self, **kwargs):
        """Box short formulas, mark cells and options, tie ± to its numbers, and break long names."""
        for formula in list(self.document.findall(nodes.math)):
            if symbols(formula.astext()) <= SHORT:
                keep(formula)
        for cell in self.document.findall(nodes.entry):
            letters = len(cell.astext())
            cell["classes"] += ["formula"] * (letters <= CELL)
            cell["classes"] += ["words"] * (letters > WORDS)
        for code in self.document.findall(nodes.literal):
            code["classes"] += ["option"] * bool(OPTION.search(code.astext()))
        for text in list(self.document.findall(nodes.Text)):
            if type(text.parent) is nodes.paragraph and "±" in text:
                bound = text.replace(" ±", "\xa0±").replace("± ", "±\xa0")
                text.parent.replace(text, text := nodes.Text(bound))
            if type(text.parent) in (nodes.paragraph, nodes.literal) and LONG.search(text):
                parts = ((html("<wbr>"), nodes.Text(part)) for part in BREAK.split(text))
                text.parent.replace(text, [node for pair in parts for node in pair][1:])


def symbols(formula):
    """How many symbols a formula has, about."""
    for command, symbol in zip(COMMANDS, ("", "x"), strict=True):
        formula = re.sub(command, symbol, formula)
    return len(re.sub(r"[{}_^\s]", "", formula))


def keep(formula):
    """Put a formula into a box, with the marks that stand at it, if a line could end within."""
    line, at = formula.parent, formula.parent.index(formula)
    start, opening = parted(line[at - 1] if at else None, r"(.*?)([(\[\u201c\u2018]*)$")
    closing, end = parted(line[at + 1] if at + 1 < len(line) else None, r"([^\s\w]*)(.*)")
    if opening or closing or symbols(formula.astext()) > 2:
        line[at - bool(opening) : at + 1 + bool(closing)] = [
            *[nodes.Text(start)] * bool(opening),
            nodes.inline(
                "",
                "",
                nodes.Text(opening),
                formula,
                nodes.Text(closing),
                classes=["formula"],
            ),
            *[nodes.Text(end)] * bool(closing),
        ]


def parted(near, marks):
    """The text beside a formula in two pieces, of which one is what stands at it."""
    return (
        re.match(marks, near, re.DOTALL).groups()
        if isinstance(near, nodes.Text)
        else ("", "")
    )


def setup(app):
    """Register with Sphinx."""
    app.add_post_transform(Lines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
