"""The sentences of a page, line by line, without code, formulas, references and marks."""

import re

FRONT = re.compile(r"\A---\n(.*?)^---$", re.DOTALL | re.MULTILINE)
LISTING = r"(?:code-cell|code-block|doctest|index|keywords|toctree|bibliography|glue:\w+)"
PROSE = re.compile(  # fences around sentences, of which only the fences are none
    r"^(`{3,})\{(?:table|glossary|revealjs-notes)\}[^\n]*(\n.*?)^\1$",
    re.DOTALL | re.MULTILINE,
)
APART = (
    FRONT,
    re.compile(rf"^(:{{3,}})\{{{LISTING}\}}.*?^\1$", re.DOTALL | re.MULTILINE),
    re.compile(r"^(`{3,})[^`\n]*\n(?:.*?\n)??\1$", re.DOTALL | re.MULTILINE),
    re.compile(r"^(?:#|:[\w-]+:|[`:]{3,}|\([\w-]+\)=|\{\.|>>>).*$", re.MULTILINE),
)
FORMULA = re.compile(
    r"\$\$.*?\$\$(?: *\(\w[^)\n]*\))?|\\begin\{(\w+\*?)\}.*?\\end\{\1\}"
    r"|(?<!\\)\$[^$]+\$|(?<!`)`{1,2}[^`]+`{1,2}(?!`)|`{3}\{doctest\}.*?`{3}",
    re.DOTALL,
)
REFERENCE = re.compile(
    r"\{[\w:]+\}`[^`]*`|\[[^\]]*\]\([^)]*\)|\{[\w:]+\}(?= )|^ *\d+\. ", re.M
)


def sentences(text):
    """Each line that holds prose, with its number."""
    text = PROSE.sub(r"\2", text)
    for pattern in (*APART, REFERENCE, FORMULA):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    lines = enumerate(text.splitlines(), 1)
    return [(number, line) for number, line in lines if re.search(r"\w", line)]


def formulas(text):
    """The formulas, the code in sentences, and doctests."""
    return [found[0] for found in FORMULA.finditer(REFERENCE.sub("", text))]
