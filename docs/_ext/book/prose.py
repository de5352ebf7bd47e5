"""A number that is typed in a sentence must stand in a cell, an output or an equation of its page.

Or in the front matter, under `quantities`, if a source says it. Whatever else a sentence counts is
pasted from the cell that computed it (`glue`), and cannot be wrong. And an output of False or NaN, which
looks like a fault, needs a word that it should be so: in the prose around its cell, or in its code.
"""

import json
import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

NUMBER = re.compile(r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\w%])(?!\.\d)")
FAULT = re.compile(r"\b(?:False|NaN)\b", re.IGNORECASE)
ANY = re.compile(r"\d+(?:\.\d+)?")
APART = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|_)(?=\d{3})")  # between thousands
# What is not a sentence; a title's number counts, and a reference is replaced later.
NO_PROSE = (
    nodes.literal | nodes.FixedTextElement | nodes.math | nodes.math_block | nodes.raw
    | nodes.title | nodes.comment | nodes.doctest_block | nodes.reference
    | addnodes.pending_xref | addnodes.index
)  # fmt: skip
logger = logging.getLogger(__name__)


def check(app, doctree):
    """Warn, and so fail the build, about numbers that nothing on the page computes."""
    page = app.env.current_document.docname
    notebook = Path(app.env.mystnb_config.output_folder, f"{page}.ipynb")
    if not notebook.is_file():
        return
    there = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in there if cell["cell_type"] == "code"]
    formulas = doctree.findall(
        lambda n: isinstance(n, nodes.math | nodes.math_block | nodes.literal)
    )
    known = numbers(
        [json.dumps([cell["source"], cell["outputs"]]) for cell in code]
        + [node.astext() for node in formulas]
        + [str(app.env.metadata[page].get("quantities", ""))]
    )
    for text in doctree.findall(nodes.Text):
        if is_prose(text):
            for number in NUMBER.findall(text.astext()):
                if not numbers([number]) <= known:
                    logger.warning(
                        "%s is typed, and no cell or equation of the page has it: paste it, or list "
                        "it under quantities in the front matter",
                        number,
                        location=text.parent,
                    )
    for fault in unexplained(there):
        logger.warning(
            "a cell prints %s, and no word around it says so", fault, location=page
        )


def unexplained(cells):
    """Each False or NaN that is printed, and of which neither the prose around nor the cell speaks."""
    for before, cell, after in zip([{}, *cells], cells, [*cells[1:], {}], strict=False):
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or {"remove-cell", "remove-output"} & set(tags):
            continue
        around = [
            "".join(c["source"])
            for c in (before, after)
            if c.get("cell_type") == "markdown"
        ]
        around.append("".join(cell["source"]))
        known = {word.lower() for text in around for word in FAULT.findall(text)}
        printed = {
            word.lower(): word
            for output in cell["outputs"]
            for shown in (
                output.get("text", ""),
                output.get("data", {}).get("text/plain", ""),
            )
            for word in FAULT.findall("".join(shown))
        }
        yield from (printed[word] for word in sorted(printed.keys() - known))


def numbers(texts):
    """All numbers in some texts."""
    return {float(number) for text in texts for number in ANY.findall(APART.sub("", text))}


def is_prose(node):
    """Whether a text belongs to a sentence, and was not pasted."""
    while node is not None:
        if isinstance(node, NO_PROSE) or "glued" in getattr(node, "attributes", ()):
            return False
        if "nb_element" in getattr(node, "attributes", ()):
            return False
        if isinstance(node, nodes.Element) and "recorded" in node["classes"]:
            return False
        node = node.parent
    return True


def setup(app):
    """Register with Sphinx."""
    app.connect("doctree-read", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
