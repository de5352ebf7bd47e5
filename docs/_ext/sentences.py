"""The sentences of a page, and which of them are claims: they count, compare or order."""

import re

import yaml
from checks import FENCE, FRONT

WORD = re.compile(
    r"""(?<!\w)(?:\d|(?:
    two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|million|billion
    |half|halves|third|quarter|fifth|sixth|tenth|hundredth|thousandth|twice|times|doubles?
    |more|most|less|least|fewer|better|best|worse|worst
    |(?:larg|small|great|long|short|fast|slow|high|low|near)(?:er|est)|bigger|wider|narrower|farther
    |all|every|always|never|no|none|nothing|nobody|only|exactly|same|equal|equals|equally|identical
    |positive|negative|nonnegative|zeros?|infinity|NaN|first|last|after|left|right|above|below
    |(?:grow|fall|rise|shrink|increase|decrease)s?|growing|vanish|vanishes
    )(?!\w))""",
    re.VERBOSE | re.IGNORECASE,
)
# A formula that says something, or is a number.
RELATION = re.compile(
    r"[=<>]|\\(?:le|ge|ne|neq|ll|gg|approx|equiv|propto|sim|to)\b"
    r"|^(?:\\(?:[td]?frac|sqrt|ln|pi|infty|cdot|,)|[^A-Za-z\\])*$"
)
FROZEN = re.compile(r"\{[\w:]+\}`[^`]*`|`[^`]*`|\$[^$]+\$")  # no words
END = re.compile(r"(?<=[.!?])[\"*)]*\s+(?=[A-Z\"*(\x00])")
NO_PROSE = re.compile(r"#|:{3,}|:[\w-]+:|\([\w-]+\)=$|\{\.|%|`{3,}|\|[-| :]+\|$|---$")
HOLDS_PROSE = re.compile(r"`{3,}\{(?:glossary|revealjs-notes|admonition|prf:\w+|note)\}")
SHOWN = re.compile(
    r"\$\$.*?\$\$(?: *\(\w.*?\))?|\\begin\{(\w+\*?)\}.*?\\end\{\1\}", re.DOTALL
)
HEADER = re.compile(r"^\|.*\n(?=\|[-| :]+\|$)", re.MULTILINE)


def paragraphs(text):
    """What a page says, without code and formulas of their own, and with the captions of its figures."""

    def said(fence):
        if HOLDS_PROSE.match(fence[0]):
            return fence[0]
        return f"\n\n{figure(fence[0]).get('caption', '')}\n\n"

    text = FENCE.sub(said, FRONT.sub("", text))
    return re.split(r"\n\s*\n", HEADER.sub("", SHOWN.sub("", text)))


def figure(cell):
    """The name and the caption of the figure that a cell shows."""
    head = re.match(r"`{3,}\{code-cell\}.*\n---\n(.*?\n)---\n", cell, re.DOTALL)
    settings = yaml.safe_load(head[1]) if head and "figure:" in head[1] else {}
    return settings.get("mystnb", {}).get("figure", {})


def sentences(paragraph):
    """The sentences of a paragraph, but for questions; the row of a table is one."""
    for line in paragraph.splitlines():
        line = re.sub(r"^(?:[-*] |\d+\. )|\\$", "", line.strip())
        if NO_PROSE.match(line):
            continue
        frozen = FROZEN.sub(lambda m: "\0" * len(m[0]), line)
        ends = [m.end() for m in END.finditer(frozen) if not line.startswith("|")]
        for start, end in zip([0, *ends], [*ends, len(line)], strict=True):
            if not (sentence := line[start:end].strip()).rstrip('*)"').endswith("?"):
                yield sentence


def is_claim(sentence):
    """Whether a sentence counts, compares or orders."""
    if "{glue:" in sentence or (sentence.startswith("|") and "$" in sentence):
        return True
    formulas = [piece[1:-1] for piece in FROZEN.findall(sentence) if piece[0] == "$"]
    return bool(WORD.search(FROZEN.sub("", sentence))) or any(
        map(RELATION.search, formulas)
    )
